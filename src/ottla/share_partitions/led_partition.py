"""A share partition that this broker leads, at work: its state, writes, lock timer, and waiting fetches.

Its state is read from the share coordinator first; fetches that come meanwhile wait. One write is under way at a time,
and later changes go into the next. Waiting fetches are woken when records become available, not by a
timer.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ottla.config.group_settings import EARLIEST, KEY_ORDER, LATEST, READ_COMMITTED
from ottla.errors import ApiError, ErrorCode, OttlaError, sentence
from ottla.ids import GroupId, PartitionId, TopicId
from ottla.share.partition import RENEW, Acknowledgement, Limits, SharePartition, Write
from ottla.share.state import UNKNOWN_START_OFFSET, SharePartitionKey, SharePartitionState, StateBatch
from ottla.share_partitions.reads import KeptBatches, Look, SlowRead, Taken, Terms, look
from ottla.tasks import supervised

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ottla.clock import Clock
    from ottla.config.group_settings import GroupSettings
    from ottla.replication.delayed import Waiting
    from ottla.replication.partition import Partition

log = logging.getLogger(__name__)

FIRST_RETRY_S: Final = 0.05
LONGEST_RETRY_S: Final = 1.0

COMES_BACK: Final = frozenset(
    (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
)
"""The share coordinator is only away for a moment."""

SUPERSEDED: Final = frozenset((ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH))
GONE: Final = frozenset((ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

Answer = Callable[[ErrorCode], None]


class SharePersister(Protocol):
    """Where the state of share partitions is kept: the share coordinator."""

    async def read(
        self, group_id: GroupId, topic_id: TopicId, partition: PartitionId, leader_epoch: int
    ) -> SharePartitionState:
        """Raises `OttlaError`."""
        ...

    async def write(
        self,
        group_id: GroupId,
        topic_id: TopicId,
        partition: PartitionId,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        complete_count: int,
    ) -> ErrorCode: ...


def error_for_clients(code: ErrorCode) -> ErrorCode:
    """The error for members when the share coordinator has refused, translated as in Kafka 4.3."""
    if code in COMES_BACK:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in SUPERSEDED:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code if code in GONE else ErrorCode.UNKNOWN_SERVER_ERROR


class LedSharePartition:
    """Owned by `SharePartitions`; touched on the loop's thread only.

    `failure` is the reason why it cannot be used (any longer); then callers have to request it anew.
    """

    def __init__(
        self,
        key: SharePartitionKey,
        replica: "Partition",
        persister: SharePersister,
        settings: "Callable[[], GroupSettings]",
        clock: "Clock",
        loop: asyncio.AbstractEventLoop,
        readers: "Executor",
        lost: "Callable[[LedSharePartition], None]",
        idle: "Callable[[LedSharePartition], None]",
    ) -> None:
        """`lost` is called when it fails, `idle` when there is nothing to be written for now."""
        self.key = key
        self.replica = replica
        self.waiters: Waiting = {}
        self.failure: OttlaError | None = None
        self.delivered = 0
        """Records given to members; one that is given twice counts twice."""
        self.redelivered = 0
        """Those of them that had been given before."""
        self._leader_epoch = replica.leader_epoch
        """In which the state is read. A write in a later epoch would pass for one of the leader that came after."""
        self._persister = persister
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._readers = readers
        self._lost = lost
        self._idle = idle
        self._machine: SharePartition | None = None
        self._state_epoch = 0
        self._kept = KeptBatches()
        self._reading = False
        self._answers: dict[int, list[Answer]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_waking = False
        self._task: asyncio.Task[None] | None = supervised(loop, self._load(), f"loading of {self}")
        """Reads the state at first, writes it later."""

    def __str__(self) -> str:
        return f"share partition {self.key.group_id}:{self.replica.topic_partition}"

    # -- beginning and end -------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        pause = FIRST_RETRY_S
        try:
            while True:
                try:
                    state = await self._persister.read(*self.key, self._leader_epoch)
                    break
                except OttlaError as error:
                    if error.code not in COMES_BACK or not self.waiters:
                        raise ApiError(error_for_clients(error.code), f"{self} cannot be read: {error}") from error
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_RETRY_S)
            start = state.start_offset if state.start_offset != UNKNOWN_START_OFFSET else await self._first_offset()
            self._state_epoch = state.state_epoch
            self._machine = SharePartition(
                state,
                start_offset=start,
                log_end_offset=self.replica.log.log_end_offset,
                limits=self._limits(),
                key_ordered=self._settings().share_delivery_order == KEY_ORDER,
            )
        except OttlaError as error:
            log.warning("loading the state of a share partition failed: %s", sentence(error))
            self.lose(error)
            return
        except Exception as error:
            log.exception("%s cannot be read", self)
            self.lose(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            return
        self._task = None
        self.settle()
        self.wake()
        self._idle(self)

    def _limits(self) -> Limits:
        settings = self._settings()
        return Limits(settings.share_partition_max_record_locks, settings.share_delivery_count_limit)

    async def _first_offset(self) -> int:
        """The start offset by the group's `share.auto.offset.reset`."""
        replica, source = self.replica, self.replica.log
        reset = self._settings().share_auto_offset_reset
        if reset.strategy == EARLIEST:
            return source.log_start_offset
        end = replica.high_watermark if replica.has_reached_epoch_start else source.log_end_offset
        if reset.strategy == LATEST:
            return end
        since = self._clock.now_ms() - reset.duration_ms
        found = await self._loop.run_in_executor(self._readers, partial(source.offset_for_timestamp, since))
        return end if found is None else min(found.offset, end)

    @property
    def is_led(self) -> bool:
        """Whether its replica leads, and has led ever since the state was read."""
        return self.replica.leading and self.replica.leader_epoch == self._leader_epoch

    def lose(self, failure: OttlaError) -> None:
        """It cannot be used any longer: answer all waiting requests. Does nothing the second time."""
        if self.failure is not None:
            return
        self.failure = failure
        self._machine = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task(self._loop):
            self._task.cancel()
        self._lost(self)
        answers, self._answers = self._answers, {}
        for waiting in answers.values():
            for answer in waiting:
                answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wake()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being read or written for it."""
        return self._task is None and not self._reading

    def settings_changed(self) -> None:
        """The group's settings are others now."""
        if self._machine is not None:
            self._kept.clear()
            self._machine.set_limits(self._limits())
            self._machine.set_order(key_ordered=self._settings().share_delivery_order == KEY_ORDER)
            self.wake()

    # -- giving records ----------------------------------------------------------------------------------------------

    def terms(
        self, member: str, max_records: int, batch_size: int, max_bytes: int, *, at_least_one: bool, strictly: bool
    ) -> Terms:
        """What a request for records asks for, as this group's settings are now."""
        settings = self._settings()
        return Terms(
            member,
            self._lock_until(),
            max_records,
            batch_size,
            max_bytes,
            at_least_one,
            settings.share_isolation_level == READ_COMMITTED,
            strictly,
        )

    def _lock_until(self) -> float:
        """When a lock that begins now expires."""
        return self._clock.monotonic() + self._settings().share_record_lock_duration_ms / 1_000

    def look(self, terms: Terms) -> Look | SlowRead | None:
        """What could be acquired now; None while its state or the log is being read, too. Raises `OttlaError`."""
        if self.failure is not None:
            raise self.failure
        if self._machine is None or self._reading:
            return None
        if not self.is_led:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.replica.topic_partition} has had another leader")
        return look(self._machine, self.replica, self._kept, terms)

    def take(self, found: Look, max_records: int) -> Taken:
        """Acquire what a look in this turn of the loop has found."""
        taken = found.take(max_records)
        for first, last, delivery_count in taken.acquired:
            self.delivered += last + 1 - first
            self.redelivered += last + 1 - first if delivery_count > 1 else 0
        self.settle()
        return taken

    def records_in_flight(self) -> int:
        """How many records members hold now."""
        runs = () if self._machine is None else self._machine.runs()
        return sum(run.last + 1 - run.first for run in runs if run.status.is_held)

    def read_slowly(self, read: SlowRead) -> "asyncio.Future[None]":
        """Read in a thread; no other read runs meanwhile. The future raises the log's errors."""
        self._reading = True
        done = self._loop.create_future()

        def finish(result: "asyncio.Future[object]") -> None:
            self._reading = False
            failure = None if result.cancelled() else result.exception()
            if failure is None and not result.cancelled():
                read.keep(result.result())
            if not done.cancelled():
                if failure is None:
                    done.set_result(None)
                else:
                    done.set_exception(failure)
            self.wake()

        self._loop.run_in_executor(self._readers, read.run).add_done_callback(finish)
        return done

    # -- taking them back --------------------------------------------------------------------------------------------

    def acknowledge(self, member: str, acknowledgements: Sequence[Acknowledgement], answer: Answer) -> None:
        """Call `answer` once the member's acknowledgement is written, or with its error."""
        machine = self._machine
        if machine is None:
            answer(self.failure.code if self.failure is not None else ErrorCode.INVALID_RECORD_STATE)
            return
        renews = any(RENEW in said.types for said in acknowledgements)
        if renews and not self._settings().share_renew_acknowledge_enable:
            answer(ErrorCode.INVALID_RECORD_STATE)
            return
        try:
            number = machine.acknowledge(member, acknowledgements, until=self._lock_until())
        except OttlaError as error:
            answer(error.code)
            return
        if number:
            self._answers.setdefault(number, []).append(answer)
            self._write()
        else:
            answer(ErrorCode.NONE)

    def release(self, member: str) -> None:
        """A member's session is over."""
        if self._machine is not None and self._machine.release(member):
            self.settle()
            self.wake()

    def _expire(self) -> None:
        self._timer = None
        if self._machine is not None:
            self._machine.expire(self._clock.monotonic())
            self.settle()
            self.wake()

    def settle(self) -> None:
        """Something has changed: set the timer, and write what is to be written."""
        self._arm()
        self._write()

    def _arm(self) -> None:
        """Have the next lock expire in time. A timer that comes too early, because its lock was let go, sets the
        next."""
        at = self._machine.next_expiry() if self._machine is not None else None
        if at is None or (self._timer is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(max(at - self._clock.monotonic(), 0), self._expire)

    def wake(self) -> None:
        """Wake waiting fetches, once, after all events of this turn."""
        if self.waiters and not self._is_waking:
            self._is_waking = True
            self._loop.call_soon(self._wake_waiters)

    def _wake_waiters(self) -> None:
        self._is_waking = False
        for waiting in list(self.waiters):
            waiting.wake()

    # -- writing -----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        if self._machine is not None and self._task is None and (write := self._machine.take_write()) is not None:
            self._task = supervised(self._loop, self._write_on(self._machine, write), f"writes of {self}")

    async def _write_on(self, machine: SharePartition, write: Write | None) -> None:
        while write is not None:
            code = await self._write_once(write)
            if self.failure is not None:
                return
            if code in SUPERSEDED or code in GONE:
                self.lose(ApiError(error_for_clients(code), f"{self} has another leader, or is gone: {code.name}"))
                return
            machine.written(committed=code is ErrorCode.NONE)
            for answer in self._answers.pop(write.number, ()):
                answer(ErrorCode.NONE if code is ErrorCode.NONE else error_for_clients(code))
            self._arm()
            self.wake()
            # After a failure only writes with a waiting acknowledgement are retried: the next change brings the rest
            # along.
            write = machine.take_write() if code is ErrorCode.NONE or self._answers else None
        self._task = None
        self._idle(self)

    async def _write_once(self, write: Write) -> ErrorCode:
        try:
            code = await self._persister.write(
                *self.key,
                self._state_epoch,
                self._leader_epoch,
                write.start_offset,
                write.batches,
                write.complete_count,
            )
        except Exception:
            log.exception("%s cannot be written", self)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if code is not ErrorCode.NONE:
            log.warning("%s cannot be written: %s", self, code.name)
        return code
