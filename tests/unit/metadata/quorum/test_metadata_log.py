import os
from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import UUID

import pytest
from tests.chaos.cluster_disk import SmallDisk

from ottla.clock import Clock, SystemClock
from ottla.errors import CorruptMessage, KafkaStorageError
from ottla.log.fs import RealFileSystem
from ottla.metadata.quorum import election_file, snapshots
from ottla.metadata.quorum.batches import encode_records
from ottla.metadata.quorum.metadata_log import (
    DIRECTORY,
    LEAST_ROOM_BYTES,
    ROOM_BYTES,
    MetadataLog,
    MetadataLogConfig,
)
from ottla.protocol.messages.control_records import LeaderChangeMessage
from ottla.protocol.messages.quorum_records import KRaftVersionRecord, VotersRecord
from ottla.quorum.control_records import KRAFT_VERSION, LEADER_CHANGE, VOTERS, encode_control_batch
from ottla.quorum.effects import ControlRecord
from ottla.quorum.election_state import ElectionState
from ottla.quorum.replicas import OffsetAndEpoch, ReplicaKey
from ottla.testing import FaultyFS, ManualClock
from ottla.testing.faulty_fs import Crashed, Survival

OF_VOTERS = [
    ControlRecord(KRAFT_VERSION, KRaftVersionRecord(version=0, k_raft_version=1)),
    ControlRecord(VOTERS, VotersRecord(version=0, voters=[])),
]
SMALL = MetadataLogConfig(segment_bytes=400, retention_bytes=1000)


def opened(fs: FaultyFS, config: MetadataLogConfig = SMALL, clock: Clock | None = None) -> MetadataLog:
    return MetadataLog.open("/data", config, fs=fs, clock=clock or ManualClock())


def append(log: MetadataLog, values: Iterable[bytes], *, epoch: int, now_ms: int = 1000) -> int:
    base = log.end.offset
    return log.append(encode_records(list(values), base_offset=base, epoch=epoch, now_ms=now_ms), base)


def sync(log: MetadataLog) -> int:
    ticket = log.prepare_sync()
    assert ticket is not None
    ticket.sync()
    return log.synced(ticket)


def snapshot(log: MetadataLog, at: OffsetAndEpoch, values: Iterable[bytes]) -> int:
    writer = log.new_snapshot(at, OF_VOTERS)
    for value in values:
        writer.add(value)
    size = writer.finish()
    log.has_written(at, size)
    return size


def clean(log: MetadataLog) -> None:
    removal = log.clean()
    assert removal is not None
    removal()


@pytest.fixture
def fs() -> FaultyFS:
    made = FaultyFS(seed=1)
    made.make_directory("/data")
    made.sync_directory("/")
    return made


def test_an_empty_log_ends_at_zero_and_names_the_topic_id_of_kafka(fs: FaultyFS) -> None:
    log = opened(fs)
    assert log.end == (0, 0)
    assert log.end_of_epoch(5) == (0, 0)
    assert log.newest_snapshot is None
    described = fs.read_bytes(f"/data/{DIRECTORY}/partition.metadata").decode()
    assert described == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def test_ends_of_epochs_are_those_of_the_last_records(fs: FaultyFS) -> None:
    log = opened(fs)
    assert append(log, [b"a", b"b"], epoch=1) == 2
    assert append(log, [b"c"], epoch=4) == 3
    assert log.end == (3, 4)
    assert [log.end_of_epoch(epoch) for epoch in range(6)] == [(0, 0), (2, 1), (2, 1), (2, 1), (3, 4), (3, 4)]
    log.truncate(2)
    assert log.end == log.end_of_epoch(4) == (2, 1)


def test_records_that_do_not_follow_are_refused(fs: FaultyFS) -> None:
    log = opened(fs)
    with pytest.raises(KafkaStorageError, match="records at 5 do not follow"):
        log.append(encode_records([b"a"], base_offset=5, epoch=1, now_ms=0), 5)


def test_what_was_synced_survives_and_the_torn_end_is_cut(fs: FaultyFS) -> None:
    log = opened(fs)
    append(log, [b"kept"], epoch=1)
    assert sync(log) == 1
    append(log, [b"lost" * 50], epoch=2)
    fs.crash(Survival.NOTHING)
    assert opened(fs).end == (1, 1)


def test_a_torn_batch_at_the_end_is_cut(fs: FaultyFS) -> None:
    log = opened(fs)
    append(log, [b"kept"], epoch=1)
    append(log, [b"torn" * 10], epoch=2)
    log.close()
    path = f"/data/{DIRECTORY}/{0:020d}.log"
    file = fs.open(path)
    file.truncate(file.size() - 3)
    again = opened(fs)
    assert again.end == (1, 1)
    assert append(again, [b"next"], epoch=3) == 2


