"""Moves between log directories on a faulty disk: nothing that was synced is lost, whenever the machine stops."""

import asyncio
import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.config.log import LogConfig
from ottla.errors import ApiError, ErrorCode, KafkaStorageError
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.directories import LogDirectories
from ottla.log.partition_log import PartitionLog
from ottla.log.refill_marks import MARK, Refill
from ottla.records.batch import iter_batches
from ottla.records.record import Record, decode_records, encode_batch
from ottla.replication.alter_log_dirs import AlterLogDirs
from ottla.replication.disk_threads import DiskThreads
from ottla.testing.faulty_disk import Survival
from ottla.testing.faulty_fs import Crashed, FaultyFS, Operation
from ottla.testing.manual_clock import ManualClock

T0 = TopicPartition(TopicName("some-topic"), PartitionId(0))
CONFIG = LogConfig(segment_bytes=600)


class Held:
    """A partition, as far as moves are concerned."""

    topic_partition = T0

    def __init__(self, log: PartitionLog) -> None:
        self.log = log


class Replicas:
    """The replicas of a broker that holds one partition."""

    def __init__(self, held: Held | None) -> None:
        self.held = held
        self.threads = DiskThreads()
        self.on_held: Callable[[Any], None] = lambda partition: None

    def find(self, topic: str, number: int) -> Held | None:
        return self.held

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        return False

    def change_log(self, held: Held, copy: PartitionLog) -> None:
        held.log = copy


class Bench:
    """Two directories on a disk; `written` is what each offset holds, `synced` how many are known to be on it."""

    def __init__(self, fs: FaultyFS) -> None:
        self.fs = fs
        self.written: list[bytes] = []
        self.synced = 0
        self.open()

    def open(self) -> None:
        self.directories = LogDirectories([Path("/a"), Path("/b")], fs=self.fs, clock=ManualClock())
        self.directories.acquire(cluster_id="c", node_id=BrokerId(1))
        found = self.directories.load_all(lambda topic: CONFIG).get(T0)
        self.replicas = Replicas(None if found is None else Held(found))

    def create(self) -> None:
        self.directories.preferred[T0] = self.directories.directories[0]
        self.replicas.held = Held(self.directories.create_log(T0, None, CONFIG))
        self.fs.sync_directory("/")

    @property
    def log(self) -> PartitionLog:
        assert self.replicas.held is not None
        return self.replicas.held.log

    def append(self, epoch: int = 0) -> None:
        value = b"%d" % len(self.written) * 9
        self.written.append(value)
        self.log.append_as_leader(bytearray(encode_batch([Record(0, 1, None, value)])), LeaderEpoch(epoch))
        self.log.high_watermark = self.log.log_end_offset

    def sync(self) -> None:
        log = self.log
        ticket = log.prepare_flush()
        if ticket is not None:
            ticket.sync()
            log.flushed(ticket)
        self.synced = log.recovery_point

    def values(self) -> list[bytes]:
        """From the start of the log on."""
        log = self.log
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read_blocking(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True).data
            for header in iter_batches(data):
                found += [record.value or b"" for record in decode_records(data, header) if record.offset >= offset]
                offset = Offset(header.next_offset)
        return found

    def moves(self) -> AlterLogDirs:
        return AlterLogDirs(cast(Any, self.replicas), self.directories, asyncio.get_running_loop(), lambda: 1 << 40)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(FaultyFS())
    made.create()
    yield made
    made.fs.heal()
    made.directories.close()


async def until_moved(bench: Bench, directory: str, *, synced: bool = False) -> None:
    """`synced`: the log is synced meanwhile, again and again, as a broker's is."""
    async with asyncio.timeout(20):
        while bench.log.directory.parent != Path(directory) or list(leftovers(bench)):
            if synced:
                bench.sync()
            await asyncio.sleep(0.001)


def leftovers(bench: Bench) -> Iterator[str]:
    """Directories of the partition besides the one that is served."""
    for path in ("/a", "/b"):
        for name, _, _ in bench.fs.names(path):
            if name.startswith("some-topic") and "-delete" not in name and f"{path}/{name}" != str(bench.log.directory):
                yield f"{path}/{name}"


