"""The group commit with real threads and slow, failing or counting disks."""

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.driver import Disk, SetClock

from ottla.config.log import LogConfig
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicName, TopicPartition
from ottla.log.directory import LogDirectory
from ottla.log.flush import FlushTicket
from ottla.log.kernel_sync import KernelSync, open_kernel_sync
from ottla.log.partition_log import PartitionLog
from ottla.records.record import Record, encode_batch
from ottla.replication.group_commit import GroupCommit


class Ticket:
    def __init__(self, partition: Any, end: int) -> None:
        self.partition = partition
        self.end = end

    is_data_alone = True
    is_first = False

    def descriptors(self) -> list[int] | None:
        return None

    def begin(self) -> None:
        self.partition.begun += 1

    def sync(self) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.partition.gate.wait(10)
        if self.partition.error is not None:
            raise self.partition.error
        self.partition.syncs += 1


class FakePartition:
    topic_partition: TopicPartition = TopicPartition(TopicName("t"), PartitionId(0))

    def __init__(self) -> None:
        self.end = 0
        self.synced = 0
        self.syncs = 0
        self.begun = 0
        self.cancelled = 0
        self.failed: Exception | None = None
        self.error: OSError | None = None
        self.gate = threading.Event()
        self.gate.set()

    def prepare_flush(self) -> Any:
        return Ticket(self, self.end) if self.end > self.synced else None

    def flushed(self, ticket: Any) -> None:
        self.synced = ticket.end

    def flush_failed(self, ticket: Any, error: Exception) -> None:
        self.failed = error

    def flush_cancelled(self, ticket: Any) -> None:
        self.cancelled += 1


def run(scenario: Callable[[GroupCommit, list[int]], Awaitable[None]]) -> int:
    """Run the scenario with a flusher; returns the number of finished rounds."""
    rounds: list[int] = []

    async def main() -> None:
        flusher = GroupCommit("disk", asyncio.get_running_loop(), lambda: rounds.append(1), kernel=lambda: None)
        flusher.start()
        try:
            await asyncio.wait_for(scenario(flusher, rounds), 10)
        finally:
            flusher.close()

    asyncio.run(main())
    return len(rounds)


