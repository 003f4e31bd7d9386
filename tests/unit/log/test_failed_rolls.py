"""What a roll that a full disk has refused leaves behind."""

import errno
from pathlib import Path

import pytest
from tests.unit.log.cleaning import Cleaner, close_segment, contents, put
from tests.unit.log.driver import NOW_MS, TP, LogDriver, SetClock

from ottla.config.log import LogConfig
from ottla.errors import KafkaStorageError
from ottla.ids import Offset
from ottla.log.partition_log import PartitionLog
from ottla.testing.faulty_fs import FaultyFS, Operation

DIRECTORY = f"/data/{TP}"
COMPACTED = LogConfig(compact=True, delete=False)


def _open(fs: FaultyFS, *, recovery_point: int = 0, config: LogConfig = COMPACTED) -> PartitionLog:
    return PartitionLog.open(
        Path(DIRECTORY),
        TP,
        config,
        fs=fs,
        clock=SetClock(),
        clean_shutdown=False,
        recovery_point=Offset(recovery_point),
        log_start_offset=Offset(0),
    )


@pytest.fixture
def fs() -> FaultyFS:
    fs = FaultyFS()
    fs.make_directory(DIRECTORY)
    return fs


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.WRITE])
def test_a_refused_segment_leaves_no_files(fs: FaultyFS, suffix: str, operation: Operation) -> None:
    log = _open(fs)
    put(log, [("a", "1")], NOW_MS)
    fault = fs.fail(operation, f"{DIRECTORY}/{1:020d}{suffix}", error=errno.ENOSPC)
    with pytest.raises(KafkaStorageError, match="No space left"):
        log.roll()
    assert fault.hits == 1
    left = {name for name, _, _ in fs.names(DIRECTORY) if name.startswith(f"{1:020d}")}
    assert left <= {f"{1:020d}.snapshot"}
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 1]


@pytest.mark.parametrize("recovery_point", [0, 1, 2, 3, 4, 5])
def test_an_empty_segment_within_a_compacted_one_is_removed(fs: FaultyFS, recovery_point: int) -> None:
    """Its removal was lost in a crash; since then compaction has left a gap in the segment that it stands in."""
    log = _open(fs)
    for number in range(4):
        put(log, [("a", str(number))], NOW_MS)
    close_segment(log)
    put(log, [("b", "4")], NOW_MS)
    assert Cleaner(fs, SetClock()).run(log)
    before = contents(log)
    assert before == [(3, "a", "3"), (4, "b", "4")]
    log.release()
    for suffix in (".log", ".index", ".timeindex"):
        fs.write_bytes(f"{DIRECTORY}/{2:020d}{suffix}", b"", sync=False)
    log = _open(fs, recovery_point=recovery_point)
    assert contents(log) == before
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    log.release()


def test_an_empty_last_segment_below_the_recovery_point_is_removed_from_a_compacted_log(fs: FaultyFS) -> None:
    log = _open(fs)
    for number in range(4):
        put(log, [("a", str(number))], NOW_MS)
    close_segment(log)
    assert Cleaner(fs, SetClock()).run(log)
    log.release()
    for suffix in (".log", ".index", ".timeindex"):
        fs.write_bytes(f"{DIRECTORY}/{2:020d}{suffix}", b"", sync=False)
        fs.remove(f"{DIRECTORY}/{4:020d}{suffix}")
    log = _open(fs, recovery_point=4)
    assert (log.log_end_offset, contents(log)) == (4, [(3, "a", "3")])
    log.release()


def test_an_empty_last_segment_is_kept_where_a_base_offset_in_doubt_leads_past_it(driver: LogDriver) -> None:
    """Nothing but an offset that no checksum covers speaks against it, and what lies behind it was not synced."""
    log = driver.open(clean=True, compact=True)
    driver.fill(log, 2, count=1)
    log.roll()
    path = Path(log.segments[0].path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 6] ^= 1  # 256 is added to the second batch's base offset
    path.write_bytes(data)
    log = driver.crash(log, recovery_point=2)
    assert log.log_end_offset == 2
    log.release()


@pytest.mark.parametrize("recovery_point", [0, 1, 2])
def test_an_empty_last_segment_is_removed_where_the_one_before_ends_torn(
    driver: LogDriver, recovery_point: int
) -> None:
    """Else what lies past its base offset would be read, and written a second time behind it."""
    log = driver.open()
    driver.fill(log, 4, count=1)
    path = Path(log.segments[0].path)
    whole = path.read_bytes()
    driver.crash(log).release()
    path.write_bytes(whole[:-1])
    for suffix in (".log", ".index", ".timeindex"):
        path.with_name(f"{2:020d}{suffix}").write_bytes(b"")
    log = driver.crash(log, recovery_point=recovery_point)
    assert (log.log_end_offset, [segment.base_offset for segment in log.segments]) == (3, [0])
    log.release()