def test_what_is_written_and_cut_off_meanwhile_is_so_in_the_copy(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.replication.alter_log_dirs.CHUNK_BYTES", 150)

    async def story() -> None:
        for _ in range(30):
            bench.append()
        bench.log.delete_records_before(Offset(3))
        moves = bench.moves()
        moves.move(T0, "/b")
        for turn in range(200):
            await asyncio.sleep(0.0005)
            if turn % 7 == 3:
                end = max(3, len(bench.written) - 4)
                bench.log.truncate_to(Offset(end))
                del bench.written[end:]
            bench.append(epoch=turn)
            bench.sync()
        await until_moved(bench, "/b")
        assert bench.values() == bench.written[3:]
        assert moves.futures() == {}
        await moves.close()

    asyncio.run(story())


def test_a_disk_that_fails_leaves_the_replica_where_it_is(bench: Bench) -> None:
    async def story() -> None:
        bench.append()
        bench.fs.fail(Operation.WRITE, "/b/*", times=None)
        moves = bench.moves()
        moves.move(T0, "/b")
        while moves._moves:
            await asyncio.sleep(0.001)
        bench.append()
        assert bench.values() == bench.written
        assert bench.log.directory.parent == Path("/a")
        bench.fs.heal()
        moves.move(T0, "/b")
        await until_moved(bench, "/b")
        assert bench.values() == bench.written
        await moves.close()

    asyncio.run(story())


def test_refusals(bench: Bench) -> None:
    async def story() -> None:
        moves = bench.moves()
        with pytest.raises(ApiError) as refused:
            moves.move(T0, "/c")
        assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND
        bench.directories.directories[1].offline_reason = "broken"
        with pytest.raises(KafkaStorageError, match="broken"):
            moves.move(T0, "/b")
        bench.directories.directories[1].offline_reason = None
        bench.replicas.held = None
        with pytest.raises(ApiError) as absent:
            moves.move(T0, "/b")
        assert absent.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
        assert bench.directories.preferred[T0].path == Path("/b")

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_at_any_moment_loses_nothing_that_was_synced(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.replication.alter_log_dirs.CHUNK_BYTES", 300)
    chance = random.Random(seed)
    bench = Bench(FaultyFS(seed=seed))
    bench.create()

    async def story() -> None:
        for _ in range(12):
            bench.append()
        bench.sync()
        moves = bench.moves()
        moves.move(T0, "/b")
        bench.fs.crash_after(chance.randrange(300))
        try:
            for _ in range(60):
                bench.append()
                if chance.random() < 0.5:
                    bench.sync()
                await asyncio.sleep(0.0005)
        except (Crashed, KafkaStorageError, OSError):
            pass
        bench.fs.crash_after(0)
        await moves.close()

    asyncio.run(story())
    bench.fs.crash(chance.choice(list(Survival)))
    bench.open()
    found = bench.values()
    assert len(found) >= bench.synced
    assert found[: bench.synced] == bench.written[: bench.synced]
    assert found == bench.written[: len(found)]
    assert not [path for path in leftovers(bench) if path.endswith(f"/{T0}")]  # another move must not find it there


@pytest.mark.parametrize("is_mark_lost", [False, True], ids=["the process ends", "the mark is lost with the power"])
def test_a_replica_that_is_filled_again_is_known_as_such_when_its_move_is_cut_short(
    is_mark_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both directories have the replica then, and the copy is the one that stays: it is in the first of them."""
    bench = Bench(FaultyFS())
    bench.directories.preferred[T0] = bench.directories.directories[1]
    bench.replicas.held = Held(bench.directories.create_log(T0, None, CONFIG, refill=Refill({BrokerId(7)}, since=4)))
    rename = FaultyFS.rename
    is_renamed: list[bool] = []

    def rename_and_end(fs: FaultyFS, source: str, target: str) -> None:
        rename(fs, source, target)
        if target == f"/a/{T0}":
            is_renamed.append(True)
            fs.crash_after(0)

    async def story() -> None:
        bench.append()
        bench.sync()
        moves = bench.moves()
        moves.move(T0, "/a")
        async with asyncio.timeout(20):
            while not is_renamed:
                await asyncio.sleep(0.001)
        await moves.close()

    with monkeypatch.context() as patched:
        patched.setattr(FaultyFS, "rename", rename_and_end)
        asyncio.run(story())
    bench.fs.end_process()
    if is_mark_lost:
        bench.fs.remove(f"/a/{T0}/{MARK}")
    bench.open()
    assert bench.log.directory.parent == Path("/a")
    assert bench.directories.refilling == {T0: Refill({BrokerId(7)}, since=4)}
    bench.directories.end_refill(T0)
    bench.directories.close()
    bench.open()
    assert bench.directories.refilling == {}
    bench.directories.close()


def test_a_replica_that_is_called_back_waits_until_what_it_left_is_removed(bench: Bench) -> None:
    """Where it comes from stands what the first move has not removed yet, until the copy of it is synced."""

    async def story() -> None:
        for _ in range(30):
            bench.append()
        moves = bench.moves()
        moves.move(T0, "/b")
        async with asyncio.timeout(20):
            while bench.log.directory.parent != Path("/b"):
                await asyncio.sleep(0)
        assert list(leftovers(bench)) in ([f"/a/{T0}"], [])  # a thread may have removed it by now
        assert moves.futures() == {}
        moves.move(T0, "/a")
        assert list(moves.futures()) == [T0]
        await asyncio.sleep(0.01)
        bench.append()
        await until_moved(bench, "/a", synced=True)
        assert bench.values() == bench.written
        await moves.close()

    asyncio.run(story())


def test_some_move_at_once_and_the_others_are_seen_to_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.replication.alter_log_dirs.AT_ONCE", 1)

    async def story() -> None:
        for _ in range(30):
            bench.append()
        moves = bench.moves()
        async with moves._slots:
            moves.move(T0, "/b")
            await asyncio.sleep(0.01)
            (waiting,) = moves.futures().values()
            assert (str(waiting.directory.path), waiting.size_bytes, waiting.lag) == ("/b", 0, 30)
            assert [path[:16] for path in leftovers(bench)] == [f"/b/{T0}."]
        bench.sync()
        async with asyncio.timeout(20):
            while bench.log.directory.parent != Path("/b"):
                await asyncio.sleep(0.001)
        bench.sync()
        await until_moved(bench, "/b")
        await moves.close()

    asyncio.run(story())


def test_a_move_that_waits_is_not_forgotten_by_a_restart(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.replication.alter_log_dirs.AT_ONCE", 1)

    async def wait() -> None:
        bench.append()
        bench.sync()
        moves = bench.moves()
        async with moves._slots:
            moves.move(T0, "/b")
            await asyncio.sleep(0.01)
            await moves.close()

    async def go_on() -> None:
        moves = bench.moves()
        bench.replicas.on_held(bench.replicas.held)
        async with asyncio.timeout(20):
            while bench.log.directory.parent != Path("/b"):
                await asyncio.sleep(0.001)
        bench.sync()
        await until_moved(bench, "/b")
        await moves.close()

    asyncio.run(wait())
    bench.directories.close()
    bench.open()
    asyncio.run(go_on())
    assert bench.values() == bench.written


def test_what_was_moved_off_a_full_disk_is_removed_though_its_checkpoints_cannot_be_written(bench: Bench) -> None:
    async def story() -> None:
        bench.append()
        bench.fs.fail(Operation.WRITE, "/a/*checkpoint*", error=errno.ENOSPC, times=None)
        moves = bench.moves()
        moves.move(T0, "/b")
        async with asyncio.timeout(20):
            while bench.log.directory.parent != Path("/b"):
                await asyncio.sleep(0.001)
        bench.sync()
        await until_moved(bench, "/b")
        bench.fs.heal()
        await moves.close()

    asyncio.run(story())
