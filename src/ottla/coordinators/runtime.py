"""Runs machines on the partitions of a coordinator's topic: append, commit, reply; replay on leadership.

One machine per partition that this broker leads. What happens to its effects:

    handle --> Append   replayed at once, encoded, put into the batch that goes out next
               Reply    handed out at once, or with the commit of the last batch it must not overtake
               Notify     the same; but a commit that comes late is waited for
               timers   kept here, come back as TimerFired

One write per partition is on its way at a time; what comes up meanwhile waits for the next one. So a lone request is
written immediately, and a thousand at once share a few writes and syncs.

A batch never mixes producers: records within a transaction stand in batches of their own, and `end_transaction` puts
the marker that ends it in line with them. One write takes as many batches as are waiting. The records of one `Append`
stand in one batch, so that a crash cannot leave half of a decision; if there are too many, in batches of one write.

When a write fails, its outcome after a crash is unknown. The machine is discarded, all waiting requests are answered
with a retriable error, and a new machine reads the log.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, cast

from ottla.clock import Clock
from ottla.coordination.markers import TransactionMarker
from ottla.coordination.producers import Producers, ProducerStateEntry, Verification
from ottla.coordination.state_machine import (
    NO_PRODUCER_ID,
    Append,
    CancelTimer,
    Effect,
    Notify,
    Reply,
    ReplyT,
    Request,
    SetTimer,
    StateMachine,
    TimerFired,
)
from ottla.coordinators.batches import MAX_RECORD_BYTES, RECORD_OVERHEAD_BYTES, QueuedBatch, next_write
from ottla.coordinators.machine_at_work import EventT, LoadState, MachineAtWork, RecordT
from ottla.coordinators.replay import replay
from ottla.errors import ApiError, CoordinatorLoadInProgress, ErrorCode, NotCoordinator, NotLeader, OttlaError
from ottla.ids import LeaderEpoch, PartitionId, ProducerIdAndEpoch
from ottla.records.batch import Buffer
from ottla.slices import SLICE_S, Slices
from ottla.tasks import Tasks

log = logging.getLogger(__name__)

LOAD_RETRY_S: Final = 2.0

Listener = Callable[[PartitionId, LeaderEpoch, Any], None]
"""Called with the message of a `Notify`, the partition it comes from and the epoch in which that is led."""


class CoordinatorLog(Protocol):
    """The coordinator's topic, as the runtime needs it."""

    async def append_committed(self, partition: PartitionId, batches: bytearray) -> object:
        """Returns when the batches are committed: they will survive. Raises `NotLeader`, `KafkaStorageError`, ..."""
        ...

    def read_all(self, partition: PartitionId) -> AsyncIterator[Buffer]:
        """The committed batches from the start of the log, in chunks of whole batches."""
        ...

    def producer(self, partition: PartitionId, producer_id: int) -> ProducerStateEntry | None:
        """What the log knows of a producer, uncommitted batches included; None for one that it does not know."""
        ...


@dataclass(slots=True, eq=False)
class _WriteMarker(Request[None]):
    """The end of a transaction, which the runtime writes itself."""

    marker: TransactionMarker


