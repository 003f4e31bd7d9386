import contextlib
import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.unit.log.driver import Disk, SetClock

from ottla.config.log import LogConfig
from ottla.errors import InconsistentTopicId, InvalidConfig, KafkaStorageError
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicId, TopicName, TopicPartition
from ottla.log import checkpoints, meta_properties
from ottla.log.directories import LogDirectories
from ottla.log.directory import LogDirectory
from ottla.log.fs import FileSystem, RealFileSystem
from ottla.log.refill_marks import MARK, Refill
from ottla.records.record import Record, encode_batch
from ottla.testing.faulty_fs import FaultyFS, Operation

NODE = BrokerId(4)
CLUSTER = "some-cluster"
CONFIG = LogConfig()


def _tp(number: int, topic: str = "some-topic") -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionId(number))


def _open(*paths: Path, fs: FileSystem | None = None) -> LogDirectories:
    directories = LogDirectories(paths, fs=fs or RealFileSystem(), clock=SetClock())
    directories.acquire(cluster_id=CLUSTER, node_id=NODE)
    directories.load_all(lambda topic: CONFIG)
    return directories


def _batch() -> bytearray:
    return encode_batch([Record(0, 1, b"k", b"v"), Record(1, 1, b"k", b"v")])


def test_logs_come_back(tmp_path: Path) -> None:
    topic_id = TopicId(uuid4())
    directories = _open(tmp_path)
    assert not directories.directories[0].was_clean
    log = directories.create_log(_tp(0), topic_id, CONFIG)
    log.append_as_leader(_batch(), LeaderEpoch(3))
    log.high_watermark = Offset(1)
    directories.close()
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nsome-topic 0 2\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\nsome-topic 0 1\n"
    again = _open(tmp_path)
    assert again.directories[0].was_clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    found = again.get(_tp(0))
    assert found is not None
    assert (found.log_end_offset, found.high_watermark, found.recovery_point) == (2, 1, 2)
    assert found.topic_id == topic_id
    assert found.leader_epochs.entries() == [(3, 0)]
    again.close()


CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


def test_closing_twice_changes_nothing(tmp_path: Path) -> None:
    directories = _open(tmp_path)
    log = directories.create_log(_tp(0), None, CONFIG)
    log.append_as_leader(_batch(), LeaderEpoch(0))
    log.high_watermark = Offset(2)
    log.delete_records_before(Offset(1))
    directories.close()
    before = [(tmp_path / name).read_text() for name in CHECKPOINTS]
    assert before[1] == "0\n1\nsome-topic 0 1\n"
    directories.close()
    assert [(tmp_path / name).read_text() for name in CHECKPOINTS] == before


def test_directories_can_be_unloaded_and_loaded_again_under_one_lock(tmp_path: Path) -> None:
    directories = _open(tmp_path)
    log = directories.create_log(_tp(0), TopicId(uuid4()), CONFIG)
    log.append_as_leader(_batch(), LeaderEpoch(3))
    log.high_watermark = Offset(2)
    directories.unload()
    assert directories.get(_tp(0)) is None
    with pytest.raises(KafkaStorageError):
        LogDirectories([tmp_path], fs=RealFileSystem(), clock=SetClock()).lock()
    directories.acquire(cluster_id=CLUSTER, node_id=NODE)
    assert directories.directories[0].was_clean
    again = directories.load_all(lambda topic: CONFIG)[_tp(0)]
    assert (again.log_end_offset, again.high_watermark) == (2, 2)
    directories.close()


def test_the_directories_of_a_broker_that_has_left_zookeeper_are_those_of_a_node_of_a_quorum(tmp_path: Path) -> None:
    fs = RealFileSystem()
    LogDirectory(tmp_path, fs=fs, clock=SetClock()).acquire(cluster_id=CLUSTER, node_id=NODE, zookeeper=True)
    before = meta_properties.read(fs, str(tmp_path))
    for _ in range(2):
        meta_properties.leave_zookeeper(fs, str(tmp_path))
        found = meta_properties.read(fs, str(tmp_path))
        assert found == {
            "version": "1",
            "cluster.id": CLUSTER,
            "node.id": "4",
            "directory.id": before["directory.id"],
        }


