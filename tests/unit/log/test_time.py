import pytest
from tests.unit.log.driver import NOW_MS, LogDriver

from ottla.errors import CorruptMessage
from ottla.ids import LeaderEpoch, Offset
from ottla.log.partition_log import PartitionLog
from ottla.log.time_lookup import FoundOffset
from ottla.records.batch import Compression


@pytest.fixture(params=["open", "reopened", "recovered"])
def filled(request: pytest.FixtureRequest, driver: LogDriver) -> PartitionLog:
    """Batches of four records, 1 ms from record to record, 10 ms from batch to batch, some compressed."""
    log = driver.open(clean=True, segment_bytes=5000, index_interval_bytes=600)
    for number in range(60):
        driver.append(
            log, 4, timestamp_ms=NOW_MS + 10 * number, compression=Compression(number % 5), epoch=number // 30
        )
    if request.param == "reopened":
        return driver.reopen(log)
    if request.param == "recovered":
        return driver.crash(log)
    return log


def _found(log: PartitionLog, after_ms: int) -> FoundOffset | None:
    return log.offset_for_timestamp(NOW_MS + after_ms)


def test_first_record_at_or_after(filled: PartitionLog) -> None:
    assert len(filled.segments) > 2
    for number in range(60):
        epoch = LeaderEpoch(number // 30)
        for delta in range(4):
            assert _found(filled, 10 * number + delta) == (4 * number + delta, NOW_MS + 10 * number + delta, epoch)
        if number < 59:
            between = _found(filled, 10 * number + 7)
            assert between is not None
            assert between[:2] == (4 * number + 4, NOW_MS + 10 * number + 10)
    assert _found(filled, -1_000_000) == (0, NOW_MS, 0)
    assert _found(filled, 594) is None


def test_deleted_records_are_not_found(filled: PartitionLog) -> None:
    filled.high_watermark = filled.log_end_offset
    filled.delete_records_before(Offset(101))
    found = _found(filled, 0)
    assert found is not None
    assert found.offset == 101


def test_times_out_of_order(driver: LogDriver, log: PartitionLog) -> None:
    for later in (50, 10, 90, 20, 90):
        driver.append(log, timestamp_ms=NOW_MS + later)
    assert [getattr(_found(log, ms), "offset", None) for ms in (0, 11, 50, 51, 90, 91)] == [0, 0, 0, 2, 2, None]
    assert log.max_timestamp() == (2, NOW_MS + 90, 0)


def test_largest_timestamp(filled: PartitionLog, driver: LogDriver) -> None:
    assert filled.max_timestamp() == (239, NOW_MS + 593, 1)
    driver.append(filled, timestamp_ms=NOW_MS)
    assert filled.max_timestamp() == (239, NOW_MS + 593, 1)


def test_records_without_time(driver: LogDriver, log: PartitionLog) -> None:
    assert log.max_timestamp() is None
    assert _found(log, 0) is None
    driver.append(log, timestamp_ms=-1)
    assert log.max_timestamp() is None


def test_a_corrupt_batch_is_not_opened(driver: LogDriver, log: PartitionLog) -> None:
    driver.append(log)
    with open(log.segments[0].path, "r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff")
    with pytest.raises(CorruptMessage):
        _found(log, 0)