def test_a_snapshot_lets_old_segments_and_snapshots_go_and_a_restart_finds_it(fs: FaultyFS) -> None:
    log = opened(fs)
    for number in range(20):
        append(log, [b"%04d" % number * 20], epoch=1, now_ms=number)
    sync(log)
    log.note_committed(20)
    snapshot(log, OffsetAndEpoch(5, 1), [b"first"])
    snapshot(log, OffsetAndEpoch(15, 1), [b"second", b"third"])
    clean(log)
    assert log.newest_snapshot == log.oldest_snapshot == (15, 1)
    assert log.start_offset == 15
    names = {name for name, _, _ in fs.names(f"/data/{DIRECTORY}")}
    assert f"{15:020d}-{1:010d}.checkpoint" in names
    assert not any(name.endswith((".deleted", ".part")) for name in names)
    assert f"{0:020d}.log" not in names
    fs.crash(Survival.NOTHING)
    again = opened(fs)
    assert again.newest_snapshot == (15, 1)
    assert again.end == (20, 1)
    assert 0 < again.start_offset <= 15
    path = again.snapshot_path(OffsetAndEpoch(15, 1))
    assert list(snapshots.read_records(fs, path)) == [b"second", b"third"]
    assert snapshots.last_append_time_ms(fs, path) == 14
    assert again.snapshot_size(OffsetAndEpoch(15, 1)) == fs.open(path).size()
    controls = [batch for offset, batch in again.control_batches() if offset == -1]
    assert len(controls) == 2  # the header with the voters, the footer


def test_retention_by_time_keeps_the_newest_snapshot(fs: FaultyFS) -> None:
    clock = ManualClock()
    log = opened(fs, MetadataLogConfig(retention_ms=1000), clock)
    for _ in range(3):
        append(log, [b"x"], epoch=1, now_ms=clock.now_ms())
    log.note_committed(3)
    for offset in (1, 2, 3):
        snapshot(log, OffsetAndEpoch(offset, 1), [b"s"])
    assert log.clean() is None
    assert log.oldest_snapshot == (1, 1)
    clock.advance(seconds=5)
    clean(log)
    assert log.oldest_snapshot == log.newest_snapshot == (3, 1)
    assert log.start_offset == 3
    assert log.end == (3, 1)


def test_a_snapshot_of_a_position_that_the_log_does_not_have_is_refused(fs: FaultyFS) -> None:
    log = opened(fs)
    append(log, [b"a"], epoch=2)
    for at in (OffsetAndEpoch(1, 1), OffsetAndEpoch(0, 0), OffsetAndEpoch(0, 2)):
        with pytest.raises(KafkaStorageError, match="has no position"):
            snapshot(log, at, [])


def fetched(leader: MetadataLog, at: OffsetAndEpoch, fs: FaultyFS) -> bytes:
    return bytes(leader.read_snapshot(at, 0, 1 << 20))


def test_a_fetched_snapshot_takes_the_place_of_the_log(fs: FaultyFS) -> None:
    leader_fs = FaultyFS(seed=2)
    leader_fs.make_directory("/data")
    leader = opened(leader_fs)
    append(leader, [b"a", b"b"], epoch=3)
    at = OffsetAndEpoch(2, 3)
    snapshot(leader, at, [b"ab"])
    data = fetched(leader, at, leader_fs)
    log = opened(fs)
    append(log, [b"of my own"], epoch=1)
    log.write_part(at, 0, data[:30])
    log.write_part(at, 30, data[30:])
    with pytest.raises(KafkaStorageError, match="do not follow"):
        log.write_part(at, 5, b"gap")
    assert log.install(at)
    assert (log.start_offset, log.end, log.newest_snapshot) == (2, at, at)
    fs.crash(Survival.NOTHING)
    again = opened(fs)
    assert (again.start_offset, again.end, again.newest_snapshot) == (2, at, at)
    assert again.end_of_epoch(3) == again.end_of_epoch(9) == at
    assert again.end_of_epoch(1) == (2, 1)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda data: data[:-1], "no intact|claims|corrupt"),
        (lambda data: data[:-75], "footer|corrupt"),
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], "CRC"),
        (lambda data: bytes(encode_records([b"x"], base_offset=0, epoch=1, now_ms=0)), "header"),
        (lambda data: b"", "header"),
        (
            lambda data: bytes(
                encode_control_batch(
                    [
                        ControlRecord(
                            LEADER_CHANGE,
                            LeaderChangeMessage(version=0, leader_id=1, voters=[], granting_voters=[]),
                        )
                    ],
                    base_offset=0,
                    epoch=1,
                    now_ms=0,
                )
            ),
            "header",
        ),
    ],
)
def test_a_damaged_snapshot_is_refused_and_the_log_stays(
    fs: FaultyFS, damage: Callable[[bytes], bytes], named: str
) -> None:
    log = opened(fs)
    append(log, [b"a", b"b"], epoch=3)
    at = OffsetAndEpoch(2, 3)
    snapshot(log, at, [b"ab"])
    data = damage(fetched(log, at, fs))
    behind = OffsetAndEpoch(9, 4)
    log.write_part(behind, 0, data)
    with pytest.raises(CorruptMessage, match=named):
        snapshots.check(fs, f"/data/{DIRECTORY}/{snapshots.file_name(behind, snapshots.PART)}")
    assert not log.install(behind)
    assert log.newest_snapshot == at
    assert log.end == (2, 3)