def test_a_start_that_fails_before_loading_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    directories = _open(tmp_path)
    log = directories.create_log(_tp(0), None, CONFIG)
    log.append_as_leader(_batch(), LeaderEpoch(0))
    log.flush()
    log.high_watermark = Offset(2)
    log.delete_records_before(Offset(1))
    directories.directories[0].prepare_checkpoints().write()
    before = [(tmp_path / name).read_text() for name in CHECKPOINTS]
    _forget(directories)
    given_up = LogDirectories([tmp_path], fs=RealFileSystem(), clock=SetClock())
    given_up.acquire(cluster_id=CLUSTER, node_id=NODE)
    given_up.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert [(tmp_path / name).read_text() for name in CHECKPOINTS] == before
    _open(tmp_path).close()


def test_what_is_known_of_a_partition_that_cannot_be_opened_is_kept(tmp_path: Path) -> None:
    directories = _open(tmp_path)
    for number in range(2):
        log = directories.create_log(_tp(number), None, CONFIG)
        log.append_as_leader(_batch(), LeaderEpoch(0))
        log.high_watermark = Offset(2)
        log.delete_records_before(Offset(1))
    directories.close()
    before = [(tmp_path / name).read_text() for name in CHECKPOINTS]
    metadata = tmp_path / "some-topic-1" / "partition.metadata"
    metadata.write_text("nonsense")
    again = _open(tmp_path)
    assert set(again.directories[0].logs) == {_tp(0)}
    with pytest.raises(KafkaStorageError, match="could not be opened"):
        again.create_log(_tp(1), None, CONFIG)
    again.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert [sorted((tmp_path / name).read_text().splitlines()) for name in CHECKPOINTS] == [
        sorted(text.splitlines()) for text in before
    ]


def test_a_log_that_could_not_be_opened_for_lack_of_room_is_opened_later() -> None:
    """With all that the start would have read of it: its high watermark, and that it is not filled again yet."""
    files = FaultyFS()
    files.make_directory("/data")
    directories = _open(Path("/data"), fs=files)
    log = directories.create_log(_tp(0), None, CONFIG, refill=Refill([BrokerId(7)]))
    log.append_as_leader(_batch(), LeaderEpoch(0))
    log.high_watermark = Offset(2)
    directories.close()
    files.fail(Operation.OPEN, "*/some-topic-0/*.log", error=errno.EMFILE, times=2)
    again = _open(Path("/data"), fs=files)
    directory = again.directories[0]
    assert again.lacking_to_open(_tp(0)) is directory
    assert again.refilling == {}
    with pytest.raises(KafkaStorageError, match=r"could not be opened: .*Too many open files") as refused:
        again.create_log(_tp(0), None, CONFIG)
    assert isinstance(refused.value.__cause__, OSError)
    with pytest.raises(OSError, match="Too many open files"):
        directory.open(_tp(0), CONFIG)
    directory.take_reopened(directory.open(_tp(0), CONFIG))
    assert (directory.logs[_tp(0)].log_end_offset, directory.logs[_tp(0)].high_watermark) == (2, 2)
    assert again.refilling == {_tp(0): Refill({BrokerId(7)})}
    assert again.lacking_to_open(_tp(0)) is None
    again.close()
    assert files.exists("/data/.kafka_cleanshutdown")


def test_what_could_not_be_opened_is_deleted_with_its_topic() -> None:
    files = FaultyFS()
    files.make_directory("/data")
    directories = _open(Path("/data"), fs=files)
    directories.create_log(_tp(0), None, CONFIG).append_as_leader(_batch(), LeaderEpoch(0))
    directories.close()
    files.fail(Operation.OPEN, "*/some-topic-0/*.log", error=errno.ENOSPC, times=2)
    again = _open(Path("/data"), fs=files)
    late = again.directories[0]
    with pytest.raises(OSError, match="No space left"):
        late.open(_tp(0), CONFIG)
    opened = late.open(_tp(0), CONFIG)
    again.delete_log(_tp(0))
    with pytest.raises(KafkaStorageError):  # a thread has opened it meanwhile
        late.take_reopened(opened)
    assert late.remove_deleted() == 1
    again.create_log(_tp(0), TopicId(uuid4()), CONFIG)
    again.close()
    assert files.exists("/data/.kafka_cleanshutdown")