class CoordinatorRuntime(Generic[EventT, RecordT]):
    """The machines of one coordinator on this broker. Everything happens on the loop's thread."""

    def __init__(
        self,
        name: str,
        coordinator_log: CoordinatorLog,
        new_machine: Callable[[], StateMachine[EventT, RecordT]],
        clock: Clock,
        *,
        commit_timeout_ms: int = 5_000,
        listener: Listener | None = None,
    ) -> None:
        """`name` is for log lines; `commit_timeout_ms`: offsets.commit.timeout.ms; `listener`: receives `Notify`
        messages."""
        self._name = name
        self._log = coordinator_log
        self._new_machine = new_machine
        self._clock = clock
        self._commit_timeout_s = commit_timeout_ms / 1_000
        self._listener = listener
        self._partitions: dict[PartitionId, MachineAtWork[EventT, RecordT]] = {}
        self._expected: dict[PartitionId, asyncio.Event] = {}
        """Set once this broker leads the partition."""
        self._tasks = Tasks()
        self._slices = Slices(clock)
        """For the logs that are replayed, however many partitions are taken over at once."""
        self._writers: dict[PartitionId, asyncio.Task[None]] = {}
        """Writes under way, including those of discarded machines."""
        self._is_stopping = False

    # --- the partitions this broker coordinates ---

    def on_leadership(self, partition: PartitionId, epoch: LeaderEpoch) -> None:
        """This broker leads the partition: read it, then answer for it. A newer epoch of the same leader changes
        nothing."""
        current = self._partitions.get(partition)
        if self._is_stopping:
            return
        if current is not None:
            current.epoch = LeaderEpoch(max(current.epoch, epoch))
            return
        self._start_loading(partition, epoch)

    def on_resign(self, partition: PartitionId) -> None:
        """Another broker leads now (or none): send waiting requests there."""
        found = self._partitions.pop(partition, None)
        if found is not None:
            self._discard(found, ErrorCode.NOT_COORDINATOR, "the coordinator has moved")

    async def drain(self, timeout_s: float) -> None:
        """Take no requests and fire no timers from now on (members must not expire because this broker stops), and
        wait so long at most for the writes under way."""
        if not self._is_stopping:
            self._is_stopping = True
            if self._writers:
                await asyncio.wait(self._writers.values(), timeout=timeout_s)

    async def stop(self) -> None:
        """Drain, unless that has been done, then answer all waiting requests with NOT_COORDINATOR."""
        await self.drain(self._commit_timeout_s)
        for partition in list(self._partitions):
            self.on_resign(partition)
        await self._tasks.close()

    def is_active(self, partition: PartitionId) -> bool:
        found = self._partitions.get(partition)
        return found is not None and found.is_active

    async def until_active(self, partition: PartitionId, timeout_s: float, *, expected: bool = False) -> bool:
        """Wait while the partition is being read; False if it cannot be asked after all this time.

        `expected`: this broker leads it, or is about to; the topic may have been created a moment ago.
        """
        if expected and partition not in self._partitions:
            led = self._expected.setdefault(partition, asyncio.Event())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await led.wait()
        found = self._partitions.get(partition)
        if found is not None and found.is_loading:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await found.settled.wait()
        return self.is_active(partition)

    async def until_read(self, partition: PartitionId) -> None:
        """Wait until the partition's log has been read, however long that takes, or another broker leads."""
        while (found := self._partitions.get(partition)) is not None and found.is_loading:
            await found.settled.wait()

    def partitions(self) -> list[PartitionId]:
        """Those this broker leads, read or not."""
        return list(self._partitions)

    # --- asking ---

    def submit(
        self,
        partition: PartitionId,
        request: Request[ReplyT],
        *,
        producer: ProducerIdAndEpoch | None = None,
        verification: Verification | None = None,
    ) -> "asyncio.Future[ReplyT]":
        """Put a request to the partition's machine. A request is not to be submitted again before it is answered.

        With a `producer` the machine may append within its transaction, which is open here or has been verified.
        The future yields the reply's value. Raises, at once or from the future: `NotCoordinator`,
        `CoordinatorLoadInProgress`, or an `ApiError` saying why the reply got lost; `InvalidProducerEpoch` and
        `InvalidTxnState` for a producer that may not append.
        """
        found = self._asked(partition)
        if producer is not None:
            found.producers.check(producer, verification)
        future: asyncio.Future[ReplyT] = asyncio.get_running_loop().create_future()
        found.waiting[request] = future
        self._handle(found, cast("EventT", request))
        return future

    def producers(self, partition: PartitionId) -> Producers:
        """The checks of producers within transactions. Raises `NotCoordinator`, `CoordinatorLoadInProgress`."""
        return self._asked(partition).producers

    def end_transaction(self, partition: PartitionId, marker: TransactionMarker) -> "asyncio.Future[None]":
        """Write the marker after all earlier appends, and notify the machine.

        The future is done when the marker is committed. Raises as `submit`, and `InvalidProducerEpoch` or
        `TransactionCoordinatorFenced` for a marker of the past.
        """
        at = self._asked(partition)
        at.producers.check_marker(marker)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        write = _WriteMarker(marker)
        at.waiting[write] = future
        try:
            at.machine.end_transaction(marker.producer_id, committed=marker.committed)
        except Exception:
            self._is_broken(at, marker)
            return future
        batch = self._new_batch(at, QueuedBatch(marker=marker))
        batch.replies.append(Reply(write, None))
        at.producers.ended(marker, batch)
        at.position += 1
        self._write_what_is_queued(at)
        return future

    def _asked(self, partition: PartitionId) -> MachineAtWork[EventT, RecordT]:
        found = self._partitions.get(partition)
        if found is None:
            raise NotCoordinator(f"this broker does not lead partition {partition} of the {self._name}'s topic")
        if self._is_stopping:
            raise NotCoordinator(f"this broker is stopping: another one takes over the {self._name}'s topic")
        if not found.is_active:
            raise CoordinatorLoadInProgress(f"partition {partition} of the {self._name}'s topic is being read")
        return found

    def _handle(self, at: MachineAtWork[EventT, RecordT], event: EventT | TimerFired) -> None:
        at.remember(event)
        try:
            effects = at.machine.handle(event, self._clock.now_ms())
            self._carry_out(at, effects)
        except Exception:
            self._is_broken(at, event)

    def _is_broken(self, at: MachineAtWork[EventT, RecordT], event: object) -> None:
        """A defect. The machine may have stopped half way, so what it knows is not to be relied on."""
        log.exception(
            "%s %d: cannot handle %s; the events that led to it: %s",
            self._name,
            at.partition,
            type(event).__name__,
            at.story(),
        )
        self._start_over(at, ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator failed")

    # --- effects ---

    def _carry_out(self, at: MachineAtWork[EventT, RecordT], effects: Sequence[Effect | None]) -> None:
        for place, effect in enumerate(effects):
            match effect:
                case Reply():
                    self._reply(at, effect)
                case Notify(message):
                    self._notify(at, message)
                case SetTimer(key, after_ms):
                    at.timers.set(key, self._clock.monotonic() + after_ms / 1_000)
                case Append(records, producer):
                    if not self._append(at, records, producer):
                        self._refuse_all(at, effects[place:], ErrorCode.UNKNOWN_SERVER_ERROR, "a record is too large")
                        break
                case CancelTimer(key):
                    at.timers.cancel(key)
        self._schedule_wakeup(at)
        self._write_what_is_queued(at)

    def _write_what_is_queued(self, at: MachineAtWork[EventT, RecordT]) -> None:
        if at.batches and at.writer is None:
            at.writer = self._tasks.spawn(self._write(at), f"{self._name}-{at.partition}-write")
            self._writers[at.partition] = at.writer

    def _append(
        self, at: MachineAtWork[EventT, RecordT], records: tuple[RecordT, ...], producer: ProducerIdAndEpoch | None
    ) -> bool:
        """They go into one batch, of which a crash leaves all or nothing, unless no batch can take so many.

        False: one of them is too large for any batch, and nothing has happened.
        """
        encoded = [at.machine.records.encode(record) for record in records]
        sizes = [len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in encoded]
        largest = max(sizes, default=0)
        if largest > MAX_RECORD_BYTES:
            kind = type(records[sizes.index(largest)]).__name__
            log.warning("%s %d: a record of %d bytes is not written: %s", self._name, at.partition, largest, kind)
            return False
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        now_ms = self._clock.now_ms()
        batch = at.batches[-1] if len(at.batches) > at.sent else None
        if batch is not None and not batch.takes(producer, sum(sizes)):
            batch = None
        is_begun = False
        for record, (key, value), size_bytes in zip(records, encoded, sizes, strict=True):
            at.machine.replay(record, at.position, producer_id)
            at.position += 1
            if batch is None or not batch.takes(producer, size_bytes):
                batch = self._new_batch(at, QueuedBatch(producer, continues=is_begun))
                if producer is not None:
                    at.producers.appended(producer, batch)
            batch.add(key, value, now_ms, size_bytes)
            is_begun = True
        return True

    def _new_batch(self, at: MachineAtWork[EventT, RecordT], batch: QueuedBatch) -> QueuedBatch:
        batch.timeout = asyncio.get_running_loop().call_later(self._commit_timeout_s, self._is_late, at, batch)
        at.batches.append(batch)
        return batch

    def _reply(self, at: MachineAtWork[EventT, RecordT], reply: Reply[Any]) -> None:
        if not at.batches:
            self._hand_out(at, reply)
        elif at.batches[-1].is_late:
            self._refuse(at, reply, ErrorCode.COORDINATOR_NOT_AVAILABLE, "not committed in time")
        else:
            at.batches[-1].replies.append(reply)

    def _notify(self, at: MachineAtWork[EventT, RecordT], message: Any) -> None:
        if at.batches:
            at.batches[-1].messages.append(message)
        else:
            self._call_listener(at, message)

    def _call_listener(self, at: MachineAtWork[EventT, RecordT], message: Any) -> None:
        if self._listener is None:
            return
        try:
            self._listener(at.partition, at.epoch, message)
        except Exception:  # a defect of the listener: the messages that follow, and the writes, must not end with it
            log.exception("%s %d: the listener failed on %s", self._name, at.partition, type(message).__name__)

    def _hand_out(self, at: MachineAtWork[EventT, RecordT], reply: Reply[Any]) -> None:
        future = at.waiting.pop(reply.request, None)
        if future is not None and not future.done():
            future.set_result(reply.value)

    def _refuse(self, at: MachineAtWork[EventT, RecordT], reply: Reply[Any], code: ErrorCode, why: str) -> None:
        future = at.waiting.pop(reply.request, None)
        if future is not None and not future.done():
            future.set_exception(ApiError(code, why))

    def _refuse_all(
        self, at: MachineAtWork[EventT, RecordT], effects: Sequence[Effect | None], code: ErrorCode, why: str
    ) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._refuse(at, effect, code, why)

    # --- writing ---

    async def _write(self, at: MachineAtWork[EventT, RecordT]) -> None:
        try:
            await self._write_batches(at)
        finally:
            if self._writers.get(at.partition) is asyncio.current_task():
                del self._writers[at.partition]

    async def _write_batches(self, at: MachineAtWork[EventT, RecordT]) -> None:
        while at.batches:  # none are left once the machine is gone
            sent = next_write(at.batches)
            at.sent = len(sent)
            now_ms = self._clock.now_ms()
            try:
                await self._log.append_committed(at.partition, bytearray().join(batch.encode(now_ms) for batch in sent))
            except Exception as error:
                if not at.is_gone:
                    self._write_failed(at, sent, error)
                return
            at.sent = 0
            if at.is_gone:
                return
            for batch in sent:
                at.batches.popleft()
                batch.put_in_log(at.producers)
                _stop(batch.timeout)
            for batch in sent:
                for reply in batch.replies:
                    self._hand_out(at, reply)
                for message in batch.messages:
                    self._call_listener(at, message)
        at.writer = None

    def _write_failed(self, at: MachineAtWork[EventT, RecordT], sent: list[QueuedBatch], error: Exception) -> None:
        at.writer = None
        code = error_for_clients(error)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR and not isinstance(error, OttlaError):
            log.exception("%s %d: cannot append", self._name, at.partition, exc_info=error)
        else:
            log.warning("%s %d: cannot append: %s", self._name, at.partition, error)
        for batch in sent:
            self._refuse_all(at, batch.replies, code, str(error))
        if isinstance(error, NotLeader):
            # Leadership is uncertain, or of a new epoch. Had it ended, this machine would be gone; if it continues, no
            # further notification comes.
            self._start_over(at, ErrorCode.NOT_COORDINATOR, "leadership is not certain", pause_s=LOAD_RETRY_S)
        else:
            is_short = isinstance(error, OttlaError) and error.code is ErrorCode.NOT_ENOUGH_REPLICAS
            pause_s = LOAD_RETRY_S if is_short else 0.0  # it lasts, and each attempt has the whole log read
            self._start_over(
                at, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is starting over", pause_s=pause_s
            )

    def _is_late(self, at: MachineAtWork[EventT, RecordT], batch: QueuedBatch) -> None:
        """The write may still commit, so the state stands; but its waiting requests are answered."""
        batch.is_late = True
        replies, batch.replies = batch.replies, []
        if replies:
            log.warning("%s %d: not committed within %.1f s", self._name, at.partition, self._commit_timeout_s)
        self._refuse_all(at, replies, ErrorCode.COORDINATOR_NOT_AVAILABLE, "not committed in time")

    # --- timers ---

    def _schedule_wakeup(self, at: MachineAtWork[EventT, RecordT]) -> None:
        next_look = at.timers.next_look() if at.is_active else None
        if next_look is None or (at.wakeup is not None and at.wakeup_at <= next_look):
            return
        _stop(at.wakeup)
        at.wakeup_at = next_look
        delay_s = max(next_look - self._clock.monotonic(), 0.0)
        at.wakeup = asyncio.get_running_loop().call_later(delay_s, self.fire_timers, at.partition)

    def fire_timers(self, partition: PartitionId) -> None:
        """Pass the partition's machine the timers that are due."""
        at = self._partitions.get(partition)
        if at is None or not at.is_active or self._is_stopping:
            return
        _stop(at.wakeup)
        at.wakeup = None
        end = self._clock.monotonic() + SLICE_S
        for key in at.timers.due(self._clock.monotonic()):
            self._handle(at, TimerFired(key))
            if self._clock.monotonic() >= end:
                break  # after a takeover thousands come due at once: the others in turns of their own
        self._schedule_wakeup(at)

    # --- loading ---

    def _start_loading(self, partition: PartitionId, epoch: LeaderEpoch, pause_s: float = 0.0) -> None:
        producers = Producers(partial(self._log.producer, partition))
        found: MachineAtWork[EventT, RecordT] = MachineAtWork(partition, epoch, producers)
        self._partitions[partition] = found
        led = self._expected.pop(partition, None)
        if led is not None:
            led.set()
        writer = self._writers.get(partition)
        predecessor = None if writer is asyncio.current_task() else writer
        self._tasks.spawn(self._load(found, predecessor, pause_s), f"{self._name}-{partition}-load")

    async def _load(
        self, at: MachineAtWork[EventT, RecordT], predecessor: "asyncio.Task[None] | None", pause_s: float
    ) -> None:
        if pause_s:
            await asyncio.sleep(pause_s)
        if predecessor is not None:  # what it is writing would otherwise be missed
            await asyncio.wait([predecessor])
        messages: list[Notify] = []
        while at.is_loading:
            at.machine = self._new_machine()  # in a turn of its own: a new topic brings fifty
            try:
                read = self._log.read_all(at.partition)
                at.position = await replay(at.machine, read, self._slices, lambda: at.is_loading)
                messages = await self._carry_out_at_first(at)
            except Exception as error:
                if not isinstance(error, OttlaError):
                    log.exception("%s %d: cannot read its log", self._name, at.partition)
                else:
                    log.error("%s %d: cannot read its log: %s", self._name, at.partition, error)
                await asyncio.sleep(LOAD_RETRY_S)
                continue
            break
        if at.is_loading:
            at.state = LoadState.ACTIVE
            at.settled.set()
            self._schedule_wakeup(at)
            await self._notify_slowly(at, messages)

    async def _carry_out_at_first(self, at: MachineAtWork[EventT, RecordT]) -> list[Notify]:
        """Do what the machine asks for once it knows its log. Notifications follow later, since their receivers may ask
        it."""
        at.timers.clear()
        messages: list[Notify] = []
        for effect in at.machine.loaded(self._clock.now_ms()):
            await self._slices.pause()
            if not at.is_loading:
                break
            if isinstance(effect, Notify):
                messages.append(effect)
            elif effect is not None:
                self._carry_out(at, [effect])
        return messages

    async def _notify_slowly(self, at: MachineAtWork[EventT, RecordT], messages: list[Notify]) -> None:
        for message in messages:
            await self._slices.pause()
            if not at.is_active:
                return
            self._carry_out(at, [message])

    # --- the end of a machine ---

    def _start_over(
        self, at: MachineAtWork[EventT, RecordT], code: ErrorCode, why: str, *, pause_s: float = 0.0
    ) -> None:
        self._discard(at, code, why)
        if self._partitions.get(at.partition) is at:
            self._start_loading(at.partition, at.epoch, pause_s)

    def _discard(self, at: MachineAtWork[EventT, RecordT], code: ErrorCode, why: str) -> None:
        at.state = LoadState.GONE
        at.settled.set()
        at.timers.clear()
        _stop(at.wakeup)
        for batch in at.batches:
            _stop(batch.timeout)
        at.batches.clear()
        waiting, at.waiting = at.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ApiError(code, why))


def error_for_clients(error: Exception) -> ErrorCode:
    """What a failed write to the coordinator's own log means to a client, which knows nothing of that log."""
    match error.code if isinstance(error, OttlaError) else ErrorCode.UNKNOWN_SERVER_ERROR:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
            | ErrorCode.COORDINATOR_NOT_AVAILABLE
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR | ErrorCode.NOT_COORDINATOR:
            return ErrorCode.NOT_COORDINATOR
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR


def _stop(handle: asyncio.TimerHandle | None) -> None:
    if handle is not None:
        handle.cancel()
