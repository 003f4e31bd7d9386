"""What a log directory says of the epoch in which a broker last had it, and had lost nothing."""

import errno
from pathlib import Path

import pytest
from tests.unit.log.driver import SetClock

from ottla.config.log import LogConfig
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicName, TopicPartition
from ottla.log.broker_epochs import BOOT, UNKNOWN_EPOCH, killed_epoch, note
from ottla.log.directories import LogDirectories
from ottla.log.fs import RealFileSystem
from ottla.records.record import Record, encode_batch
from ottla.testing.faulty_fs import FaultyFS, Operation, Survival

PATHS = (Path("/a"), Path("/b"))


def found(fs: FaultyFS) -> LogDirectories:
    """The directories at the start of a process."""
    directories = LogDirectories(PATHS, fs=fs, clock=SetClock())
    directories.acquire(cluster_id="c", node_id=BrokerId(1))
    directories.load_all(lambda _topic: LogConfig())
    return directories


def used(fs: FaultyFS, epoch: int = 7) -> LogDirectories:
    """A broker has them in this epoch."""
    directories = found(fs)
    directories.note_broker_epoch(epoch)
    return directories


@pytest.fixture
def fs() -> FaultyFS:
    made = FaultyFS(seed=1)
    for path in PATHS:
        made.make_directory(str(path))
    made.sync_directory("/")
    return made


def test_a_clean_shutdown_says_its_epoch(fs: FaultyFS) -> None:
    used(fs).close()
    fs.crash()
    assert found(fs).previous_broker_epoch == 7


def test_a_process_that_shut_down_before_it_was_registered_says_the_epoch_of_the_one_before(fs: FaultyFS) -> None:
    used(fs)
    fs.end_process()
    found(fs).close()
    assert found(fs).previous_broker_epoch == 7


def test_a_killed_process_has_lost_nothing(fs: FaultyFS) -> None:
    used(fs)
    fs.end_process()
    assert found(fs).previous_broker_epoch == 7
    fs.end_process()  # before it has another epoch
    assert found(fs).previous_broker_epoch == 7


@pytest.mark.parametrize("survival", list(Survival))
def test_a_machine_without_power_may_have(fs: FaultyFS, survival: Survival) -> None:
    used(fs)
    fs.crash(survival)
    assert found(fs).previous_broker_epoch == UNKNOWN_EPOCH
    fs.end_process()
    assert found(fs).previous_broker_epoch == UNKNOWN_EPOCH


def test_so_may_one_whose_disk_was_replaced(fs: FaultyFS) -> None:
    used(fs)
    fs.end_process()
    for name, is_directory, _ in fs.names("/b"):
        (fs.remove_tree if is_directory else fs.remove)(f"/b/{name}")
    assert found(fs).previous_broker_epoch == UNKNOWN_EPOCH


@pytest.mark.parametrize("is_clean", [True, False])
def test_so_may_one_whose_disk_has_failed(fs: FaultyFS, is_clean: bool) -> None:
    directories = used(fs)
    directories.directories[1].fail("EIO")
    if is_clean:
        directories.close()
    fs.end_process()
    assert found(fs).previous_broker_epoch == UNKNOWN_EPOCH


@pytest.mark.parametrize("registers", [True, False])
@pytest.mark.parametrize(("error", "expected"), [(errno.EIO, UNKNOWN_EPOCH), (errno.ENOSPC, 7)])
def test_so_may_one_whose_records_could_not_be_synced_as_it_shut_down(
    fs: FaultyFS, error: int, expected: int, *, registers: bool
) -> None:
    """The kernel drops what it could not write. On a full disk it has it, as long as the machine runs."""
    directories = used(fs)
    t0 = TopicPartition(TopicName("t"), PartitionId(0))
    log = directories.create_log(t0, None, LogConfig())
    directories.directories[0].prepare_checkpoints().write()
    log.append_as_leader(encode_batch([Record(0, 1, b"k", b"v")]), LeaderEpoch(5))
    if not registers:
        fs.end_process()
        directories = found(fs)
    fs.fail(Operation.SYNC, "*.log", error=error, times=None)
    directories.close()
    fs.heal()
    fs.end_process()
    if error == errno.EIO:
        fs.drop_caches()
    again = found(fs)
    assert again.previous_broker_epoch == expected
    kept = again.get(t0)
    assert kept is not None
    assert kept.log_end_offset == (0 if error == errno.EIO else 1)


@pytest.mark.parametrize("written", [b"", b"{", b"7", b'{"boot":"1"}', b'{"boot":"","brokerEpoch":7}'])
def test_what_is_not_understood_says_nothing(fs: FaultyFS, written: bytes) -> None:
    fs.write_bytes(f"/a/{BOOT}", written, sync=False)
    assert killed_epoch(fs, f"/a/{BOOT}") == UNKNOWN_EPOCH


def test_a_machine_that_does_not_say_when_it_started_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, path = RealFileSystem(), str(tmp_path / BOOT)
    monkeypatch.setattr("ottla.log.fs.BOOT_ID", str(tmp_path / "boot_id"))
    note(fs, path, 7)
    assert killed_epoch(fs, path) == UNKNOWN_EPOCH
    (tmp_path / "boot_id").write_text("one\n")
    note(fs, path, 7)
    assert killed_epoch(fs, path) == 7
    (tmp_path / "boot_id").write_text("another\n")
    assert killed_epoch(fs, path) == UNKNOWN_EPOCH
