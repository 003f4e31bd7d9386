"""One partition of a topic as one share group reads it: the state and the holder of its records. PURE.

                    acquire                    acknowledge (accept)
    AVAILABLE ----------------> ACQUIRED --------------------------> ACKNOWLEDGED
        ^                          |
        |  release, lock expired,  |  reject, gap; released or expired for the last time
        |  end of the session      |
        '--------------------------+-------------------------------> ARCHIVED

An acknowledgement is answered, and counts, once it is written. Changes made during a write go into the next write.
Expired locks and ended sessions take effect at once, since the holder of the records is gone. Acquiring writes nothing,
so a new leader delivers unacknowledged records again, as KIP-932 requires.

With `share.delivery.order=key`, `ottla.share.keys` chooses the deliverable records; they are acquired one by one.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from ottla.errors import ApiError, CorruptMessage, ErrorCode
from ottla.share.keys import KeyOrder
from ottla.share.state import DeliveryState, SharePartitionState, StateBatch, combine
from ottla.share.window import FINISHED, SETTLED, Held, RecordState, Run, Status, Window

NEVER_DELIVERED: Final = Status(RecordState.AVAILABLE)
NOT_THERE: Final = Status(RecordState.ARCHIVED)

OUTCOMES: Final = {
    0: RecordState.ARCHIVED,  # a gap: there was no record at this offset
    1: RecordState.ACKNOWLEDGED,  # accept
    2: RecordState.AVAILABLE,  # release
    3: RecordState.ARCHIVED,  # reject
}
"""What the acknowledge types of the protocol make of a record."""

RENEW: Final = 4
"""The acknowledge type that only holds a record for longer (KIP-1222)."""

REMEMBERED: Final = frozenset(DeliveryState)


class Limits(NamedTuple):
    """`share.partition.max.record.locks` and `share.delivery.count.limit` of the group."""

    max_record_locks: int
    delivery_count_limit: int

    @property
    def isolates_from(self) -> int:
        """From this delivery count on fewer and fewer records are given together: one of them may be what fails."""
        return max(2, (self.delivery_count_limit + 1) // 2)

    def together(self, run: "Run") -> int:
        """How many of the records of an available run may be given at once."""
        count = run.status.delivery_count
        length = run.last + 1 - run.first
        if count < self.isolates_from:
            return length
        if count >= self.delivery_count_limit - 1 and self.delivery_count_limit > 2:
            return 1  # for the last time: alone, so that it takes no others along
        return max(1, length >> 1)


class Fetched(NamedTuple):
    """One batch that was read; both offsets are inclusive. Control batches and aborted ones are not `deliverable`."""

    first: int
    last: int
    deliverable: bool = True


class Acquired(NamedTuple):
    """Records given to a member, for the how manieth time; both offsets are inclusive."""

    first: int
    last: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """A member's acknowledgement. `types`: one for all records, or one for each (keys of `OUTCOMES`, or `RENEW`)."""

    first: int
    last: int
    types: Sequence[int]


class Write(NamedTuple):
    """State to be written; the caller passes `number` to `written` or `write_failed` afterwards."""

    number: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    complete_count: int = 0
    """How many of the records from `start_offset` on are finished once this is written (KIP-1226)."""


