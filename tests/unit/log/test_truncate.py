import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.driver import NOW_MS, LogDriver, offsets, read_all

from ottla.errors import KafkaStorageError
from ottla.ids import LeaderEpoch, Offset
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_recovery import producer_state


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


def twice(log: PartitionLog, monkeypatch: pytest.MonkeyPatch, first: int, second: int) -> None:
    """Truncate to `first`, and to `second` when a thread has read the producers and not yet handed them over."""
    read, may_go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        found = producer_state(*arguments)
        read.set()
        assert may_go_on.wait(10)
        return found

    log.truncate_to(Offset(first))
    with monkeypatch.context() as patch:
        patch.setattr("ottla.log.producer_snapshots.producer_state", slow)
        with ThreadPoolExecutor(1) as thread:
            loading = thread.submit(log.load_producers)
            assert read.wait(10)
            log.truncate_to(Offset(second))
            may_go_on.set()
            loading.result()


def test_producers_read_before_another_truncation_are_read_again(
    driver: LogDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = driver.open(clean=True)
    for sequence in range(10):
        driver.append(log, epoch=1, producer_id=7, producer_epoch=0, base_sequence=sequence)
    twice(log, monkeypatch, 8, 4)
    assert log.has_stale_producers
    assert [batch.last_sequence for batch in log.producer_state.producers[7].batches] == [0, 1, 2, 3]
    for sequence in (4, 5, 6):
        again = driver.append(log, epoch=4, producer_id=7, producer_epoch=0, base_sequence=sequence)
        assert (again.first_offset, again.duplicate) == (sequence, False)
    log.release()


def test_what_a_follower_appends_after_a_truncation_counts_once(driver: LogDriver) -> None:
    log = driver.open(clean=True)
    for sequence in range(10):
        driver.append(log, epoch=1, producer_id=7, producer_epoch=0, base_sequence=sequence)
    data = bytes(log.read_blocking(8, 10_000, upper_bound=10, min_one_message=True).data)
    log.truncate_to(Offset(8))
    log.append_as_follower(data)
    assert [batch.last_sequence for batch in log.producer_state.producers[7].batches] == [5, 6, 7, 8, 9]
    log.release()


def test_a_discarded_reading_leaves_the_snapshots_that_the_next_one_needs(
    driver: LogDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one takes the snapshot at offset 3 for needless, since there is a newer one: it is so no longer."""
    log = driver.open(clean=True)
    for sequence in range(10):
        if sequence in (3, 6):
            log = driver.reopen(log)  # leaves a snapshot at its end
        driver.append(log, epoch=1, producer_id=7, producer_epoch=0, base_sequence=sequence)
    problems: list[OSError] = []
    log.on_error = problems.append
    twice(log, monkeypatch, 8, 5)
    assert log.producer_state.producers[7].last_sequence == 4
    assert problems == []
    log.release()


@pytest.mark.parametrize("end", [10, 9])
@pytest.mark.parametrize("suffix", [".snapshot", ".log"])
def test_a_file_that_another_truncation_removes_is_no_error_of_the_disk(
    driver: LogDriver, monkeypatch: pytest.MonkeyPatch, suffix: str, end: int
) -> None:
    log = driver.open(clean=True)
    for sequence in range(12):
        if sequence in (4, 8):
            log.roll()
        driver.append(log, epoch=1, producer_id=7, producer_epoch=0, base_sequence=sequence)
    problems: list[OSError] = []
    log.on_error = problems.append
    log.truncate_to(Offset(end))
    reached, may_go_on = threading.Event(), threading.Event()
    read_bytes, open_file = driver.fs.read_bytes, driver.fs.open

    def wait_before(action: Callable[..., Any]) -> Callable[..., Any]:
        def waits(path: str, **options: Any) -> Any:
            if path.endswith(f"8{suffix}") and threading.current_thread() is not threading.main_thread():
                reached.set()
                assert may_go_on.wait(10)
            return action(path, **options)

        return waits

    monkeypatch.setattr(driver.fs, "read_bytes", wait_before(read_bytes))
    monkeypatch.setattr(driver.fs, "open", wait_before(open_file))
    for segment in log.segments:
        segment.release()
    with ThreadPoolExecutor(1) as thread:
        loading = thread.submit(log.load_producers)
        assert reached.wait(10)
        log.truncate_to(Offset(5))
        may_go_on.set()
        loading.result()
    assert problems == []
    assert log.has_stale_producers
    assert log.producer_state.producers[7].last_sequence == 4
    log.release()


def test_a_file_that_is_missing_without_another_truncation_is_an_error(filled: PartitionLog) -> None:
    problems: list[OSError] = []
    filled.on_error = problems.append
    filled.truncate_to(Offset(70))
    for segment in filled.segments:
        segment.release()
        Path(segment.path).unlink()
    with pytest.raises(KafkaStorageError):
        filled.load_producers()
    assert isinstance(problems[0], FileNotFoundError)
    assert filled.has_stale_producers
    filled.release()
