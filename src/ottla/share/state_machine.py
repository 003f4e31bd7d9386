"""The state of all share partitions that one partition of `__share_group_state` stands for. PURE.

    nothing --Initialize--> snapshot --Write--> update, update, ... --the N-th Write--> snapshot --Delete--> nothing

Changes come from the leader of the topic's partition (checked by leader epoch), until the group initializes it
again (state epoch). Source: KIP-932, the share coordinator of Kafka 4.3.
"""

from collections.abc import Callable
from typing import Final

from ottla.coordination.state_machine import Append, Effect, LongDecision, Reply, SetTimer, TimerFired
from ottla.errors import ErrorCode
from ottla.ids import PartitionId, TopicId
from ottla.share.state import (
    ANY_EPOCH,
    UNKNOWN_COUNT,
    UNKNOWN_START_OFFSET,
    SharePartitionKey,
    SharePartitionState,
    combine,
)
from ottla.share.state_events import (
    FRESH_EPOCH,
    DeleteState,
    FindNeeded,
    ForgetTopics,
    InitializeState,
    ReadState,
    ShareStateConfig,
    ShareStateEvent,
    StateChanged,
    StateRead,
    StateSummary,
    SummarizeState,
    WriteState,
)
from ottla.share.state_records import (
    ShareSnapshot,
    ShareStateDeleted,
    ShareStateRecord,
    ShareStateRecordFormat,
    ShareUpdate,
)

COLD: Final = ("snapshot-cold-partitions",)

NEGATIVE_PARTITION: Final = "The partition id cannot be a negative number."
NEVER_INITIALIZED_WRITE: Final = "Write operation on uninitialized share partition not allowed."
NEVER_INITIALIZED_READ: Final = "Read operation on uninitialized share partition not allowed."
NO_SUCH_PARTITION: Final = "There is no such partition."
OLD_LEADER_EPOCH: Final = "The leader epoch is older than one seen before."
OLD_STATE_EPOCH: Final = "The share-group coordinator has initialized the share partition anew since that state epoch."
BATCH_BACKWARDS: Final = "A state batch ends before it begins."


class _Known:
    """One share partition. `fence` is the highest leader epoch seen, which outlives starting over."""

    __slots__ = ("fence", "position", "snapshot", "updates")

    def __init__(self, snapshot: ShareSnapshot, fence: int, position: int) -> None:
        self.snapshot = snapshot
        self.fence = max(fence, snapshot.leader_epoch)
        self.position = position
        """Position of the last snapshot in the log: no earlier record of this share partition is needed."""
        self.updates = 0
        """Written since."""