async def until(condition: Callable[..., bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_the_appends_of_one_turn_share_one_sync() -> None:
    partition = FakePartition()

    async def scenario(flusher: GroupCommit, rounds: list[int]) -> None:
        for _ in range(5):
            partition.end += 1
            flusher.mark(partition)
        await until(lambda: partition.synced == 5)

    assert run(scenario) == 1
    assert partition.syncs == 1


def test_what_nobody_waits_for_is_synced_later_together_though_nothing_more_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of a burst is no exception: a follower that lost its power would lack it for good."""
    monkeypatch.setattr("ottla.replication.group_commit.LATER_S", 0.02)
    one, other, gone = FakePartition(), FakePartition(), FakePartition()

    async def scenario(flusher: GroupCommit, rounds: list[int]) -> None:
        for partition in (one, other, gone):
            for _ in range(5):
                partition.end += 1
                flusher.mark_later(partition)
        flusher.forget(gone)
        assert (one.syncs, rounds) == (0, [])
        await until(lambda: one.synced == 5 and other.synced == 5)
        one.end += 1
        flusher.mark_later(one)
        await until(lambda: one.synced == 6)

    assert run(scenario) == 2
    assert (one.syncs, other.syncs, gone.syncs) == (2, 1, 0)


def test_what_comes_while_the_disk_is_busy_waits_for_the_next_round_together() -> None:
    slow, other = FakePartition(), FakePartition()
    slow.gate.clear()

    async def scenario(flusher: GroupCommit, rounds: list[int]) -> None:
        slow.end = 1
        flusher.mark(slow)
        await asyncio.sleep(0.02)
        for end in range(2, 50):
            slow.end = other.end = end
            flusher.mark(slow)
            flusher.mark(other)
            await asyncio.sleep(0)
        assert slow.synced == 0
        slow.gate.set()
        await until(lambda: slow.synced == 49 and other.synced == 49)

    assert run(scenario) == 2
    assert (slow.syncs, other.syncs) == (2, 1)


def test_nothing_is_called_synced_that_was_appended_after_the_round_began() -> None:
    partition = FakePartition()
    partition.gate.clear()

    async def scenario(flusher: GroupCommit, rounds: list[int]) -> None:
        partition.end = 1
        flusher.mark(partition)
        await asyncio.sleep(0.02)
        partition.end = 2  # appended, but nobody marked it
        partition.gate.set()
        await until(lambda: bool(rounds))
        assert partition.synced == 1

    run(scenario)


def test_a_failed_sync_reaches_its_partition_and_no_other() -> None:
    broken, sound = FakePartition(), FakePartition()
    broken.error = OSError(5, "Input/output error")
    told: list[OSError] = []

    async def scenario(flusher: GroupCommit, rounds: list[int]) -> None:
        flusher.on_error = told.append
        broken.end = sound.end = 1
        flusher.mark(broken)
        flusher.mark(sound)
        await until(lambda: bool(rounds))

    run(scenario)
    assert broken.failed is broken.error
    assert told == [broken.error]
    assert (broken.synced, sound.synced) == (0, 1)


def test_a_forgotten_partition_is_not_synced() -> None:
    gone = FakePartition()

    async def scenario(flusher: GroupCommit, rounds: list[int]) -> None:
        gone.end = 1
        flusher.mark(gone)
        flusher.forget(gone)
        await asyncio.sleep(0.02)

    run(scenario)
    assert gone.syncs == 0


@pytest.mark.parametrize("started", [True, False])
def test_closing_never_hangs(started: bool) -> None:
    loop = asyncio.new_event_loop()
    flusher = GroupCommit("disk", loop, lambda: None, kernel=lambda: None)
    if started:
        flusher.start()
    flusher.close()
    loop.close()


class TicketOfFiles(Ticket):
    """A ticket of real files, which the kernel may sync."""

    def descriptors(self) -> list[int] | None:
        return self.partition.descriptors


def run_in_kernel(
    scenario: Callable[[GroupCommit], Awaitable[None]], kernel: Callable[[], KernelSync | None] = open_kernel_sync
) -> None:
    async def main() -> None:
        flusher = GroupCommit("disk", asyncio.get_running_loop(), lambda: None, kernel=kernel)
        flusher.start()
        try:
            await asyncio.wait_for(scenario(flusher), 10)
        finally:
            flusher.close()

    asyncio.run(main())


class PartitionOfFiles(FakePartition):
    def __init__(self, descriptors: list[int]) -> None:
        super().__init__()
        self.descriptors = descriptors

    def prepare_flush(self) -> Any:
        return TicketOfFiles(self, self.end) if self.end > self.synced else None


def test_the_kernel_syncs_the_files_of_many_partitions_in_one_round(tmp_path: Path) -> None:
    assert open_kernel_sync() is not None, "this machine is meant to have Linux AIO"
    files = [(tmp_path / str(number)).open("wb", buffering=0) for number in range(12)]
    partitions = [
        PartitionOfFiles([one.fileno(), two.fileno()]) for one, two in zip(files[::2], files[1::2], strict=True)
    ]

    async def scenario(flusher: GroupCommit) -> None:
        for end in range(1, 20):
            for file in files:
                file.write(b"x" * 5000)
            for partition in partitions:
                partition.end = end
                flusher.mark(partition)
            await until(lambda end=end: all(partition.synced == end for partition in partitions))

    run_in_kernel(scenario)
    assert all(partition.syncs == 0 for partition in partitions)  # the thread had nothing to do
    for file in files:
        file.close()


def test_what_the_kernel_refuses_goes_to_the_thread(tmp_path: Path) -> None:
    reader, writer = os.pipe()  # there is no fdatasync of a pipe, and the kernel says so at once
    with (tmp_path / "sound").open("wb", buffering=0) as file:
        partitions = [PartitionOfFiles([file.fileno()]), PartitionOfFiles([writer])]

        async def scenario(flusher: GroupCommit) -> None:
            for end in (1, 2):
                for partition in partitions:
                    partition.end = end
                    flusher.mark(partition)
                await until(lambda end=end: all(partition.synced == end for partition in partitions))

        run_in_kernel(scenario)
    os.close(reader)
    os.close(writer)
    assert [partition.syncs for partition in partitions] == [2, 2]


class BrokenDisk(KernelSync):
    """A kernel that reports an I/O error for the first file of each submission."""

    def __init__(self) -> None:
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._taken = 0

    def submit(self, descriptors: Sequence[int]) -> int:
        self._taken = len(descriptors)
        os.eventfd_write(self.event_fd, self._taken)
        return self._taken

    def reap(self) -> list[tuple[int, int]]:
        os.eventfd_read(self.event_fd)
        return [(number, 0 if number else errno.EIO) for number in range(self._taken)]

    def close(self) -> None:
        os.close(self.event_fd)


def test_a_file_the_kernel_could_not_sync_fails_its_own_partition_only() -> None:
    broken, sound = PartitionOfFiles([7]), PartitionOfFiles([8])

    async def scenario(flusher: GroupCommit) -> None:
        broken.end = sound.end = 1
        flusher.mark(broken)
        flusher.mark(sound)
        await until(lambda: sound.synced == 1)

    run_in_kernel(scenario, BrokenDisk)
    assert isinstance(broken.failed, OSError)
    assert broken.failed.errno == errno.EIO
    assert broken.synced == 0


@pytest.mark.parametrize("method", ["prepare_flush", "flushed"])
def test_a_defect_in_one_partition_does_not_end_the_syncs_of_others(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = FakePartition(), FakePartition()

    def fail(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(broken, method, fail)

    async def scenario(flusher: GroupCommit, rounds: list[int]) -> None:
        for end in (1, 2):
            broken.end = sound.end = end
            flusher.mark(broken)
            flusher.mark(sound)
            await until(lambda end=end: sound.synced == end)

    run(scenario)
    assert "a defect" in caplog.text
    assert isinstance(broken.failed, ValueError) == (method == "prepare_flush")


class NewPartition(FakePartition):
    """One that has files to bring to the disk for the first time, or again."""

    is_first = True

    def prepare_flush(self) -> Any:
        ticket = super().prepare_flush()
        if ticket is not None:
            ticket.is_data_alone, ticket.is_first = False, self.is_first
        return ticket


def test_new_files_are_synced_beside_the_rounds_and_hold_nobody_up() -> None:
    news, old = [NewPartition() for _ in range(50)], FakePartition()
    for new in news:
        new.gate.clear()

    async def scenario(flusher: GroupCommit, rounds: list[int]) -> None:
        for new in news:
            new.end = 1
            flusher.mark(new)
        for end in range(1, 10):
            old.end = end
            flusher.mark(old)
            await until(lambda end=end: old.synced == end)
        news[0].end = 2
        flusher.mark(news[0])  # not before its first files are there
        assert not any(new.synced for new in news)
        for new in news:
            new.gate.set()
        await until(lambda: news[0].synced == 2 and all(new.synced for new in news))

    run(scenario)
    assert news[0].syncs == 2
    assert [new.syncs for new in news[1:]] == [1] * 49


def test_partitions_that_were_synced_before_come_first() -> None:
    news, rolled = [NewPartition() for _ in range(50)], NewPartition()
    rolled.is_first = False
    for new in news:
        new.gate.clear()

    async def scenario(flusher: GroupCommit, rounds: list[int]) -> None:
        for partition in (*news, rolled):
            partition.end = 1
            flusher.mark(partition)
        await asyncio.sleep(0.02)
        for new in news[:16]:  # what is under way
            new.gate.set()
        await until(lambda: rolled.synced == 1)
        for new in news:
            new.gate.set()
        await until(lambda: all(new.synced for new in news))

    run(scenario)


def test_the_first_partition_of_a_topic_waits_for_few_of_another_topic_that_came_before() -> None:
    many, single = [NewPartition() for _ in range(50)], NewPartition()
    single.topic_partition = TopicPartition(TopicName("single"), PartitionId(0))
    for new in many:
        new.gate.clear()

    async def scenario(flusher: GroupCommit, rounds: list[int]) -> None:
        for partition in (*many, single):
            partition.end = 1
            flusher.mark(partition)
        await asyncio.sleep(0.02)
        for new in many[:20]:  # what is under way, and those whose turn comes with the other topic's
            new.gate.set()
        await until(lambda: single.synced == 1)
        assert not any(new.synced for new in many[20:])
        for new in many:
            new.gate.set()
        await until(lambda: all(new.synced for new in many))

    run(scenario)


def test_a_failure_beside_the_rounds_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.replication.group_commit.RETRY_S", 0.02)
    new = NewPartition()
    new.error = OSError(errno.EIO, "I/O error")

    async def scenario(flusher: GroupCommit, rounds: list[int]) -> None:
        new.end = 1
        flusher.mark(new)
        await until(lambda: new.failed is not None)
        assert new.synced == 0
        new.error = None
        await until(lambda: new.synced == 1)

    run(scenario)


class StuckRunner:
    """Has begun with nothing yet when the broker stops."""

    def __init__(self) -> None:
        self.given: list[Callable[[], None]] = []

    def run(self, work: Callable[[], None]) -> None:
        self.given.append(work)

    def close(self) -> None:
        pass


class DiligentRunner(StuckRunner):
    """Does the work when it closes, too late for the loop to hear of it."""

    def close(self) -> None:
        for work in self.given:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()


class PartitionOfLog:
    """As `Partition`: hands on what the flusher says to its log."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.topic_partition = log.topic_partition

    def prepare_flush(self) -> FlushTicket | None:
        return self.log.prepare_flush()

    def flushed(self, ticket: FlushTicket) -> None:
        self.log.flushed(ticket)

    def flush_failed(self, ticket: FlushTicket | None, error: Exception) -> None:
        assert ticket is not None
        self.log.flush_failed(ticket)

    def flush_cancelled(self, ticket: FlushTicket) -> None:
        self.log.flush_cancelled(ticket)


def opened(path: Path, disk: Disk) -> LogDirectory:
    directory = LogDirectory(path, fs=disk, clock=SetClock())
    directory.acquire(cluster_id="some-cluster", node_id=BrokerId(4))
    directory.load(lambda _topic: LogConfig())
    return directory


def stop_with_work_queued(
    directory: LogDirectory, runner: type[StuckRunner], at_close: Callable[[], None], *, has_begun: bool = True
) -> None:
    """Each log has records of epoch 5, for which the flusher has taken a ticket when it closes, if it `has_begun`. The
    loop goes on before the logs are closed, as that of a broker does."""

    async def main() -> None:
        flusher = GroupCommit(
            "disk",
            asyncio.get_running_loop(),
            lambda: None,
            runner=runner(),
            side_runners=[runner(), runner()],
            kernel=lambda: None,
        )
        flusher.start()
        for log in directory.logs.values():
            log.append_as_leader(encode_batch([Record(0, 1, b"k", b"v")]), LeaderEpoch(5))
            flusher.mark(PartitionOfLog(log))
        if has_begun:
            await until(lambda: not any(log.leader_epochs.dirty for log in directory.logs.values()))
        at_close()
        flusher.close()
        await asyncio.sleep(0.01)
        directory.close()

    asyncio.run(main())


def twenty_logs(path: Path, disk: Disk) -> LogDirectory:
    directory = opened(path, disk)
    for number in range(20):
        log = directory.create(TopicPartition(TopicName("t"), PartitionId(number)), None, LogConfig())
        log.append_as_leader(encode_batch([Record(0, 1, b"k", b"v")]), LeaderEpoch(0))
    directory.close()
    return opened(path, disk)


@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.parametrize("runner", [StuckRunner, DiligentRunner])
def test_a_stop_syncs_what_the_flusher_has_queued(tmp_path: Path, runner: type[StuckRunner], has_begun: bool) -> None:
    disk = Disk()
    stop_with_work_queued(twenty_logs(tmp_path, disk), runner, lambda: None, has_begun=has_begun)
    again = opened(tmp_path, disk)
    assert again.was_clean
    assert [log.latest_epoch for log in again.logs.values()] == [5] * 20
    again.close()


def test_a_sync_that_fails_as_the_flusher_closes_is_made_good(tmp_path: Path) -> None:
    """Its data is written again: a second fdatasync alone would vouch for pages that the kernel has dropped."""
    disk = Disk()
    directory = twenty_logs(tmp_path, disk)
    logs = list(directory.logs.values())

    def fail_once() -> None:
        disk.failing_syncs = 1

    stop_with_work_queued(directory, DiligentRunner, fail_once)
    assert sum(log.generation for log in logs) == 1
    again = opened(tmp_path, disk)
    assert again.was_clean
    assert [log.latest_epoch for log in again.logs.values()] == [5] * 20
    again.close()


@pytest.mark.parametrize("runner", [StuckRunner, DiligentRunner])
def test_closing_leaves_no_ticket_without_an_answer_and_gives_one_answer(runner: type[StuckRunner]) -> None:
    news = [NewPartition() for _ in range(50)]
    queued = NewPartition()
    queued.is_first = False
    under_way = FakePartition()

    async def main() -> None:
        flusher = GroupCommit(
            "disk",
            asyncio.get_running_loop(),
            lambda: None,
            runner=runner(),
            side_runners=[runner()],
            kernel=lambda: None,
        )
        flusher.start()
        for partition in (*news, queued, under_way):
            partition.end = 1
            flusher.mark(partition)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        flusher.close()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert [(partition.cancelled, partition.synced) for partition in (*news, queued, under_way)] == [(1, 0)] * 52


def test_closing_takes_the_results_of_the_kernels_last_round() -> None:
    broken, sound = PartitionOfFiles([7]), PartitionOfFiles([8])

    class LateKernel(BrokenDisk):
        """Is done when it is asked for the second time."""

        asked = 0

        def reap(self) -> list[tuple[int, int]]:
            self.asked += 1
            return super().reap() if self.asked > 1 else []

    async def main() -> None:
        flusher = GroupCommit("disk", asyncio.get_running_loop(), lambda: None, kernel=LateKernel)
        flusher.start()
        for partition in (broken, sound):
            partition.end = 1
            flusher.mark(partition)
        while not flusher._round:
            await asyncio.sleep(0)
        flusher.close()

    asyncio.run(main())
    assert broken.failed is not None
    assert (sound.failed, sound.cancelled) == (None, 1)
