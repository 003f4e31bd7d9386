"""Group commit: one flusher per log directory makes many appends durable with one round of fdatasync.

    appends of one loop turn --mark--> dirty --one round--> [kernel or thread: fdatasync] --> synced, on the loop
                                        |^                                                       |
                                        |`---- later appends wait for the next <--'
                                        `-- new files, checkpoints --> queue --> [a few threads] --> synced, on the loop

While a round is under way no other is, so a slow disk makes rounds larger, not more numerous. A round goes to the
kernel's workers (`ottla.log.kernel_sync`) or, where the kernel cannot, to a thread. Only data takes part in rounds: a
partition with more to bring to the disk (its first files, a new segment, an epoch, data to be written again) does that
beside them, in threads of its own, since a thousand new partitions would otherwise hold up all others. Partitions that
were synced before come first; of the others, one of each topic in turn. A partition is in one place at a time; later
appends to it wait.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from queue import SimpleQueue
from select import POLLIN, poll
from time import monotonic
from typing import Final, Protocol

from ottla.ids import TopicPartition
from ottla.log.flush import FlushTicket
from ottla.log.kernel_sync import MAX_FILES, KernelSync, open_kernel_sync, sync_error

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
LATER_S: Final = 1.0
"""How long data without a waiting request may stay unsynced: a follower that loses power loses at most this much."""
MIN_GATHER_S: Final = 0.0005
MAX_GATHER_S: Final = 0.003
MOST_PER_ROUND: Final = 200
SIDE_THREADS: Final = 4
"""That sync beside the rounds: what they wait for at the same time shares commits of the filesystem's journal."""
JOBS_AT_ONCE: Final = 4


class Flushable(Protocol):
    """A partition, as the flusher sees it; all on the loop's thread."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    def prepare_flush(self) -> FlushTicket | None:
        """Pin what is to be synced, up to the current log end; None if there is nothing."""
        ...

    def flushed(self, ticket: FlushTicket) -> None:
        """All of the ticket is durable."""
        ...

    def flush_failed(self, ticket: FlushTicket | None, error: Exception) -> None:
        """Some of the ticket may not be durable, now or ever; None: no ticket could be had."""
        ...

    def flush_cancelled(self, ticket: FlushTicket) -> None:
        """The flusher closes and does not vouch for the ticket: its work is to be synced by another."""
        ...


class _Job:
    """One partition's part of a round."""

    __slots__ = ("error", "partition", "ticket")

    def __init__(self, partition: Flushable, ticket: FlushTicket) -> None:
        self.partition = partition
        self.ticket = ticket
        self.error: Exception | None = None