class SharePartition:
    """The records under way, from the first that is not finished.

    Built from what is remembered (`state`), where the share group starts if that does not say (`start_offset`), and
    where the log ends: what a crash has taken from the log is forgotten here too. Times are seconds of one monotonic
    clock. Raises CorruptMessage for a state of delivery that this version does not know.
    """

    def __init__(
        self,
        state: SharePartitionState,
        *,
        start_offset: int,
        log_end_offset: int,
        limits: Limits,
        key_ordered: bool = False,
    ) -> None:
        self._limits = limits
        self._window = window = Window(min(start_offset, log_end_offset))
        self._may_be_available = bool(state.batches)
        self._next_number = SETTLED + 1
        self._writing: Write | None = None
        self._awaited: list[StateBatch] = []
        """Acknowledgements for the next write."""
        self._unwritten_outcomes: list[StateBatch] = []
        """For the next write: changes that have taken effect already."""
        self._outcomes_in_flight: list[StateBatch] = []
        self._written_start = state.start_offset
        for batch in state.batches:
            first, last = max(batch.first_offset, window.end), min(batch.last_offset, log_end_offset - 1)
            if first > last:
                continue
            if first > window.end:
                window.put(window.end, first - 1, NEVER_DELIVERED)
            if batch.delivery_state not in REMEMBERED:
                raise CorruptMessage(f"offset {first} is in the unknown state {batch.delivery_state}")
            window.put(first, last, Status(RecordState(batch.delivery_state), batch.delivery_count))
        self._keys: KeyOrder | None = None
        self._advance()
        self.set_order(key_ordered=key_ordered)

    @property
    def start_offset(self) -> int:
        """The first offset that is not finished."""
        return self._window.start

    @property
    def end_offset(self) -> int:
        """The first offset that was never acquired and whose key is not known."""
        return self._window.end

    @property
    def is_key_ordered(self) -> bool:
        return self._keys is not None

    def runs(self) -> list[Run]:
        """The records under way."""
        return list(self._window.runs())

    def set_limits(self, limits: Limits) -> None:
        """From now on. What is held already stays so."""
        self._limits = limits

    def set_order(self, *, key_ordered: bool) -> None:
        """From now on in this order. What is held already stays so; its keys have to be learnt again."""
        if key_ordered != self.is_key_ordered:
            self._keys = KeyOrder(self._window.start) if key_ordered else None
            self._may_be_available = True

    # -- in any order ------------------------------------------------------------------------------------------------

    def next_offset(self) -> int | None:
        """Where to read what can be acquired; None while as many records as may be are under way."""
        window = self._window
        if self._may_be_available:
            for run in window.runs():
                if run.status.is_available:
                    return run.first
            self._may_be_available = False
        return window.end if window.end - window.start < self._limits.max_record_locks else None

    def acquire(
        self,
        member: str,
        offset: int,
        fetched: Iterable[Fetched],
        *,
        until: float,
        max_records: int,
        batch_size: int,
        strictly: bool = False,
    ) -> list[Acquired]:
        """Acquire available records for a member, from batches that were read from `offset` on (see `next_offset`).

        Acquires whole batches until there are `max_records`, and with `strictly` exactly that limit (KIP-1206); results
        have
        about `batch_size` records. Offsets missing between the batches (compaction) and undeliverable records count as
        finished.
        Records with many delivery attempts come in smaller portions, alone.
        """
        window = self._window
        found: list[Acquired] = []
        count = 0
        cursor = offset
        is_last = False
        for batch in fetched:
            if is_last or count >= max_records:
                break
            if batch.last < cursor:
                continue
            first = max(batch.first, cursor)
            if cursor < first:
                self._archive(cursor, first - 1)
            cursor = batch.last + 1
            if not batch.deliverable:
                self._archive(first, batch.last)
                continue
            for run in list(window.runs(first, batch.last)):
                if not run.status.is_available or is_last:
                    continue
                is_last = run.status.delivery_count >= self._limits.isolates_from
                if is_last and count:
                    break
                most = self._limits.together(run)
                if strictly:
                    most = min(most, max_records - count)
                    is_last = is_last or count + most >= max_records
                some = run._replace(last=min(run.last, run.first + most - 1))
                count += self._acquire(some, member, until, found, batch_size)
            begin = max(first, window.end)
            if begin <= batch.last and not is_last:
                if window.end - window.start >= self._limits.max_record_locks:
                    break
                window.put(begin, batch.last, NEVER_DELIVERED)
                last = min(batch.last, begin + max_records - count - 1) if strictly else batch.last
                self._may_be_available = self._may_be_available or last < batch.last
                count += self._acquire(Run(begin, last, NEVER_DELIVERED), member, until, found, batch_size)
        self._advance()
        return found

    def _acquire(self, run: Run, member: str, until: float, found: list[Acquired], batch_size: int) -> int:
        """Returns how many that were."""
        count = run.status.delivery_count + 1
        status = run.status.to(RecordState.ACQUIRED, delivery_count=count, held=Held(member, until))
        self._window.put(run.first, run.last, status)
        before = found[-1] if found else None
        if (
            before is not None
            and before.last + 1 == run.first
            and before.delivery_count == count
            and before.last + 1 - before.first < batch_size
        ):
            found[-1] = before._replace(last=run.last)
        else:
            found.append(Acquired(run.first, run.last, count))
        return run.last + 1 - run.first

    def _archive(self, first: int, last: int) -> None:
        """There is nothing to deliver at these offsets, which are in the window or follow it."""
        window = self._window
        for run in list(window.runs(first, last)):
            if run.status.is_available:
                window.put(run.first, run.last, NOT_THERE)
                self._forget_keys(run.first, run.last)
        if window.end <= last:
            window.put(window.end, last, NOT_THERE)

    # -- in the order of keys ----------------------------------------------------------------------------------------

    def unknown_from(self) -> int | None:
        """Where to read on if `ready` has too few records; None while as many records wait as the limit allows."""
        keys = self._keys
        return None if keys is None or len(keys) >= self._limits.max_record_locks else keys.known_until

    def learn(self, batch: Fetched, records: Sequence[tuple[int, bytes | None]]) -> list[int]:
        """Add the offsets and keys of the next batch, which was read from `unknown_from` on; earlier offsets are
        skipped. Of a large batch only as many as may wait are added; it has to be learnt again then.

        Offsets without a record, and all offsets of an undeliverable batch, are finished. Returns the new
        offsets that can be delivered now; they follow all earlier results of `ready`.
        """
        keys = self._keys
        assert keys is not None
        window = self._window
        room = self._limits.max_record_locks - len(keys)
        if batch.deliverable and room <= 0:
            return []
        begin = bisect_left(records, keys.known_until, key=_offset) if batch.deliverable else len(records)
        taken = records[begin : begin + room]
        last = taken[-1][0] if begin + len(taken) < len(records) else batch.last
        known_before = window.end
        if known_before <= last:
            window.put(known_before, last, NEVER_DELIVERED)
        cursor = keys.known_until
        for offset, key in taken:
            if cursor < offset:
                self._archive(cursor, offset - 1)
            cursor = offset + 1
            if offset >= known_before or not self._is_finished(offset):
                keys.add(offset, key)
        if cursor <= last:
            self._archive(cursor, last)
        keys.known_until = max(keys.known_until, last + 1)
        self._advance()
        return [offset for offset, _ in taken if self._is_ready(offset, keys)]

    def _is_finished(self, offset: int) -> bool:
        status = self._window.status(offset)
        return status is not None and status.is_finished

    def ready(self, wanted: int) -> list[int]:
        """Up to `wanted` offsets that can be delivered now, lowest first."""
        keys = self._keys
        assert keys is not None
        found: list[int] = []
        while len(found) < wanted and (offset := keys.take_ready()) is not None:
            if self._is_ready(offset, keys) and offset not in found[-1:]:
                found.append(offset)
        for offset in found:
            keys.offer(offset)
        return found

    def _is_ready(self, offset: int, keys: KeyOrder) -> bool:
        status = self._window.status(offset)
        return status is not None and status.is_available and keys.is_first(offset)

    def acquire_ready(self, member: str, offsets: Iterable[int], *, until: float, batch_size: int) -> list[Acquired]:
        """Acquire these offsets, which `ready` returned, for a member."""
        found: list[Acquired] = []
        for offset in offsets:
            status = self._window.status(offset)
            assert status is not None
            self._acquire(Run(offset, offset, status), member, until, found, batch_size)
        return found

    def not_there(self, offset: int) -> None:
        """The log has lost a record whose key it had (compaction)."""
        self._archive(offset, offset)
        self._advance()

    def _forget_keys(self, first: int, last: int) -> None:
        if self._keys is not None:
            self._keys.finish(first, last)

    # -- acknowledging -----------------------------------------------------------------------------------------------

    def acknowledge(self, member: str, acknowledgements: Sequence[Acknowledgement], *, until: float = 0.0) -> int:
        """Acknowledge records that a member holds: all of them or, with an error, none.

        `until`: when locks that are renewed expire.
        Returns the number of the write to wait for; 0 if there is nothing to write. Offsets before the start are
        finished and skipped. Raises ApiError: INVALID_RECORD_STATE for records that the member does not hold
        (any longer), INVALID_REQUEST for offsets that were never acquired or types that do not exist.
        """
        window = self._window
        changes: list[tuple[Run, RecordState | None]] = []
        seen = -1
        for batch in acknowledgements:
            if any(kind not in OUTCOMES and kind != RENEW for kind in batch.types) or len(batch.types) not in (
                1,
                batch.last + 1 - batch.first,
            ):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"acknowledge types {list(batch.types)} do not fit {batch[:2]}"
                )
            if batch.last < window.start:
                continue
            if not len(window) or batch.first <= seen:
                raise ApiError(ErrorCode.INVALID_RECORD_STATE, f"offset {batch.first} is not held by member {member}")
            if batch.last >= window.end:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"offset {batch.last} has not been acquired")
            seen = batch.last
            for run in window.runs(batch.first, batch.last):
                if not run.status.is_held or _holder(run) != member:
                    raise ApiError(ErrorCode.INVALID_RECORD_STATE, f"offset {run.first} is not held by member {member}")
                changes += _outcomes(run, batch)
        for run, outcome in changes:
            if outcome is None:
                window.put(run.first, run.last, run.status.renewed(until))
        written = [(run, outcome) for run, outcome in changes if outcome is not None]
        if not written:
            return SETTLED
        for run, outcome in written:
            state = self._unless_exhausted(outcome, run.status.delivery_count)
            self._put(run, state, run.status.delivery_count, write=self._next_number)
            self._awaited.append(_to_write(run, state, run.status.delivery_count))
        return self._next_number

    def _unless_exhausted(self, state: RecordState, delivery_count: int) -> RecordState:
        if state is RecordState.AVAILABLE and delivery_count >= self._limits.delivery_count_limit:
            return RecordState.ARCHIVED
        return state

    def _put(self, run: Run, state: RecordState, delivery_count: int, *, write: int = SETTLED) -> None:
        held = run.status.held if write != SETTLED else None
        self._window.put(
            run.first, run.last, run.status.to(state, delivery_count=delivery_count, held=held, write=write)
        )

    def release(self, member: str) -> bool:
        """A session has ended: what it held is available again, as if it had not been delivered. Whether that was
        anything."""
        held = [run for run in self._window.runs() if run.status.is_held and _holder(run) == member]
        for run in held:
            self._release_run(run, RecordState.AVAILABLE, run.status.delivery_count - 1)
        self._advance()
        return bool(held)

    def expire(self, now: float) -> bool:
        """End the locks whose time is up. Whether there were any."""
        due = [run for run in self._window.runs() if run.status.is_held and _until(run) <= now]
        for run in due:
            count = run.status.delivery_count
            self._release_run(run, self._unless_exhausted(RecordState.AVAILABLE, count), count)
        self._advance()
        return bool(due)

    def next_expiry(self) -> float | None:
        """When the first lock's time is up. Ask again after a write that failed: it brings locks back."""
        return min((_until(run) for run in self._window.runs() if run.status.is_held), default=None)

    def _release_run(self, run: Run, state: RecordState, delivery_count: int) -> None:
        self._put(run, state, delivery_count)
        self._unwritten_outcomes.append(_to_write(run, state, delivery_count))
        self._settled(run.first, run.last, state)

    def _settled(self, first: int, last: int, state: RecordState) -> None:
        """These are held no longer, for good."""
        if state in FINISHED:
            self._forget_keys(first, last)
            return
        self._may_be_available = True
        if self._keys is not None:
            self._keys.offer_all(first, last)

    # -- the start and what is written ------------------------------------------------------------------------------

    def move_start(self, log_start_offset: int) -> None:
        """The log does not have what lies before this any more (retention, DeleteRecords)."""
        if log_start_offset > self._window.start:
            self._window.move_start(log_start_offset)
            if self._keys is not None:
                self._keys.finish_before(log_start_offset)
            self._advance()

    def _advance(self) -> None:
        """Begin after what is finished. Keys are not learnt of what lies before the start."""
        window = self._window
        window.move_start(self._first_not(lambda status: status.is_finished))
        if self._keys is not None and self._keys.known_until < window.start:
            self._keys.known_until = window.start

    def _first_not(self, done: Callable[[Status], bool]) -> int:
        return next((run.first for run in self._window.runs() if not done(run.status)), self._window.end)

    def take_write(self) -> Write | None:
        """The state to write now; None if nothing changed, or a write is under way. Call `written` after it."""
        if self._writing is not None:
            return None
        # Once it is written, everything that is being acknowledged is, so the start may go past that.
        start = self._first_not(lambda status: status.state in FINISHED)
        if not self._awaited and not self._unwritten_outcomes and start == self._written_start:
            return None
        batches = combine((), (*self._unwritten_outcomes, *self._awaited), start)
        complete = sum(run.last + 1 - run.first for run in self._window.runs(start) if run.status.state in FINISHED)
        self._writing = Write(self._next_number, start, batches, complete)
        self._next_number += 1
        self._outcomes_in_flight, self._unwritten_outcomes, self._awaited = self._unwritten_outcomes, [], []
        return self._writing

    def written(self, *, committed: bool) -> None:
        """The write on its way has ended. If it failed, its acknowledgements have not happened."""
        write, self._writing = self._writing, None
        assert write is not None
        for run in list(self._window.runs()):
            if run.status.write != write.number:
                continue
            state, count, held, _ = run.status
            if committed:
                self._window.put(run.first, run.last, Status(state, count))
                self._settled(run.first, run.last, state)
            else:
                self._window.put(run.first, run.last, Status(RecordState.ACQUIRED, count, held))
        if committed:
            self._written_start = write.start_offset
        else:
            # The failed write may have reached the log all the same, with its new start. The next write takes the start
            # back, so it has to repeat the records that were finished in between.
            finished = [
                _to_write(run, run.status.state, run.status.delivery_count)
                for run in self._window.runs()
                if run.status.is_finished
            ]
            self._unwritten_outcomes = [*finished, *self._outcomes_in_flight, *self._unwritten_outcomes]
        self._outcomes_in_flight = []
        self._advance()


def _outcomes(run: Run, batch: Acknowledgement) -> list[tuple[Run, RecordState | None]]:
    """What becomes of a run's records; None where a lock is renewed."""
    if len(batch.types) == 1:
        return [(run, OUTCOMES.get(batch.types[0]))]
    found: list[tuple[Run, RecordState | None]] = []
    for offset in range(run.first, run.last + 1):
        outcome = OUTCOMES.get(batch.types[offset - batch.first])
        if found and found[-1][1] is outcome:
            found[-1] = (found[-1][0]._replace(last=offset), outcome)
        else:
            found.append((Run(offset, offset, run.status), outcome))
    return found


def _offset(record: tuple[int, bytes | None]) -> int:
    return record[0]


def _to_write(run: Run, state: RecordState, delivery_count: int) -> StateBatch:
    return StateBatch(run.first, run.last, DeliveryState(state), delivery_count)


def _holder(run: Run) -> str:
    assert run.status.held is not None
    return run.status.held.member


def _until(run: Run) -> float:
    assert run.status.held is not None
    return run.status.held.until