class ShareStateMachine:
    """A `ottla.coordination.state_machine.StateMachine` of `ShareStateEvent` and `ShareStateRecord`.

    `has_partition` returns whether a topic has that partition now.
    """

    is_compacted: Final = False
    """Updates count from the snapshot before them."""

    def __init__(self, config: ShareStateConfig, has_partition: Callable[[TopicId, PartitionId], bool]) -> None:
        self.records = ShareStateRecordFormat()
        self._config = config
        self._has_partition = has_partition
        self._known: dict[SharePartitionKey, _Known] = {}

    # --- deciding ---

    def handle(self, event: ShareStateEvent | TimerFired, now_ms: int) -> list[Effect]:
        match event:
            case WriteState():
                return self._write(event, now_ms)
            case ReadState():
                return self._read(event, now_ms)
            case InitializeState():
                return self._initialize(event, now_ms)
            case SummarizeState():
                return [Reply(event, self._summary(event.key))]
            case DeleteState():
                return self._delete(event)
            case ForgetTopics():
                return self._forget_topics(event)
            case FindNeeded():
                return [Reply(event, self.needed_from())]
            case TimerFired():
                return [*self._snapshot_cold(now_ms), self._next_cold()]

    def _write(self, event: WriteState, now_ms: int) -> list[Effect]:
        refused = self._write_refusal(event)
        if refused is not None:
            return [Reply(event, refused)]
        return [Append((self._written(event, now_ms),)), Reply(event, StateChanged())]

    def _write_refusal(self, event: WriteState) -> StateChanged | None:
        key = event.key
        if key.partition < 0:
            return StateChanged(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)
        known = self._known.get(key)
        if known is None:
            return StateChanged(ErrorCode.INVALID_REQUEST, NEVER_INITIALIZED_WRITE)
        if event.leader_epoch != ANY_EPOCH and event.leader_epoch < known.fence:
            return StateChanged(ErrorCode.FENCED_LEADER_EPOCH, OLD_LEADER_EPOCH)
        if event.state_epoch != ANY_EPOCH and event.state_epoch < known.snapshot.state_epoch:
            return StateChanged(ErrorCode.FENCED_STATE_EPOCH, OLD_STATE_EPOCH)
        if any(batch.last_offset < batch.first_offset for batch in event.batches):
            return StateChanged(ErrorCode.INVALID_REQUEST, BATCH_BACKWARDS)
        return self._unless_there(key)

    def _unless_there(self, key: SharePartitionKey) -> StateChanged | None:
        if key.partition < 0:
            return StateChanged(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)
        if not self._has_partition(key.topic_id, key.partition):
            return StateChanged(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_PARTITION)
        return None

    def _written(self, event: WriteState, now_ms: int, *, takes_over: bool = False) -> ShareStateRecord:
        """The record of a write. Only a leader that takes over, by reading, moves the leader epoch."""
        known = self._known[event.key]
        leader_epoch = event.leader_epoch if takes_over else known.snapshot.leader_epoch
        update = ShareUpdate(
            event.key,
            known.snapshot.snapshot_epoch,
            leader_epoch,
            event.start_offset,
            combine((), event.batches, event.start_offset),
            event.complete_count,
        )
        if known.updates < self._config.snapshot_update_records_per_snapshot:
            return update
        return _updated(known.snapshot, update)._replace(
            snapshot_epoch=known.snapshot.snapshot_epoch + 1,
            created_ms=now_ms,
            written_ms=now_ms,
        )

    def _read(self, event: ReadState, now_ms: int) -> list[Effect]:
        key = event.key
        if key.partition < 0:
            return [Reply(event, StateRead(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION))]
        known = self._known.get(key)
        if known is None:
            return [Reply(event, StateRead(ErrorCode.INVALID_REQUEST, NEVER_INITIALIZED_READ))]
        if event.leader_epoch != ANY_EPOCH and event.leader_epoch < known.fence:
            return [Reply(event, StateRead(ErrorCode.FENCED_LEADER_EPOCH, OLD_LEADER_EPOCH))]
        gone = self._unless_there(key)
        if gone is not None:
            return [Reply(event, StateRead(gone.error, gone.message))]
        state = SharePartitionState(known.snapshot.state_epoch, known.snapshot.start_offset, known.snapshot.batches)
        reply = Reply(event, StateRead(ErrorCode.NONE, None, state))
        if event.leader_epoch in (ANY_EPOCH, known.fence):
            return [reply]
        fencing = WriteState(
            key,
            state.state_epoch,
            event.leader_epoch,
            state.start_offset,
            complete_count=known.snapshot.complete_count,
        )
        return [Append((self._written(fencing, now_ms, takes_over=True),)), reply]

    def _initialize(self, event: InitializeState, now_ms: int) -> list[Effect]:
        key = event.key
        known = self._known.get(key)
        if key.partition < 0:
            return [Reply(event, StateChanged(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION))]
        if known is not None and event.only_if_new:
            return [Reply(event, StateChanged())]
        if known is not None and event.state_epoch != ANY_EPOCH and event.state_epoch < known.snapshot.state_epoch:
            return [Reply(event, StateChanged(ErrorCode.FENCED_STATE_EPOCH, OLD_STATE_EPOCH))]
        gone = self._unless_there(key)
        if gone is not None:
            return [Reply(event, gone)]
        snapshot_epoch = 0 if known is None else known.snapshot.snapshot_epoch + 1
        record = ShareSnapshot(
            key,
            snapshot_epoch,
            event.state_epoch,
            FRESH_EPOCH,
            event.start_offset,
            now_ms,
            now_ms,
            complete_count=UNKNOWN_COUNT if event.start_offset == UNKNOWN_START_OFFSET else 0,
        )
        return [Append((record,)), Reply(event, StateChanged(starts_over=True))]

    def _summary(self, key: SharePartitionKey) -> StateSummary:
        gone = self._unless_there(key)
        if gone is not None:
            return StateSummary(gone.error, gone.message)
        known = self._known.get(key)
        if known is None:
            return StateSummary()
        state = known.snapshot
        return StateSummary(
            ErrorCode.NONE, None, state.state_epoch, state.leader_epoch, state.start_offset, state.complete_count
        )

    def _delete(self, event: DeleteState) -> list[Effect]:
        gone = self._unless_there(event.key)
        if gone is not None:
            return [Reply(event, gone)]
        if event.key not in self._known:
            return [Reply(event, StateChanged())]
        return [Append((ShareStateDeleted(event.key),)), Reply(event, StateChanged(starts_over=True))]

    def _forget_topics(self, event: ForgetTopics) -> list[Effect]:
        records = tuple(ShareStateDeleted(key) for key in self._known if key.topic_id in event.topic_ids)
        reply = Reply(event, None)
        return [Append(records), reply] if records else [reply]

    # --- keeping the log short ---

    def needed_from(self) -> int | None:
        """The position of the first record that a successor has to read; None while all are needed, or none is known.

        A log whose share partitions are all gone keeps its last records until another one comes up, as in Kafka.
        """
        first = min((known.position for known in self._known.values()), default=0)
        return first if first > 0 else None

    def _snapshot_cold(self, now_ms: int) -> list[Effect]:
        """Write anew what has not been written for long, so that the log before it can go. When every share partition
        is quiet, there is nothing to make room for."""
        snapshots = [known.snapshot for known in self._known.values()]
        if all(snapshot.created_ms != snapshot.written_ms for snapshot in snapshots):
            return []
        records = tuple(
            snapshot._replace(snapshot_epoch=snapshot.snapshot_epoch + 1, written_ms=now_ms)
            for snapshot in snapshots
            if now_ms - snapshot.written_ms >= self._config.cold_partition_snapshot_interval_ms
        )
        return [Append(records)] if records else []

    def _next_cold(self) -> SetTimer:
        return SetTimer(COLD, self._config.cold_partition_snapshot_interval_ms)

    # --- what lasts ---

    def replay(self, record: ShareStateRecord, position: int, producer_id: int) -> None:
        """Take up a record of the log; `position` is its offset."""
        known = self._known.get(record.key)
        match record:
            case ShareUpdate():
                if known is not None:  # otherwise its snapshot was deleted from the log, and a newer one follows
                    known.snapshot = _updated(known.snapshot, record)
                    known.fence = max(known.fence, record.leader_epoch)
                    known.updates += 1
            case ShareSnapshot():
                self._known[record.key] = _Known(record, FRESH_EPOCH if known is None else known.fence, position)
            case ShareStateDeleted():
                self._known.pop(record.key, None)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Does nothing: this topic has no transactions."""

    def loaded(self, now_ms: int) -> LongDecision:
        """Remove the state of topics that were deleted while the log had no leader."""
        for key in list(self._known):
            has_it = self._has_partition(key.topic_id, key.partition)
            yield None if has_it else Append((ShareStateDeleted(key),))
        yield self._next_cold()


def _updated(snapshot: ShareSnapshot, update: ShareUpdate) -> ShareSnapshot:
    start_offset = snapshot.start_offset if update.start_offset == UNKNOWN_START_OFFSET else update.start_offset
    return snapshot._replace(
        leader_epoch=snapshot.leader_epoch if update.leader_epoch == ANY_EPOCH else update.leader_epoch,
        start_offset=start_offset,
        batches=combine(snapshot.batches, update.batches, start_offset),
        complete_count=update.complete_count,
    )
