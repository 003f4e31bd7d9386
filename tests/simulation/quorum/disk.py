"""A node's disk: the metadata log with its unsynced end, snapshots, and the election state."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from ottla.protocol.messages.quorum_records import SnapshotFooterRecord, SnapshotHeaderRecord
from ottla.quorum.control_records import SNAPSHOT_FOOTER, SNAPSHOT_HEADER, encode_control_batch
from ottla.quorum.effects import ControlRecord
from ottla.quorum.election_state import ElectionState
from ottla.quorum.replicas import EMPTY_LOG, OffsetAndEpoch
from ottla.records.batch import iter_batches
from ottla.records.record import Record, encode_batch


class Batch(NamedTuple):
    base: int
    next: int
    epoch: int
    is_control: bool
    data: bytes


class Disk:
    """Implements `ottla.quorum.log_view.LogView`. What is not synced may be lost with the power."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.synced = 0
        """End of the records that survive a power cut."""
        self.truncations = 0
        self.snapshots: dict[OffsetAndEpoch, bytes] = {}
        self.partial: dict[OffsetAndEpoch, bytearray] = {}
        self.start = EMPTY_LOG
        """The log begins after this snapshot."""
        self.election: ElectionState | None = None
        self.unsaved_elections: list[ElectionState | None] = []
        """Earlier contents, which a power cut may bring back on a host that does not sync them."""

    # -- LogView -------------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self.start.offset

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.batches[-1].next, self.batches[-1].epoch) if self.batches else self.start

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        for batch in reversed(self.batches):
            if batch.epoch <= epoch:
                return OffsetAndEpoch(batch.next, batch.epoch)
        return self.start if epoch >= self.start.epoch else OffsetAndEpoch(self.start.offset, epoch)

    @property
    def newest_snapshot(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None)

    @property
    def oldest_snapshot(self) -> OffsetAndEpoch | None:
        return min(self.snapshots, default=None)

    def snapshot_size(self, snapshot: OffsetAndEpoch) -> int | None:
        found = self.snapshots.get(snapshot)
        return None if found is None else len(found)

    def control_batches(self) -> Iterable[tuple[int, memoryview]]:
        newest = self.newest_snapshot
        if newest is not None:
            view = memoryview(self.snapshots[newest])
            for header in iter_batches(view):
                if header.is_control:
                    yield -1, view[header.position : header.end_position]
        for batch in self.batches:
            if batch.is_control:
                yield batch.base, memoryview(batch.data)

    # -- the host's ----------------------------------------------------------------------------------------------------

    def append(self, data: bytes) -> list[Batch]:
        added = []
        for header in iter_batches(data):
            assert header.base_offset == self.end.offset, "a batch does not follow the log"
            batch = Batch(
                header.base_offset,
                header.next_offset,
                header.leader_epoch,
                header.is_control,
                bytes(data[header.position : header.end_position]),
            )
            self.batches.append(batch)
            added.append(batch)
        return added

    def read(self, offset: int, max_bytes: int) -> bytes:
        found: list[bytes] = []
        size = 0
        for batch in self.batches:
            if batch.next > offset and (not found or size + len(batch.data) <= max_bytes):
                found.append(batch.data)
                size += len(batch.data)
        return b"".join(found)

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at `offset`, None if the log does not have it."""
        for batch in reversed(self.batches):
            if batch.base <= offset:
                return batch.epoch if offset < batch.next else None
        return None

    def truncate(self, offset: int) -> None:
        while self.batches and self.batches[-1].base >= offset:
            self.batches.pop()
        assert self.end.offset == offset, "a truncation within a batch"
        self.synced = min(self.synced, offset)
        self.truncations += 1

    def install(self, snapshot: OffsetAndEpoch, data: bytes) -> None:
        self.snapshots = {snapshot: data}
        self.empty_to(snapshot)

    def empty_to(self, snapshot: OffsetAndEpoch) -> None:
        self.batches, self.start, self.synced = [], snapshot, snapshot.offset
        self.truncations += 1

    def clean(self) -> None:
        """Delete the records before the newest snapshot, and older snapshots."""
        newest = self.newest_snapshot
        if newest is not None and newest.offset > self.start.offset:
            self.batches = [batch for batch in self.batches if batch.base >= newest.offset]
            self.start = newest
            self.snapshots = {newest: self.snapshots[newest]}

    def lose_power(self, random: Random) -> None:
        """Lose a random part of what is not synced, and what was fetched of snapshots."""
        unsynced = sum(batch.next > self.synced for batch in self.batches)
        for _ in range(random.randint(0, unsynced)):
            self.batches.pop()
        self.synced = min(self.synced, self.end.offset)
        self.partial.clear()
        if self.unsaved_elections:
            self.election = self.unsaved_elections[0]
        self.unsaved_elections.clear()

    def recover(self) -> None:
        """What a host does before it starts the machine: finish an installation, sync all."""
        newest = self.newest_snapshot
        if newest is not None and (newest.epoch, newest.offset) > (self.end.epoch, self.end.offset):
            self.empty_to(newest)
        self.synced = self.end.offset
        self.partial.clear()


def snapshot_of(end: OffsetAndEpoch, voters: list[ControlRecord], state: bytes) -> bytes:
    """A snapshot with a header, records about voters, a record with the state, a footer."""
    header = ControlRecord(SNAPSHOT_HEADER, SnapshotHeaderRecord(version=0, last_contained_log_timestamp=0))
    footer = ControlRecord(SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0))
    control = encode_control_batch([header, *voters], base_offset=0, epoch=end.epoch, now_ms=0)
    after = 1 + len(voters)
    data = encode_batch([Record(after, 0, None, state)], leader_epoch=end.epoch)
    return bytes(control + data + encode_control_batch([footer], base_offset=after + 1, epoch=end.epoch, now_ms=0))