def test_a_crash_between_a_fetched_snapshot_and_the_cut_of_the_log_is_completed(fs: FaultyFS) -> None:
    log = opened(fs)
    append(log, [b"a", b"b"], epoch=3)
    snapshot(log, OffsetAndEpoch(2, 3), [b"ab"])
    data = fetched(log, OffsetAndEpoch(2, 3), fs)
    log.close()
    ahead = OffsetAndEpoch(7, 5)
    fs.write_bytes(f"/data/{DIRECTORY}/{snapshots.file_name(ahead)}", data, sync=True)
    fs.write_bytes(f"/data/{DIRECTORY}/{snapshots.file_name(OffsetAndEpoch(9, 5), snapshots.PART)}", data, sync=True)
    again = opened(fs)
    assert (again.start_offset, again.end, again.oldest_snapshot) == (7, ahead, ahead)
    assert not [name for name, _, _ in fs.names(f"/data/{DIRECTORY}") if name.endswith(".part")]


def test_a_log_whose_beginning_is_lost_is_refused(fs: FaultyFS) -> None:
    log = opened(fs)
    for _ in range(20):
        append(log, [b"x" * 100], epoch=1)
    log.note_committed(20)
    snapshot(log, OffsetAndEpoch(15, 1), [])
    removal = log.begin_at(OffsetAndEpoch(15, 1))
    assert removal is not None
    removal()
    log.close()
    fs.remove(log.snapshot_path(OffsetAndEpoch(15, 1)))
    with pytest.raises(KafkaStorageError, match="no snapshot holds what was before"):
        opened(fs)


@pytest.mark.parametrize(
    ("state", "kraft_version", "written"),
    [
        (
            ElectionState(2, None, ReplicaKey(1, UUID(int=7))),
            1,
            '{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAABw","data_version":1}',
        ),
        (
            ElectionState(3, 2, None),
            1,
            '{"leaderId":2,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        ),
        (
            ElectionState(3, 2, ReplicaKey(1)),
            0,
            '{"clusterId":"","leaderId":2,"leaderEpoch":3,"votedId":1,"appliedOffset":0,'
            '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}',
        ),
    ],
)
def test_elections_are_kept_in_kafkas_file(
    fs: FaultyFS, state: ElectionState, kraft_version: int, written: str
) -> None:
    assert election_file.read(fs, "/data") is None
    election_file.write(fs, "/data", state, kraft_version=kraft_version, voter_ids=[2, 1])
    fs.crash(Survival.NOTHING)
    assert fs.read_bytes("/data/quorum-state").decode() == written
    assert election_file.read(fs, "/data") == state


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "is damaged"),
        (b"\0" * 80, "is damaged"),
        (b"{}", "is damaged"),
        (b"[1]", "is damaged"),
        (b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,"data_version":2}', "has version 2"),
        (b'{"leaderId":"x","leaderEpoch":2,"votedId":1,"data_version":0}', "is damaged"),
        (b'{"leaderId":1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"AA","data_version":1}', "is damaged"),
        (b"\xff", "is damaged"),
    ],
)
def test_a_damaged_election_file_is_refused_rather_than_forgotten(data: bytes, named: str) -> None:
    with pytest.raises(KafkaStorageError, match=named):
        election_file.decode(data, "/data/quorum-state")


