import pytest
from tests.unit.log.driver import NOW_MS, LogDriver, offsets, read_all

from ottla.ids import LeaderEpoch, Offset
from ottla.log.partition_log import PartitionLog


@pytest.fixture
def filled(driver: LogDriver) -> PartitionLog:
    """Fifty batches of two records in epochs of ten batches, one producer, several segments."""
    log = driver.open(clean=True, segment_bytes=2000, index_interval_bytes=300)
    for number in range(50):
        driver.append(
            log, 2, epoch=number // 10, producer_id=8, producer_epoch=0, base_sequence=2 * number,
            timestamp_ms=NOW_MS + number,
        )  # fmt: skip
    log.high_watermark = log.log_end_offset
    log.flush()
    return log


@pytest.mark.parametrize("offset", [99, 98, 70, 61, 40, 3, 1])
def test_the_end_goes(driver: LogDriver, filled: PartitionLog, offset: int) -> None:
    end = offset - offset % 2
    filled.truncate_to(Offset(offset))
    assert filled.log_end_offset == end
    assert filled.high_watermark == end
    assert filled.recovery_point == end
    assert offsets(read_all(filled)) == list(range(end))
    assert filled.leader_epochs.entries() == [(e, 20 * e) for e in range(5) if 20 * e < offset]
    if end:
        assert filled.producer_state.producers[8].last_sequence == end - 1
        newest = filled.max_timestamp()
        assert newest is not None
        assert newest.timestamp_ms == NOW_MS + end // 2
    driver.append(filled, 2, epoch=9, producer_id=8, producer_epoch=0, base_sequence=end)
    filled = driver.crash(filled)
    assert offsets(read_all(filled)) == list(range(end + 2))
    assert filled.leader_epochs.latest == 9
    filled.release()


def test_at_or_past_the_end_nothing_goes_but_epochs(filled: PartitionLog) -> None:
    filled.assign_epoch_start(LeaderEpoch(7))
    filled.truncate_to(Offset(500))
    assert filled.log_end_offset == 100
    assert filled.leader_epochs.latest == 4


def test_everything_goes(driver: LogDriver, filled: PartitionLog) -> None:
    filled.truncate_fully_and_start_at(Offset(1000))
    assert (filled.log_start_offset, filled.log_end_offset, filled.high_watermark) == (1000, 1000, 1000)
    assert filled.size_bytes == 0
    assert not filled.producer_state.producers
    driver.append(filled, 3)
    filled = driver.reopen(filled)
    assert offsets(read_all(filled)) == [1000, 1001, 1002]
    filled.release()


def test_a_ticket_from_before_a_truncation_says_nothing(driver: LogDriver, filled: PartitionLog) -> None:
    driver.fill(filled, 10)
    ticket = filled.prepare_flush()
    assert ticket is not None
    filled.truncate_to(Offset(60))
    driver.fill(filled, 40)
    ticket.sync()
    filled.flushed(ticket)
    assert filled.recovery_point == 60
    filled.flush()
    assert filled.recovery_point == filled.log_end_offset
    filled.release()