def test_what_could_not_be_opened_makes_way_for_another_topic_of_that_name(caplog: pytest.LogCaptureFixture) -> None:
    """Its topic was deleted while the broker was down, so that no request to delete the log has come."""
    files = FaultyFS()
    files.make_directory("/data")
    directories = _open(Path("/data"), fs=files)
    deleted, new = TopicId(uuid4()), TopicId(uuid4())
    for number in range(2):
        log = directories.create_log(_tp(number), deleted, CONFIG)
        log.append_as_leader(_batch(), LeaderEpoch(0))
        log.high_watermark = Offset(2)
    directories.close()
    files.fail(Operation.OPEN, "*/some-topic-?/*.log", error=errno.EIO, times=2)
    again = _open(Path("/data"), fs=files)
    with pytest.raises(KafkaStorageError, match="could not be opened"):
        again.create_log(_tp(0), deleted, CONFIG)
    assert again.create_log(_tp(0), new, CONFIG).log_end_offset == 0
    (stray,) = [name for name, _, _ in files.names("/data") if name.endswith("-stray")]
    assert f"some-topic-0 is of another topic, which is gone; its files are kept in /data/{stray}" in caplog.text
    assert again.begin_log(_tp(1), new, CONFIG)[0].has_unopened(_tp(1)) is False
    _forget(again)
    last = _open(Path("/data"), fs=files)
    assert last.directories[0].logs[_tp(0)].high_watermark == 0, "not that of the deleted topic"


def test_no_other_attempt_is_made_to_open_a_log_that_is_damaged(tmp_path: Path) -> None:
    directories = _open(tmp_path)
    directories.create_log(_tp(0), TopicId(uuid4()), CONFIG)
    directories.close()
    (tmp_path / "some-topic-0" / "partition.metadata").write_text("nonsense")
    again = _open(tmp_path)
    assert again.lacking_to_open(_tp(0)) is None
    again.close()


def test_the_names_of_the_files(tmp_path: Path) -> None:
    directories = _open(tmp_path)
    log = directories.create_log(_tp(7), TopicId(UUID(int=1)), CONFIG)
    assert [path.name for path in (tmp_path / "some-topic-7").iterdir()] == ["partition.metadata"]
    log.append_as_leader(_batch(), LeaderEpoch(0))
    directories.close()
    assert {path.name for path in (tmp_path / "some-topic-7").iterdir()} == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000002.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert (tmp_path / "some-topic-7" / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    )
    properties = dict(line.split("=") for line in (tmp_path / "meta.properties").read_text().splitlines())
    assert (properties["version"], properties["cluster.id"], properties["node.id"]) == ("1", CLUSTER, "4")
    assert len(properties["directory.id"]) == 22


def test_the_owner_is_checked(tmp_path: Path) -> None:
    _open(tmp_path).close()
    before = (tmp_path / "meta.properties").read_text()
    other = LogDirectories([tmp_path], fs=RealFileSystem(), clock=SetClock())
    assert other.find_cluster_id() == CLUSTER
    with pytest.raises(InvalidConfig, match=f"belongs to the cluster {CLUSTER}, not another"):
        other.acquire(cluster_id="another", node_id=NODE)
    with pytest.raises(InvalidConfig, match="belongs to node 4, not 5"):
        LogDirectories([tmp_path], fs=RealFileSystem(), clock=SetClock()).acquire(
            cluster_id=CLUSTER, node_id=BrokerId(5)
        )
    assert (tmp_path / "meta.properties").read_text() == before


