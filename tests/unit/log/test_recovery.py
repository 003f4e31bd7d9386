import logging
import os
from pathlib import Path

import pytest
from tests.unit.log.driver import LogDriver, offsets, read, read_all

from ottla.errors import CorruptMessage
from ottla.log.partition_log import PartitionLog
from ottla.records.record import Record, encode_batch


def _size_of_one(log: PartitionLog, batches: int) -> int:
    return log.size_bytes // batches


def _flip(path: str, position: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.mark.parametrize("torn", [1, 11, 27, 60, 61, 100, 168])
def test_a_torn_tail_is_cut_off(driver: LogDriver, log: PartitionLog, torn: int) -> None:
    driver.fill(log, 20, count=1)
    size = _size_of_one(log, 20)
    path = log.segments[-1].path
    with open(path, "r+b") as file:
        file.truncate(20 * size - size + torn)
    log = driver.crash(log)
    assert log.log_end_offset == 19
    assert Path(path).stat().st_size == 19 * size
    driver.append(log)
    assert offsets(read_all(log)) == list(range(20))
    log.release()


def test_garbage_and_zeros_past_the_end_are_cut_off(driver: LogDriver, log: PartitionLog) -> None:
    driver.fill(log, 10, count=1)
    for tail in (bytes(5000), b"\x02" * 300, b"\xff" * 61):
        with open(log.segments[-1].path, "ab") as file:
            file.write(tail)
        log = driver.crash(log)
        assert log.log_end_offset == 10
        assert offsets(read_all(log)) == list(range(10))


def test_nothing_synced_is_cut_off(driver: LogDriver, log: PartitionLog, caplog: pytest.LogCaptureFixture) -> None:
    driver.fill(log, 40, count=1)
    size = _size_of_one(log, 40)
    path = log.segments[-1].path
    log.flush()
    _flip(path, 10 * size + 70)
    log = driver.crash(log)
    assert log.log_end_offset == 40
    assert Path(path).stat().st_size == 40 * size
    with pytest.raises(CorruptMessage, match=f"{path} at position {10 * size}"):
        read(log, 10)
    assert offsets(read_all(log, start=11)) == list(range(11, 40))
    log.release()


@pytest.mark.parametrize("field", [8, 16], ids=["length", "magic"])
def test_a_damaged_header_below_the_recovery_point_is_kept_and_passed(
    driver: LogDriver, log: PartitionLog, caplog: pytest.LogCaptureFixture, field: int
) -> None:
    driver.fill(log, 40, count=1)
    size = _size_of_one(log, 40)
    path = log.segments[-1].path
    log.flush()
    driver.fill(log, 5, count=1)
    _flip(path, 10 * size + field)
    log = driver.crash(log)
    assert log.log_end_offset == 45
    assert Path(path).stat().st_size == 45 * size
    assert f"position {10 * size}" in caplog.text
    with pytest.raises(CorruptMessage):
        read(log, 10)
    assert offsets(read_all(log, start=41)) == list(range(41, 45))
    driver.append(log)
    assert offsets(read_all(log, start=44)) == [44, 45]
    log.release()


def test_damage_with_nothing_behind_it_starts_a_new_segment(driver: LogDriver, log: PartitionLog) -> None:
    driver.fill(log, 10, count=1)
    size = _size_of_one(log, 10)
    path = log.segments[-1].path
    log.flush()
    _flip(path, 9 * size + 16)
    log = driver.crash(log)
    assert Path(path).stat().st_size == 10 * size
    assert log.log_end_offset == 10
    driver.append(log)
    assert offsets(read_all(log, start=10)) == [10]
    with pytest.raises(CorruptMessage):
        read(log, 9)
    log.release()


def test_corruption_above_the_recovery_point_cuts_the_log_there(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_bytes=2000)
    driver.fill(log, 30, count=1)
    size = log.segments[0].size // 11
    log.flush()
    driver.fill(log, 30, count=1)
    assert len(log.segments) == 6
    victim = log.segments[3]
    _flip(victim.path, 4 * size + 70)
    base = victim.base_offset
    log = driver.crash(log)
    assert log.log_end_offset == base + 4
    assert len(log.segments) == 4
    assert offsets(read_all(log)) == list(range(base + 4))
    assert not any(int(name[:20]) > base for name in _files(driver.directory) if name.endswith(".log"))
    driver.fill(log, 3)
    log = driver.crash(log)
    assert log.log_end_offset == base + 10
    log.release()


@pytest.mark.parametrize("number", [12, 19])
@pytest.mark.parametrize("byte", range(8))
def test_a_batch_that_was_not_synced_and_skips_offsets_is_damaged(driver: LogDriver, number: int, byte: int) -> None:
    """A bit of its base offset has flipped, which no checksum covers: the records would be found elsewhere."""
    log = driver.open(clean=True)
    driver.fill(log, 10, count=1)
    log.flush()
    driver.fill(log, 10, count=1)
    size = _size_of_one(log, 20)
    _flip(log.segments[-1].path, number * size + byte)
    log = driver.crash(log)
    assert offsets(read_all(log)) == list(range(number))
    log.release()


def test_offsets_that_compaction_skips_are_no_damage(driver: LogDriver) -> None:
    log = driver.open(clean=True, compact=True)
    driver.fill(log, 10, count=1)
    size = _size_of_one(log, 10)
    _flip(log.segments[-1].path, 8 * size + 7)
    _flip(log.segments[-1].path, 9 * size + 6)
    log = driver.crash(log)
    assert log.log_end_offset == 9 + 256 + 1
    log.release()


@pytest.mark.parametrize(("recovery_point", "start"), [(0, 4), (20, 20)])
def test_an_epoch_behind_a_gap_of_compaction_begins_as_early_as_it_may(
    driver: LogDriver, recovery_point: int, start: int
) -> None:
    """What began below the recovery point was synced, with its start."""
    log = driver.open(clean=True, compact=True)
    driver.fill(log, 4, count=1)
    log.flush()
    log.append_as_follower(encode_batch([Record(31, 1, None, b"v")], leader_epoch=7))
    log = driver.crash(log, recovery_point=recovery_point)
    assert log.leader_epochs.entries() == [(0, 0), (7, start)]
    assert log.leader_epochs.gaps == [(7, start, 31)]
    log.release()


@pytest.mark.parametrize("is_synced", [True, False])
def test_an_empty_segment_does_not_hide_that_the_end_of_a_compacted_log_is_lost(
    driver: LogDriver, is_synced: bool
) -> None:
    log = driver.open(clean=True, compact=True)
    driver.fill(log, 10, count=1)
    size = _size_of_one(log, 10)
    path = Path(log.segments[-1].path)
    log.roll()
    os.truncate(path, 9 * size)
    log = driver.crash(log, recovery_point=10 if is_synced else 9)
    assert log.log_end_offset == (10 if is_synced else 9)
    log.release()


def test_a_second_recovery_changes_nothing(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_bytes=3000, index_interval_bytes=500)
    driver.fill(log, 60, count=1, producer_id=-1)
    log = driver.crash(log, recovery_point=20)
    first = _files(driver.directory)
    log = driver.crash(log, recovery_point=20)
    assert _files(driver.directory) == first
    log.release()


def test_recovered_indexes_equal_those_of_a_clean_shutdown(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_bytes=20_000, index_interval_bytes=300)
    driver.fill(log, 200, count=1)
    log.flush()
    crashed = driver.crash(log, recovery_point=100)
    recovered = _files(driver.directory)
    crashed.release()
    for name in list(recovered):
        if name.endswith((".index", ".timeindex")):
            (driver.directory / name).unlink()
    driver.open(recovery_point=0).close()
    rebuilt = _files(driver.directory)
    for name, content in recovered.items():
        if name.endswith((".index", ".timeindex", ".log")):
            assert rebuilt[name] == content, name


def test_a_wrecked_index_is_not_trusted(driver: LogDriver) -> None:
    log = driver.open(clean=True, index_interval_bytes=200)
    driver.fill(log, 600, count=1)
    log.flush()
    log.segments[0].offset_index.store()
    index = Path(log.segments[0].offset_index.path)
    good = index.read_bytes()
    for wreck in (bytes(len(good)), good[:400] + bytes(400) + good[800:], b"\x7f" * len(good), good + bytes(4096)):
        index.write_bytes(wreck)
        log = driver.crash(log)
        assert offsets(read_all(log)) == list(range(600))
        for offset in range(0, 600, 37):
            assert offsets(read_all(log, start=offset))[0] == offset
        log.segments[0].offset_index.store()
        assert index.read_bytes()[: len(good) // 2] == good[: len(good) // 2]
    log.release()


def test_missing_indexes_are_built_again_even_after_a_clean_shutdown(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_bytes=5000, index_interval_bytes=300)
    driver.fill(log, 100, count=1)
    log.close()
    before = _files(driver.directory)
    for path in [*driver.directory.glob("*.index"), *driver.directory.glob("*.timeindex")]:
        path.unlink()
    log = driver.open(clean=True, recovery_point=100)
    assert offsets(read_all(log)) == list(range(100))
    log.close()
    after = _files(driver.directory)
    assert {name for name in after if "index" in name} == {name for name in before if "index" in name}
    for name, content in before.items():
        assert after[name] == content, name


def test_only_what_lies_past_the_recovery_point_is_read(driver: LogDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    log = driver.open(clean=True, index_interval_bytes=4096)
    driver.fill(log, 3000, count=1, value_bytes=1000)
    log.flush()
    log.segments[0].offset_index.store()
    log._producers.write(log.producer_state, log.log_end_offset, log.segments[-1])
    driver.fill(log, 20, count=1, value_bytes=1000)
    read_bytes = 0
    original = type(log.segments[0].file).read

    def counted(self: object, position: int, size: int) -> object:
        nonlocal read_bytes
        read_bytes += size
        return original(self, position, size)  # type: ignore[arg-type] # it is one

    monkeypatch.setattr(type(log.segments[0].file), "read", counted)
    log = driver.crash(log)
    assert log.log_end_offset == 3020
    assert read_bytes < 150_000, "of 3 MB, only the unsynced end and some headers are needed"
    log.release()


def test_interrupted_deletions_and_compactions_are_finished(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_bytes=2000)
    driver.fill(log, 40, count=1)
    bases = [segment.base_offset for segment in log.segments]
    log.close()
    directory = driver.directory
    first, second = f"{bases[0]:020d}", f"{bases[1]:020d}"
    third = f"{bases[2]:020d}"
    content = (directory / f"{first}.log").read_bytes() + (directory / f"{second}.log").read_bytes()
    (directory / f"{first}.log.swap").write_bytes(content)  # two segments became one; neither was removed yet
    (directory / f"{first}.index.swap").write_bytes(b"")
    (directory / f"{first}.timeindex.swap").write_bytes(b"")
    (directory / f"{third}.log.cleaned").write_bytes(b"half")
    (directory / f"{third}.log.deleted").write_bytes(b"gone")
    log = driver.open(clean=True, recovery_point=40)
    assert [segment.base_offset for segment in log.segments] == [bases[0], *bases[2:]]
    assert offsets(read_all(log)) == list(range(40))
    assert not [name for name in _files(directory) if name.endswith((".swap", ".cleaned", ".deleted"))]
    log.release()


def test_orphans_are_removed(driver: LogDriver, log: PartitionLog, caplog: pytest.LogCaptureFixture) -> None:
    driver.fill(log, 5)
    log.close()
    (driver.directory / f"{99:020d}.index").write_bytes(bytes(16))
    caplog.set_level(logging.WARNING)
    log = driver.open(clean=True, recovery_point=10)
    assert not (driver.directory / f"{99:020d}.index").exists()
    assert "belongs to no segment" in caplog.text
    log.release()


def test_a_log_that_ends_before_its_start_begins_anew(driver: LogDriver, log: PartitionLog) -> None:
    driver.fill(log, 5)
    log.close()
    log = driver.open(clean=True, recovery_point=10, log_start=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    driver.append(log)
    assert offsets(read_all(log)) == [50]
    log.release()


def test_producer_state_after_a_crash_equals_the_one_before(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_bytes=4000)
    sequences = dict.fromkeys(range(5), 0)
    for number in range(120):
        producer = number % 5
        driver.append(log, 2, producer_id=producer, producer_epoch=0, base_sequence=sequences[producer])
        sequences[producer] += 2
    log.flush()
    expected = {pid: (entry.epoch, entry.last_sequence) for pid, entry in log.producer_state.producers.items()}
    for spoil in (None, "latest", "all"):
        snapshots = sorted(driver.directory.glob("*.snapshot"))
        if spoil == "latest":
            snapshots[-1].write_bytes(b"\0\1garbage!")
        elif spoil == "all":
            for path in snapshots:
                path.unlink()
        log = driver.crash(log, recovery_point=0 if spoil == "all" else None)
        found = {pid: (entry.epoch, entry.last_sequence) for pid, entry in log.producer_state.producers.items()}
        assert found == expected
    log.release()


@pytest.mark.parametrize("content", ["nonsense", "0\n5\n1 1\n", ""])
def test_a_wrecked_epoch_file_is_built_again(driver: LogDriver, log: PartitionLog, content: str) -> None:
    driver.fill(log, 3, epoch=2)
    driver.fill(log, 3, epoch=5)
    log.close()
    path = driver.directory / "leader-epoch-checkpoint"
    before = path.read_text()
    path.write_text(content)
    log = driver.open(clean=True, recovery_point=12)
    if content:
        assert log.leader_epochs.entries() == [(2, 0), (5, 6)]
        log.flush()
        assert path.read_text() == before
    log.release()


def test_producers_are_noted_between_segments(
    driver: LogDriver, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.log.producer_snapshots._SNAPSHOT_EVERY_BYTES", 1000)
    for number in range(60):
        driver.append(log, 1, producer_id=4, producer_epoch=0, base_sequence=number)
        log.flush()
        log.snapshot_producers_if_due()
    snapshots = sorted(int(path.stem) for path in driver.directory.glob("*.snapshot"))
    assert len(snapshots) == 2
    assert snapshots[0] > 40
    log = driver.crash(log)
    assert log.producer_state.producers[4].last_sequence == 59
    log = driver.reopen(log)
    assert log.producer_state.producers[4].last_sequence == 59
    log.release()


def test_a_batch_of_an_earlier_epoch_than_the_one_before_it_is_cut_off_if_it_was_not_synced(
    driver: LogDriver, log: PartitionLog
) -> None:
    """No checksum covers the leader epoch."""
    driver.fill(log, 10, count=1)
    driver.fill(log, 10, count=1, epoch=5)
    size = _size_of_one(log, 20)
    path = log.segments[-1].path
    _flip(path, 15 * size + 15)  # 5 becomes 4
    log = driver.crash(log)
    assert log.log_end_offset == 15
    assert log.leader_epochs.entries()[-1] == (5, 10)
    log.release()