class _FairQueue:
    """Jobs of several topics, one of each in turn: a client that makes a thousand partitions is one among others."""

    def __init__(self) -> None:
        self._by_topic: dict[str, deque[_Job]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def __iter__(self) -> Iterator[_Job]:
        return chain.from_iterable(self._by_topic.values())

    def append(self, job: _Job) -> None:
        self._by_topic.setdefault(job.partition.topic_partition.topic, deque()).append(job)

    def popleft(self) -> _Job:
        topic, jobs = next(iter(self._by_topic.items()))
        job = jobs.popleft()
        del self._by_topic[topic]  # it goes behind the others
        if jobs:
            self._by_topic[topic] = jobs
        return job

    def clear(self) -> None:
        self._by_topic.clear()


class RoundRunner(Protocol):
    """Where rounds are synced that the kernel does not sync by itself."""

    def run(self, work: Callable[[], None]) -> None:
        """Do the work soon, one after the other, and not on the loop."""
        ...

    def close(self) -> None:
        """Wait until all work is done; none comes any more."""
        ...


class RoundThread:
    """A thread of its own, started with the first work."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def run(self, work: Callable[[], None]) -> None:
        """Queue work for the thread, which the first call starts."""
        if self._thread.ident is None:
            self._thread.start()
        self._work.put(work)

    def close(self) -> None:
        """Let the thread finish its queue, and wait for it."""
        self._work.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


class GroupCommit:
    """The flusher of one log directory. `start` before the first `mark`; `close` waits for the round under way."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        round_finished: Callable[[], None],
        *,
        runner: RoundRunner | None = None,
        side_runners: "Sequence[RoundRunner] | None" = None,
        kernel: Callable[[], KernelSync | None] = open_kernel_sync,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        """`kernel` opens what syncs without a thread, or gives None; `runner` does what the kernel does not, and
        `side_runners` what is done beside the rounds."""
        self.on_error: Callable[[OSError], None] = _nobody
        """Called on the loop with each error of the disk."""
        self._name = name
        self._runner = runner or RoundThread(f"flush {name}")
        if side_runners is None:
            side_runners = [RoundThread(f"flush {name}, new files {number}") for number in range(SIDE_THREADS)]
        self._side_runners = side_runners
        self._free_runners = list(side_runners)
        self._jobs_aside: dict[RoundRunner, list[_Job]] = {}
        """What those runners that are not free sync."""
        self._aside: dict[Flushable, bool] = {}
        """Partitions that are synced beside the rounds, and whether they were marked meanwhile."""
        self._queue: deque[_Job] = deque()
        self._new_queue = _FairQueue()
        self._is_closed = False
        self._open_kernel = kernel
        self._monotonic = monotonic
        self._loop = loop
        self._round_finished = round_finished
        self._dirty: dict[Flushable, None] = {}
        self._failed: dict[Flushable, None] = {}
        self._busy = False
        self._retry: asyncio.TimerHandle | None = None
        self._unhurried: dict[Flushable, None] = {}
        self._later: asyncio.TimerHandle | None = None
        self._kernel: KernelSync | None = None
        self._round: list[_Job] = []
        self._round_began = 0.0
        self._marks = 0
        self._marks_of_round = 0
        self._expected_marks = 0
        self._gather_until = 0.0
        self._gathering: asyncio.TimerHandle | None = None
        self._job_of_file: list[_Job] = []
        self.rounds = 0
        """Rounds that have ended; new files are synced beside them."""
        self.round_s = 0.0
        """How long they took, together."""
        self.synced = 0
        """Partitions that took part in them, together."""
        self.on_round: Callable[[float, float], None] | None = None
        """Called with the times at which a round began and ended, where requests are traced."""

    def start(self) -> None:
        """Begin to serve."""
        self._kernel = self._open_kernel()
        if self._kernel is not None:
            self._loop.add_reader(self._kernel.event_fd, self._reap)

    def mark(self, partition: Flushable) -> None:
        """The partition has unsynced data for which a request waits."""
        if partition in self._aside:
            self._aside[partition] = True
            return
        self._dirty[partition] = None
        self._marks += 1
        if not self._busy:
            self._busy = True
            self._schedule_round()
        elif self._gathering is not None and self._marks >= self._expected_marks:
            self._gathering.cancel()
            self._gathering = None
            self._loop.call_soon(self._begin_round)

    def mark_later(self, partition: Flushable) -> None:
        """The partition has unsynced data for which no request waits: it is synced within `LATER_S`, with
        others."""
        self._unhurried[partition] = None
        if self._later is None:
            self._later = self._loop.call_later(LATER_S, self._mark_unhurried)

    def _mark_unhurried(self) -> None:
        self._later = None
        unhurried, self._unhurried = self._unhurried, {}
        for partition in unhurried:
            self.mark(partition)

    def _schedule_round(self) -> None:
        """Soon: after this turn's other appends, and when those whose data the last round has synced have sent more.

        A round costs nearly the same for a little data as for much. Without the wait, clients that keep several
        requests in flight fall into two halves, each synced on its own. It ends when as much has come as is expected,
        or when it has lasted as long as the round did; a round of less than half a millisecond is not waited for.
        """
        wait = self._gather_until - self._monotonic()
        if wait > MIN_GATHER_S and self._marks < self._expected_marks:
            self._gathering = self._loop.call_later(wait, self._begin_round)
        else:
            self._loop.call_soon(self._begin_round)

    def forget(self, partition: Flushable) -> None:
        """The partition is gone (deleted, moved)."""
        self._dirty.pop(partition, None)
        self._unhurried.pop(partition, None)
        self._failed.pop(partition, None)
        if partition in self._aside:
            self._aside[partition] = False

    def _begin_round(self) -> None:
        if self._is_closed:  # a ticket would take what the close of its log is to sync, and nobody would sync it
            return
        self._gathering = None
        self._marks_of_round, self._marks = self._marks, 0
        dirty, self._dirty = self._dirty, {}
        if len(dirty) > MOST_PER_ROUND:  # the others take part in the next one: to prepare them takes the loop's time
            self._dirty = dict(islice(dirty.items(), MOST_PER_ROUND, None))
            dirty = dict(islice(dirty.items(), MOST_PER_ROUND))
        round_: list[_Job] = []
        files: list[int] = []
        jobs: list[_Job] = []
        needs_thread = self._kernel is None
        for partition in dirty:
            try:
                ticket = partition.prepare_flush()
            except Exception as error:  # a defect, or a log past help: the others' syncs go on
                self._fail(partition, None, error)
                continue
            if ticket is None:
                continue
            job = _Job(partition, ticket)
            if not ticket.is_data_alone:
                self._aside[partition] = False
                (self._new_queue if ticket.is_first else self._queue).append(job)
                continue
            round_.append(job)
            if not needs_thread:
                descriptors = ticket.descriptors()
                if descriptors is None:
                    needs_thread = True
                else:
                    files += descriptors
                    jobs += [job] * len(descriptors)
        self._work_aside()
        if not round_:
            self._busy = bool(self._dirty)
            if self._busy:
                self._loop.call_soon(self._begin_round)
            return
        self._round = round_
        self._round_began = self._monotonic()
        if needs_thread or self._kernel is None or len(files) > MAX_FILES:
            self._runner.run(partial(self._sync, round_))
            return
        self._job_of_file = jobs
        if self._kernel.submit(files) < len(files):
            log.warning(
                "log directory %s: the kernel refuses asynchronous syncs; a thread does them from now on", self._name
            )
            self._leave_kernel()

    # -- beside the rounds ---------------------------------------------------------------------------------------------

    def _work_aside(self) -> None:
        while self._free_runners and not self._is_closed:
            jobs = [
                (self._queue or self._new_queue).popleft()
                for _ in range(min(JOBS_AT_ONCE, len(self._queue) or len(self._new_queue)))
            ]
            if not jobs:
                return
            runner = self._free_runners.pop()
            self._jobs_aside[runner] = jobs
            runner.run(partial(self._sync_aside, runner, jobs))

    def _sync_aside(self, runner: RoundRunner, jobs: list[_Job]) -> None:
        _sync_all(jobs)
        with suppress(RuntimeError):  # as in `_sync`
            self._loop.call_soon_threadsafe(self._end_aside, runner, jobs)

    def _end_aside(self, runner: RoundRunner, jobs: list[_Job]) -> None:
        if self._is_closed:  # `close` has given the tickets back
            return
        del self._jobs_aside[runner]
        self._free_runners.append(runner)
        for job in jobs:
            was_marked = self._aside.pop(job.partition)
            self._end_job(job)
            if was_marked:
                self.mark(job.partition)
        self._round_finished()
        self._work_aside()

    # -- rounds of the kernel ----------------------------------------------------------------------------------------

    def _reap(self) -> None:
        assert self._kernel is not None
        if self._take_results(self._kernel):
            self._end_round(self._round)

    def _take_results(self, kernel: KernelSync) -> bool:
        """Note what the kernel could not sync; False if it is not done yet."""
        done = kernel.reap()
        if not done:
            return False
        for number, code in done:
            if code:
                self._job_of_file[number].error = sync_error(code)
        self._job_of_file = []
        return True

    def _leave_kernel(self) -> None:
        """Give the kernel up for good, and the round under way to the thread."""
        assert self._kernel is not None
        self._loop.remove_reader(self._kernel.event_fd)
        self._kernel.close()  # waits for what was taken
        self._kernel = None
        self._job_of_file = []
        self._runner.run(partial(self._sync, self._round))

    # -- rounds of the thread ----------------------------------------------------------------------------------------

    def _sync(self, round_: list[_Job]) -> None:
        _sync_all(round_)
        with suppress(RuntimeError):  # the loop was closed under a broker that was not stopped
            self._loop.call_soon_threadsafe(self._end_round, round_)

    def _end_round(self, round_: list[_Job]) -> None:
        if self._is_closed:  # as in `_end_aside`
            return
        now = self._monotonic()
        self._gather_until = now + min(MAX_GATHER_S, now - self._round_began)
        self.rounds += 1
        self.round_s += now - self._round_began
        self.synced += len(round_)
        if self.on_round is not None:
            self.on_round(self._round_began, now)
        self._expected_marks = self._marks + self._marks_of_round
        self._round = []
        for job in round_:
            self._end_job(job)
        self._round_finished()
        if self._dirty:
            self._schedule_round()
        else:
            self._busy = False

    def _end_job(self, job: _Job) -> None:
        if job.error is not None:
            self._fail(job.partition, job.ticket, job.error)
            return
        try:
            job.partition.flushed(job.ticket)
        except Exception:  # a defect; the others' waiters must not pay for it
            log.exception("log directory %s: a sync could not be acted on", self._name)

    def _fail(self, partition: Flushable, ticket: FlushTicket | None, error: Exception) -> None:
        details = None if isinstance(error, OSError) else error
        log.error("log directory %s: a sync failed: %s", self._name, error, exc_info=details)
        partition.flush_failed(ticket, error)
        if isinstance(error, OSError):
            self.on_error(error)
        self._failed[partition] = None
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._mark_failed)

    def _mark_failed(self) -> None:
        self._retry = None
        failed, self._failed = self._failed, {}
        for partition in failed:
            self.mark(partition)

    def close(self) -> None:
        """Let what is under way finish; then nothing is synced, and no partition is called, though the loop goes on.

        Each ticket that is still out goes back to its partition, since the log takes its work for done or under way:
        the next close of the log would leave it unsynced.
        """
        self._is_closed = True
        for timer in (self._retry, self._gathering, self._later):
            if timer is not None:
                timer.cancel()
        if self._kernel is not None:
            self._loop.remove_reader(self._kernel.event_fd)
            events = poll()
            events.register(self._kernel.event_fd, POLLIN)
            while self._job_of_file and not self._take_results(self._kernel):
                events.poll()
            self._kernel.close()
            self._kernel = None
        self._runner.close()
        for runner in self._side_runners:
            runner.close()
        for job in chain(self._round, *self._jobs_aside.values(), self._queue, self._new_queue):
            if job.error is None:
                job.partition.flush_cancelled(job.ticket)
            else:
                log.error("log directory %s: a sync failed: %s", self._name, job.error)
                job.partition.flush_failed(job.ticket, job.error)
        self._queue.clear()
        self._new_queue.clear()


def _sync_all(jobs: list[_Job]) -> None:
    """In a thread."""
    if len(jobs) > 1:
        for job in jobs:
            job.ticket.begin()
    for job in jobs:
        try:
            job.ticket.sync()
        except Exception as error:  # not OSError alone: the rounds must go on, and this job has failed
            job.error = error


def _nobody(problem: OSError) -> None:
    """The default callback: requests that wait for the sync get the error anyway."""


NewFlusher = Callable[[str, asyncio.AbstractEventLoop, Callable[[], None]], GroupCommit]
"""As `GroupCommit`: of the log directory of this name, on this loop, to call this after each round."""