def test_there_is_room_for_the_next_records_on_a_full_disk(fs: FaultyFS) -> None:
    log = opened(fs, MetadataLogConfig())
    assert fs.used_bytes() >= ROOM_BYTES
    record = b"x" * (LEAST_ROOM_BYTES // 2)
    for full, count in ((True, 6), (False, 7), (True, 6)):
        fs.capacity_bytes = fs.used_bytes() if full else None
        for _ in range(count):
            append(log, [record], epoch=1)
    append(log, [record], epoch=1)
    with pytest.raises(KafkaStorageError, match="No space left"):
        append(log, [record], epoch=1)


def bases(fs: FaultyFS) -> set[int]:
    """The first offsets of all segments."""
    return {int(name[:20]) for name, _, _ in fs.names(f"/data/{DIRECTORY}") if name.endswith(".log")}


def test_a_segment_grows_on_while_there_is_no_room_for_the_next(fs: FaultyFS) -> None:
    log = opened(fs)
    fs.capacity_bytes = fs.used_bytes()
    for epoch in range(1, 11):
        append(log, [b"x" * 100], epoch=epoch)
        assert sync(log) == epoch
    assert bases(fs) == {0}
    fs.crash(Survival.NOTHING)
    log = opened(fs)
    assert (log.end, log.end_of_epoch(4)) == ((10, 10), (4, 4))
    append(log, [b"y" * 100], epoch=11)
    append(log, [b"y" * 100], epoch=11)
    assert bases(fs) == {0, 10}
    assert fs.used_bytes() < 2 * ROOM_BYTES  # the first has given back what it did not use


def test_votes_are_kept_on_a_full_disk(fs: FaultyFS) -> None:
    directory = opened(fs).directory
    state = ElectionState(1, None, ReplicaKey(1, UUID(int=5)))

    def vote(epoch: int) -> None:
        election_file.write(fs, directory, state._replace(epoch=epoch), kraft_version=1, voter_ids=())

    vote(1)
    fs.capacity_bytes = fs.used_bytes()
    for epoch in (1 << 30, 3, 1 << 30, 5):
        vote(epoch)
        assert election_file.read(fs, directory) == state._replace(epoch=epoch)
    before = election_file.read(fs, directory)
    for count in range(4):
        fs.crash_after(count)
        with pytest.raises(Crashed):
            vote(1000 + count)
        fs.crash()
        now = election_file.read(fs, directory)
        assert now in (before, state._replace(epoch=1000 + count))
        before = now


def test_a_snapshot_that_finds_no_room_leaves_nothing(fs: FaultyFS) -> None:
    log = opened(fs)
    append(log, [b"a"], epoch=1)
    sync(log)
    log.note_committed(1)
    fs.capacity_bytes = fs.used_bytes()
    with pytest.raises(OSError, match="No space left"):
        log.new_snapshot(log.end, OF_VOTERS)
    assert not snapshots.find(fs, log.directory).leftovers


def elect_again_and_again(directory: Path, before: Callable[[], None]) -> None:
    """Eighteen elections of a node of the quorum with the machine's files, which all survive; `before` them."""
    fs = RealFileSystem()
    log = MetadataLog.open(str(directory), SMALL, fs=fs, clock=SystemClock())
    election_file.write(fs, log.directory, ElectionState(1), kraft_version=1, voter_ids=())
    before()
    for epoch in range(2, 20):
        election_file.write(fs, log.directory, ElectionState(epoch), kraft_version=1, voter_ids=())
        append(log, [b"x" * 200], epoch=epoch)
        assert sync(log) == epoch - 1
    assert election_file.read(fs, log.directory) == ElectionState(19)
    log.release()
    log = MetadataLog.open(str(directory), SMALL, fs=fs, clock=SystemClock())
    assert (log.end, log.end_of_epoch(4)) == ((18, 19), (3, 4))
    log.release()


def test_the_machines_files_survive_elections(tmp_path: Path) -> None:
    elect_again_and_again(tmp_path, lambda: None)
    if os.geteuid() == 0:  # only root may mount a disk that can be filled
        disk = SmallDisk(tmp_path / "disk", 12 << 20)
        disk.mount()
        try:
            elect_again_and_again(disk.directory, disk.fill)
        finally:
            disk.unmount()


def test_a_truncated_log_has_room_again(fs: FaultyFS) -> None:
    log = opened(fs, MetadataLogConfig())
    for _ in range(2):
        append(log, [b"x" * LEAST_ROOM_BYTES], epoch=1)
    log.truncate(1)
    fs.capacity_bytes = fs.used_bytes() + 2 * ROOM_BYTES
    append(log, [b"y"], epoch=2)
    fs.capacity_bytes = fs.used_bytes()
    append(log, [b"z" * LEAST_ROOM_BYTES], epoch=2)