def test_older_meta_properties_are_completed(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(f"#\n#Thu Nov 20\nversion=0\nbroker.id=4\ncluster.id={CLUSTER}\n")
    _open(tmp_path).close()
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert "version=1" in lines
    assert "node.id=4" in lines
    assert not [line for line in lines if line.startswith("broker.id")]


@pytest.mark.parametrize("found", ["", f"version=0\nbroker.id=4\ncluster.id={CLUSTER}\n"])
def test_meta_properties_are_those_of_kafka_with_zookeeper(found: str, tmp_path: Path) -> None:
    if found:
        (tmp_path / "meta.properties").write_text(found)
    directories = LogDirectories([tmp_path], fs=RealFileSystem(), clock=SetClock())
    directories.acquire(cluster_id=CLUSTER, node_id=NODE, zookeeper=True)
    directories.close()
    properties = dict(line.split("=") for line in (tmp_path / "meta.properties").read_text().splitlines())
    assert properties.pop("directory.id")
    assert properties == {"version": "0", "cluster.id": CLUSTER, "broker.id": "4"}


def test_can_be_locked_before_the_cluster_is_known(tmp_path: Path) -> None:
    first, second = (LogDirectories([tmp_path / "new"], fs=RealFileSystem(), clock=SetClock()) for _ in range(2))
    first.lock()
    with pytest.raises(KafkaStorageError, match="is in use by another process"):
        second.lock()
    first.acquire(cluster_id=CLUSTER, node_id=NODE)
    first.close()
    second.lock()
    second.close()


def test_two_processes_never_share_a_directory(tmp_path: Path) -> None:
    directories = _open(tmp_path)
    program = (
        "from pathlib import Path; from ottla.log.directory import LogDirectory; from ottla.clock import SystemClock\n"
        "from ottla.log.fs import RealFileSystem; from ottla.errors import KafkaStorageError\n"
        f"d = LogDirectory(Path({str(tmp_path)!r}), fs=RealFileSystem(), clock=SystemClock())\n"
        f"try: d.acquire(cluster_id={CLUSTER!r}, node_id=4)\n"
        "except KafkaStorageError as problem: print(problem)\n"
        "else: print('acquired')\n"
    )
    run = [sys.executable, "-c", program]
    assert "in use by another process" in subprocess.run(run, capture_output=True, text=True, check=True).stdout
    directories.close()
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "acquired\n"


def test_deletion_takes_the_name_at_once_and_the_files_later(tmp_path: Path) -> None:
    directories = _open(tmp_path)
    directory = directories.directories[0]
    log = directories.create_log(_tp(0), TopicId(uuid4()), CONFIG)
    log.append_as_leader(_batch(), LeaderEpoch(0))
    directories.delete_log(_tp(0))
    assert directories.get(_tp(0)) is None
    assert not (tmp_path / "some-topic-0").exists()
    fresh = directories.create_log(_tp(0), TopicId(uuid4()), CONFIG)
    assert fresh.log_end_offset == 0
    left = [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
    assert len(left) == 1
    assert directory.remove_deleted() == 1
    assert not left[0].exists()
    directories.delete_log(_tp(0))
    directories.delete_log(_tp(9))
    directories.close()
    again = _open(tmp_path)
    assert again.get(_tp(0)) is None
    assert again.directories[0].remove_deleted() == 1
    again.close()


def test_a_directory_of_another_topic_of_that_name_is_refused(tmp_path: Path) -> None:
    directories = _open(tmp_path)
    log = directories.create_log(_tp(0), TopicId(UUID(int=1)), CONFIG)
    log.assign_topic_id(TopicId(UUID(int=1)))
    with pytest.raises(InconsistentTopicId):
        log.assign_topic_id(TopicId(UUID(int=2)))
    directories.close()


def test_an_unclean_directory_is_recovered_from_its_checkpoints(tmp_path: Path) -> None:
    directories = _open(tmp_path)
    log = directories.create_log(_tp(0), TopicId(uuid4()), CONFIG)
    for _ in range(3):
        log.append_as_leader(_batch(), LeaderEpoch(0))
    log.high_watermark = log.log_end_offset
    log.flush()
    log.delete_records_before(Offset(3))
    directories.directories[0].prepare_checkpoints().write()
    log.append_as_leader(_batch(), LeaderEpoch(0))
    with open(log.segments[0].path, "ab") as file:
        file.write(b"torn")
    _forget(directories)
    again = _open(tmp_path)
    found = again.get(_tp(0))
    assert found is not None
    assert (found.log_start_offset, found.recovery_point, found.log_end_offset) == (3, 6, 8)
    again.close()


def _forget(directories: LogDirectories) -> None:
    """What a kill does: the lock goes with the process."""
    for directory in directories.directories:
        directory._lock = None


def test_logs_spread_over_directories(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    directories = _open(*paths)
    for number in range(6):
        directories.create_log(_tp(number), TopicId(uuid4()), CONFIG)
    assert [len(directory.logs) for directory in directories.directories] == [3, 3]
    directories.directories[0].offline_reason = "the disk is gone"
    log = directories.create_log(_tp(6), TopicId(uuid4()), CONFIG)
    assert log.directory.parent == paths[1]
    directories.directories[1].offline_reason = "this one too"
    with pytest.raises(KafkaStorageError, match="no log directory is left"):
        directories.create_log(_tp(7), TopicId(uuid4()), CONFIG)
    directories.close()
    assert not (paths[0] / ".kafka_cleanshutdown").exists()


def test_a_partition_that_is_there_twice_is_served_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, batches in (("a", 1), ("b", 2)):
        directories = _open(tmp_path / name)
        log = directories.create_log(_tp(0), TopicId(UUID(int=1)), CONFIG)
        for _ in range(batches):
            log.append_as_leader(_batch(), LeaderEpoch(0))
        directories.close()
    both = _open(tmp_path / "a", tmp_path / "b")
    found = both.get(_tp(0))
    assert found is not None
    assert found.log_end_offset == 4
    assert "is there twice" in caplog.text
    assert [path.name.endswith("-stray") for path in (tmp_path / "a").glob("some-topic-*")] == [True]
    both.close()


def test_of_two_logs_of_a_partition_that_of_the_later_epoch_is_served(tmp_path: Path) -> None:
    """The longer one may be what was truncated since."""
    for name, epochs in (("a", (0, 0, 0)), ("b", (0, 4))):
        directories = _open(tmp_path / name)
        log = directories.create_log(_tp(0), TopicId(UUID(int=1)), CONFIG)
        for epoch in epochs:
            log.append_as_leader(_batch(), LeaderEpoch(epoch))
        directories.close()
    both = _open(tmp_path / "a", tmp_path / "b")
    found = both.get(_tp(0))
    assert found is not None
    assert (found.directory.parent.name, found.latest_epoch) == ("b", 4)
    both.close()


def test_foreign_directories_are_left_alone(tmp_path: Path) -> None:
    for name in ("lost+found", "__cluster_metadata-0", "no-number-x", "plain"):
        (tmp_path / name).mkdir()
    directories = _open(tmp_path)
    assert not directories.directories[0].logs
    directories.close()
    assert (tmp_path / "__cluster_metadata-0").is_dir()


def test_malformed_checkpoints_are_named(tmp_path: Path) -> None:
    for content in ("1\n0\n", "0\n2\nt 0 1\n", "0\n1\nt zero 1\n", "garbage", "\0"):
        (tmp_path / "recovery-point-offset-checkpoint").write_text(content)
        with pytest.raises(KafkaStorageError, match="recovery-point-offset-checkpoint is malformed"):
            checkpoints.read_offsets(RealFileSystem(), str(tmp_path / "recovery-point-offset-checkpoint"))


def test_a_topic_id_that_a_crash_has_torn_is_written_again(tmp_path: Path) -> None:
    """It is synced with the partition's first flush: before that, a power failure leaves any beginning of the file."""
    path = tmp_path / "partition.metadata"
    topic_id = TopicId(uuid4())
    whole = checkpoints.encode_partition_metadata(topic_id)
    for size in range(len(whole)):
        for torn in (whole[:size], whole[:size] + bytes(len(whole) - size)):
            path.write_bytes(torn)
            assert checkpoints.read_partition_metadata(RealFileSystem(), str(path)) is None, torn
    for kept in (whole, whole + b"\n"):
        path.write_bytes(kept)
        assert checkpoints.read_partition_metadata(RealFileSystem(), str(path)) == topic_id
    path.write_bytes(b"topic: " + whole)
    with pytest.raises(KafkaStorageError, match=r"partition\.metadata is malformed"):
        checkpoints.read_partition_metadata(RealFileSystem(), str(path))


def test_a_partition_that_cannot_be_opened_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directories = _open(tmp_path)
    for number in range(2):
        directories.create_log(_tp(number), TopicId(uuid4()), CONFIG)
    directories.close()
    (tmp_path / "some-topic-0" / "partition.metadata").write_text("nonsense")
    again = _open(tmp_path)
    assert again.get(_tp(0)) is None
    assert again.get(_tp(1)) is not None
    assert "partition.metadata is malformed" in caplog.text
    again.close()


def test_a_partition_whose_topic_id_is_no_text_is_named_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directories = _open(tmp_path)
    directories.create_log(_tp(0), TopicId(uuid4()), CONFIG)
    directories.close()
    (tmp_path / "some-topic-0" / "partition.metadata").write_bytes(b"\xff" * 50)
    again = _open(tmp_path)
    assert again.get(_tp(0)) is None
    assert "partition.metadata is malformed" in caplog.text
    again.close()


class Reads(RealFileSystem):
    """Notes what is read and looked for in the directories of partitions."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def read_bytes(self, path: str) -> bytes:
        self._note(path)
        return super().read_bytes(path)

    def exists(self, path: str) -> bool:
        self._note(path)
        return super().exists(path)

    def _note(self, path: str) -> None:
        if "some-topic" in path:
            self.seen.append(path.rpartition("/")[2])


def test_a_log_without_records_costs_one_read_and_a_look_for_a_mark(tmp_path: Path) -> None:
    """Ten thousand of them are opened at a start."""
    directories = _open(tmp_path)
    topic_id = TopicId(uuid4())
    for number in range(3):
        directories.create_log(_tp(number), topic_id, CONFIG).assign_epoch_start(LeaderEpoch(4))
    directories.close()
    disk = Reads()
    again = _open(tmp_path, fs=disk)
    assert disk.seen == ["partition.metadata"] * 3 + [MARK] * 3
    ids = [again.directories[0].logs[_tp(number)].topic_id for number in range(3)]
    assert ids == [topic_id] * 3
    assert len({id(each) for each in ids}) == 1
    again.close()


def test_a_file_that_is_renamed_while_a_directory_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread lists the log directory while another one replaces a file there."""
    (tmp_path / "kept").write_bytes(b"12")
    (tmp_path / "ottla.incarnations.tmp").touch()
    with os.scandir(tmp_path) as entries:
        listed = list(entries)
    monkeypatch.setattr(os, "scandir", lambda _: contextlib.nullcontext(listed))
    (tmp_path / "ottla.incarnations.tmp").unlink()
    assert RealFileSystem().names(str(tmp_path)) == [("kept", False, 2)]


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 20_000])
def test_files_are_read_whole(tmp_path: Path, size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    (tmp_path / "file").write_bytes(content)
    assert RealFileSystem().read_bytes(str(tmp_path / "file")) == content


def test_a_full_disk_creates_no_log(tmp_path: Path, disk: Disk) -> None:
    directories = _open(tmp_path, fs=disk)
    disk.room = 0
    with pytest.raises(KafkaStorageError, match="No space left"):
        directories.create_log(_tp(0), TopicId(uuid4()), CONFIG)
    assert directories.get(_tp(0)) is None
    disk.room = None
    directories.create_log(_tp(0), TopicId(uuid4()), CONFIG)
    directories.close()


def test_two_thousand_partitions_open_in_a_moment(tmp_path: Path) -> None:
    directories = _open(tmp_path)
    for number in range(2000):
        log = directories.create_log(_tp(number % 100, f"topic-{number // 100}"), TopicId(UUID(int=5)), CONFIG)
        log.append_as_leader(_batch(), LeaderEpoch(0))
    directories.close()
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    directory = LogDirectory(tmp_path, fs=RealFileSystem(), clock=SetClock())
    directory.acquire(cluster_id=CLUSTER, node_id=NODE)
    began = time.process_time()
    logs = directory.load(lambda topic: CONFIG)
    took = time.process_time() - began
    assert len(logs) == 2000
    assert sum(log.log_end_offset for log in logs.values()) == 4000
    assert took < 2.0, f"{took:.2f} s of CPU"  # half a second; two workers on two threads of a core take longer
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) < descriptors + 20, "descriptors are opened when they are needed"
    directory.close()


def test_a_new_broker_does_not_begin_beside_the_brokers_of_a_unit(tmp_path: Path) -> None:
    for name in ("core-0", "core-1", "controller", "core-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=2\n")
    with pytest.raises(InvalidConfig, match="the data of 2 brokers that ran as one unit: run it with --cores 2"):
        _open(tmp_path)
    assert not (tmp_path / "meta.properties").exists()
    for name in ("core-0", "core-1"):
        (tmp_path / name / "meta.properties").unlink()
    _open(tmp_path).close()


def test_a_process_that_locks_as_java_does_keeps_others_out(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    other = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; held = open(sys.argv[1], 'w'); fcntl.lockf(held, fcntl.LOCK_EX); "
            "print('locked', flush=True); sys.stdin.read()",
            lock,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(KafkaStorageError, match="is in use by another process"):
            _open(tmp_path)
    finally:
        other.communicate()
    _open(tmp_path).close()
