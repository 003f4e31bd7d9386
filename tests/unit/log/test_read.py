import os
import random
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.driver import Disk, LogDriver, offsets, read, read_all

from ottla.errors import CorruptMessage, OffsetOutOfRange
from ottla.log import segment
from ottla.log.file_region import FileRegion
from ottla.log.partition_log import PartitionLog
from ottla.log.reader import ColdRead
from ottla.log.segment_list import ReadResult
from ottla.records.batch import iter_batches


def _headers(result: ReadResult) -> list[tuple[int, int]]:
    return [(header.base_offset, header.last_offset) for header in iter_batches(result.data)]


@pytest.fixture(params=["fresh", "reopened", "recovered"])
def filled(request: pytest.FixtureRequest, driver: LogDriver) -> PartitionLog:
    """400 batches of 1 to 7 records in several segments, with an index entry for about every 1 KB."""
    log = driver.open(clean=True, segment_bytes=40_000, index_interval_bytes=1000)
    sizes = random.Random(5)
    for _ in range(400):
        driver.append(log, sizes.randint(1, 7), value_bytes=sizes.randint(0, 400))
    assert len(log.segments) > 5
    match request.param:
        case "reopened":
            log = driver.reopen(log)
        case "recovered":
            log = driver.crash(log, recovery_point=700)
    return log


@pytest.mark.parametrize("max_bytes", [1, 500, 4096, 10_000, 1 << 20])
def test_everything_is_read_once(filled: PartitionLog, max_bytes: int) -> None:
    assert offsets(read_all(filled, max_bytes=max_bytes)) == list(range(filled.log_end_offset))


def test_a_read_begins_with_the_batch_that_holds_the_offset(filled: PartitionLog) -> None:
    for offset in range(0, filled.log_end_offset, 3):
        first, last = _headers(read(filled, offset, 1))[0]
        assert first <= offset <= last


def test_no_batch_reaches_the_upper_bound(filled: PartitionLog) -> None:
    ends = [last + 1 for _, last in _headers_of_all(filled)]
    for upper in ends[::7]:
        start = max(0, upper - 20)
        seen = _headers(read(filled, start, upper=upper))
        assert seen
        assert all(last < upper for _, last in seen)
    assert read(filled, 50, upper=50).data == b""
    assert read(filled, 60, upper=50).data == b""


def _headers_of_all(log: PartitionLog) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    offset = 0
    while offset < log.log_end_offset:
        found += _headers(read(log, offset))
        offset = found[-1][1] + 1
    return found


def test_max_bytes_is_kept_but_for_one_message(filled: PartitionLog) -> None:
    for max_bytes in (0, 61, 300, 5000):
        for offset in range(0, filled.log_end_offset, 11):
            result = filled.read(offset, max_bytes, upper_bound=filled.log_end_offset, min_one_message=False)
            result = result.run() if isinstance(result, ColdRead) else result
            assert len(result.data) <= max_bytes
            one = read(filled, offset, max_bytes)
            assert len(_headers(one)) >= 1
            if len(one.data) > max_bytes:
                assert len(_headers(one)) == 1


def test_reads_outside_the_log_are_refused(driver: LogDriver, log: PartitionLog) -> None:
    driver.fill(log, 10)
    log.high_watermark = log.log_end_offset
    log.delete_records_before(log.log_end_offset)
    for offset in (-1, 19, 21):
        with pytest.raises(OffsetOutOfRange):
            read(log, offset)
    assert read(log, 20).data == b""


def test_the_end_of_the_log_is_empty(driver: LogDriver, log: PartitionLog) -> None:
    assert read(log, 0).data == b""
    driver.append(log, 2)
    assert read(log, 2).data == b""


def test_gaps_are_passed_over(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_bytes=1000)
    for base in (10, 11, 500, 900):
        batch = bytearray(driver.batch(1, value_bytes=500))
        batch[0:8] = base.to_bytes(8, "big")
        log.append_as_follower(batch)
    for at, expected in ((0, 10), (10, 10), (12, 500), (499, 500), (501, 900), (900, 900)):
        assert _headers(read(log, at, 1))[0][0] == expected
    log.release()


def test_cold_data_is_read_in_a_thread(driver: LogDriver, disk: Disk, log: PartitionLog) -> None:
    driver.fill(log, 50)
    disk.cold = True
    result = log.read(10, 2000, upper_bound=log.log_end_offset, min_one_message=True)
    assert isinstance(result, ColdRead)
    assert _headers(result.run())[0] == (10, 11)
    assert offsets(read_all(log)) == list(range(100))


def test_a_cold_read_outlives_the_deletion_of_its_segment(driver: LogDriver, disk: Disk) -> None:
    log = driver.open(clean=True, segment_bytes=2000, retention_bytes=3000)
    driver.fill(log, 50)
    log.high_watermark = log.log_end_offset
    disk.cold = True
    cold = log.read(0, 2000, upper_bound=log.log_end_offset, min_one_message=True)
    assert isinstance(cold, ColdRead)
    deletion = log.apply_retention(driver.clock.ms)
    assert deletion is not None
    deletion.remove()
    with pytest.raises(OffsetOutOfRange):
        cold.run()
    log.release()


# --- bit flips ---------------------------------------------------------------------------------------------------


