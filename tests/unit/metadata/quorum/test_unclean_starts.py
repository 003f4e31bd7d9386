"""What a node of the quorum has on its disk after it was killed, or its disk has failed, or its power, in any order.

It votes, and acknowledges records, with what a start finds. So a power failure must not take that back.
"""

import errno
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from uuid import UUID

import pytest

from ottla.errors import OttlaError
from ottla.metadata.quorum import election_file, snapshots
from ottla.metadata.quorum.batches import encode_records
from ottla.metadata.quorum.metadata_log import DIRECTORY, MetadataLog, MetadataLogConfig
from ottla.metadata.quorum.snapshots import SnapshotWriter
from ottla.quorum.election_state import ElectionState
from ottla.quorum.replicas import OffsetAndEpoch, ReplicaKey
from ottla.records.batch import iter_batches
from ottla.testing import FaultyFS, ManualClock
from ottla.testing.faulty_fs import Crashed, Operation, Survival

CONFIG = MetadataLogConfig(segment_bytes=400, retention_bytes=600)
PATH = f"/data/{DIRECTORY}"
FAILING = (Operation.SYNC, Operation.WRITE, Operation.SYNC_DIRECTORY, Operation.RENAME, Operation.TRUNCATE)


def new_disk(seed: int) -> FaultyFS:
    fs = FaultyFS(seed=seed)
    fs.make_directory("/data")
    fs.sync_directory("/")
    return fs


def opened(fs: FaultyFS) -> MetadataLog:
    return MetadataLog.open("/data", CONFIG, fs=fs, clock=ManualClock())


def append(log: MetadataLog, epoch: int, value: bytes = b"x" * 150) -> None:
    base = log.end.offset
    log.append(encode_records([value], base_offset=base, epoch=epoch, now_ms=1), base)


def sync(log: MetadataLog) -> None:
    ticket = log.prepare_sync()
    if ticket is not None:
        ticket.sync()
        log.synced(ticket)


def snapshot_bytes(at: OffsetAndEpoch) -> bytes:
    fs = FaultyFS()
    fs.make_directory(PATH)
    writer = SnapshotWriter(fs, PATH, at, last_append_time_ms=1, of_voters=[], now_ms=1)
    writer.add(b"state")
    writer.finish()
    return fs.read_bytes(f"{PATH}/{snapshots.file_name(at)}")


def install(log: MetadataLog, at: OffsetAndEpoch) -> None:
    log.write_part(at, 0, snapshot_bytes(at))
    assert log.install(at)


def vote(fs: FaultyFS, epoch: int) -> ElectionState:
    state = ElectionState(epoch, None, ReplicaKey(1, UUID(int=1)))
    election_file.write(fs, PATH, state, kraft_version=1, voter_ids=())
    return state


def batches(log: MetadataLog) -> Iterator[tuple[int, int, int]]:
    """Base offset, epoch and CRC of all that is in the log."""
    at = log.start_offset
    while at < log.end.offset:
        view = memoryview(log.read_blocking(at, 1 << 20, upper_bound=log.end.offset))
        for header in iter_batches(view):
            at = header.next_offset
            yield header.base_offset, header.leader_epoch, header.crc


def test_a_node_that_is_killed_while_it_truncates_everything_starts_again() -> None:
    for count in range(100):
        fs = new_disk(0)
        log = opened(fs)
        for _ in range(8):
            append(log, 1)
        sync(log)
        found = list(batches(log))
        fs.crash_after(count)
        with suppress(Crashed):
            log.truncate(0)
            break
        fs.end_process()
        left = list(batches(opened(fs)))
        assert left == found[: len(left)]
    assert count > 5


@pytest.mark.parametrize("seed", range(30))
def test_a_start_empties_the_log_for_no_snapshot_that_a_power_failure_takes_back(seed: int) -> None:
    for count in range(20):
        fs = new_disk(seed)
        log = opened(fs)
        append(log, 1)
        sync(log)
        fs.fail(Operation.SYNC_DIRECTORY)
        with pytest.raises(OSError, match="Input/output error"):
            install(log, OffsetAndEpoch(9, 2))
        fs.heal()
        fs.end_process()
        fs.crash_after(count)
        with suppress(Crashed):
            opened(fs)
        fs.crash()
        assert opened(fs).end in ((1, 1), (9, 2))


@pytest.mark.parametrize("seed", range(100))
def test_a_power_failure_takes_back_nothing_that_a_start_has_found(seed: int) -> None:
    """Whatever happened before: the node was killed between any two changes of its files, or one of them failed."""
    random, fs = Random(seed), new_disk(seed)
    for _ in range(4):
        if random.random() < 0.5:
            fs.crash_after(random.randrange(60))
        else:
            error = random.choice((errno.EIO, errno.ENOSPC))
            fs.fail(random.choice(FAILING), error=error, skip=random.randrange(20))
        with suppress(OSError, OttlaError, Crashed):
            live(fs, random)
        fs.heal()
        fs.end_process()
        if random.random() < 0.5:
            fs.crash_after(random.randrange(15))
            with suppress(Crashed):
                opened(fs)
            if random.random() < 0.5:
                fs.crash()
            fs.heal()
            fs.end_process()
        log = opened(fs)
        found = log.end, log.newest_snapshot, election_file.read(fs, PATH), list(batches(log))
        fs.crash(random.choice((Survival.RANDOM, Survival.NOTHING)))
        log = opened(fs)
        assert (log.end, log.newest_snapshot, election_file.read(fs, PATH), list(batches(log))) == found


def live(fs: FaultyFS, random: Random) -> None:
    """A life of a node: it appends, syncs, votes, truncates, installs snapshots, and writes some."""
    log = opened(fs)
    saved = election_file.read(fs, PATH) or ElectionState(0)
    epoch = max(saved.epoch, log.end.epoch) + 1
    committed = log.start_offset
    for _ in range(random.randrange(25)):
        match random.choice(("append", "append", "append", "sync", "vote", "truncate", "install", "snapshot", "clean")):
            case "append":
                append(log, epoch, b"x" * random.randrange(200))
            case "sync":
                sync(log)
            case "vote":
                epoch += 1
                vote(fs, epoch)
            case "truncate" if log.end.offset > committed:
                log.truncate(random.randrange(committed, log.end.offset))
            case "install" if random.random() < 0.3:
                epoch += 1
                committed = log.end.offset + random.randint(1, 20)
                install(log, OffsetAndEpoch(committed, epoch))
                log.note_committed(committed)
            case "snapshot":
                sync(log)
                committed = log.end.offset
                log.note_committed(committed)
                newest = log.newest_snapshot
                if committed > log.start_offset and (newest is None or newest.offset < committed):
                    log.has_written(log.end, log.new_snapshot(log.end, []).finish())
            case "clean":
                remove = log.clean()
                if remove is not None:
                    remove()