def _flip(log: PartitionLog, segment: int, position: int) -> str:
    path = log.segments[segment].path
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))
    return path


def test_a_flipped_bit_is_never_served_after_a_restart(driver: LogDriver, log: PartitionLog) -> None:
    driver.fill(log, 30, count=1)
    size = log.size_bytes // 30
    log = driver.reopen(log)
    path = _flip(log, 0, 10 * size + 80)
    assert [first for first, _ in _headers(read(log, 0))] == list(range(10))
    with pytest.raises(CorruptMessage, match=rf"{path} at position {10 * size}"):
        read(log, 10)
    assert [first for first, _ in _headers(read(log, 11))] == list(range(11, 30))
    with pytest.raises(CorruptMessage):
        read(log, 10)


def test_a_bit_that_flips_on_the_disk_is_found_once_pages_were_dropped(
    driver: LogDriver, disk: Disk, log: PartitionLog
) -> None:
    driver.fill(log, 30, count=1)
    size = log.size_bytes // 30
    assert len(read(log, 0).data) == 30 * size
    _flip(log, 0, 5 * size + 70)
    disk.cold = True
    cold = log.read(5, 1 << 20, upper_bound=30, min_one_message=True)
    assert isinstance(cold, ColdRead)
    with pytest.raises(CorruptMessage):
        cold.run()
    disk.cold = False
    with pytest.raises(CorruptMessage):
        read(log, 5)
    assert len(_headers(read(log, 0))) == 5


def test_a_damaged_length_is_reported_and_passed_by_index(driver: LogDriver) -> None:
    log = driver.open(clean=True, index_interval_bytes=200)
    driver.fill(log, 60, count=1)
    size = log.size_bytes // 60
    log = driver.reopen(log)
    _flip(log, 0, 20 * size + 9)
    with pytest.raises(CorruptMessage, match=f"position {20 * size}"):
        read(log, 20)
    assert _headers(read(log, 40))[0] == (40, 40)


def test_intact_data_is_checked_only_once(driver: LogDriver, log: PartitionLog) -> None:
    driver.fill(log, 30, count=1)
    size = log.size_bytes // 30
    log = driver.reopen(log)
    read_all(log)
    segment = log.segments[0]
    assert segment.is_checked(0, segment.size)
    _flip(log, 0, 5 * size + 70)  # in memory, which no disk error does: shows that no CRC was computed again
    assert len(read(log, 0).data) == 30 * size


@pytest.mark.parametrize("max_bytes", [1, 500, 10_000, 1 << 20])
@pytest.mark.parametrize("step_bytes", [100, 3000, 1 << 20])
def test_what_is_checked_is_what_would_have_been_read(
    filled: PartitionLog, max_bytes: int, step_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps, whatever their size; large ranges stay in the file."""
    monkeypatch.setattr(segment, "_STEP_BYTES", step_bytes)
    end = filled.log_end_offset
    for offset in range(0, end, 23):
        whole = filled.read_blocking(offset, max_bytes, upper_bound=end, min_one_message=True)
        checked = filled.reader.check(offset, max_bytes, end, min_one_message=True)
        assert len(checked.data) == len(whole.data)
        assert checked.next_offset == _headers(whole)[-1][1] + 1
        assert isinstance(checked.data, FileRegion) or bytes(checked.data) == bytes(whole.data)
    nothing = filled.reader.check(0, 10, end, min_one_message=False)
    assert (bytes(nothing.data), nothing.next_offset) == (b"", -1)  # type: ignore[arg-type]


def test_a_corrupt_batch_ends_what_is_checked(driver: LogDriver) -> None:
    log = driver.open(clean=True)
    for _ in range(10):
        driver.append(log, 1, value_bytes=5000)
    log = driver.reopen(log)
    third = log.segments[0].position_of(3, blocking=True)
    log.segments[0].file.write(third + 100, b"flipped")
    found = log.reader.check(0, 1 << 20, 10, min_one_message=True)
    assert found.next_offset == 3
    with pytest.raises(CorruptMessage):
        log.reader.check(3, 1 << 20, 10, min_one_message=True)


def test_a_range_stays_that_of_its_file_when_the_segment_is_released_meanwhile(
    driver: LogDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention lets go of descriptors while a thread checks what is cold; their numbers are given out anew."""
    log = driver.open(clean=True)
    for _ in range(30):
        driver.append(log, 1, value_bytes=100_000)
    log.roll()
    driver.append(log, 1)
    log = driver.reopen(log)
    expected = log.read_blocking(0, 1000, upper_bound=30, min_one_message=True).data
    other = tmp_path / "other"
    other.write_bytes(b"SECRET! " * 500_000)
    taken: list[int] = []
    read_segment = segment.Segment.read

    def read_and_release(self: segment.Segment, *given: Any, **how: Any) -> Any:
        data = read_segment(self, *given, **how)
        if not taken:
            log.segments[0].release()
            taken.extend(os.open(other, os.O_RDONLY) for _ in range(8))
        return data

    monkeypatch.setattr(segment.Segment, "read", read_and_release)
    region = log.reader.check(0, 2_500_000, 30, min_one_message=True).data
    assert isinstance(region, FileRegion)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        region.send_to(ours.fileno(), 0)
        assert theirs.recv(1000) == bytes(expected)[:1000]
    for descriptor in taken:
        os.close(descriptor)
