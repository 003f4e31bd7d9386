"""A metadata quorum of one node, in memory: commits at once, and delivers to its listeners in order.

node = MemoryQuorum()
node.register(state)
await node.start()                        # leads in epoch 1
await node.append(records, epoch=1)
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence

from ottla.metadata.quorum.node import (
    CommittedBatch,
    LeaderAndEpoch,
    Listener,
    NotQuorumLeader,
    OffsetAndEpoch,
    QuorumStatus,
    SnapshotRecords,
)
from ottla.slices import run_at_once


class MemoryQuorum:
    """A `QuorumNode`. On the loop's thread."""

    def __init__(self, node_id: int = 1, *, address: tuple[str, int] | None = None) -> None:
        self.node_id = node_id
        self.voter_ids: Collection[int] = (node_id,)
        self.voters_stay = ""
        self.remark = ""
        self.meets_only_strangers = False
        self.leader = LeaderAndEpoch(None, 0)
        self.batches: list[CommittedBatch] = []
        """Everything committed after the newest snapshot."""
        self.snapshot: tuple[OffsetAndEpoch, tuple[bytes, ...]] | None = None
        self.kraft_version = 1
        self.now_ms = 0
        """The time that batches are stamped with."""
        self._address = address
        self._listeners: list[Listener] = []
        self._next_offset = 0

    def voter_addresses(self, listener: str) -> dict[int, tuple[str, int]]:
        """See `QuorumNode`."""
        return {} if self._address is None else {self.node_id: self._address}

    @property
    def high_watermark(self) -> int | None:
        """See `QuorumNode`."""
        return self._next_offset

    @property
    def next_offset(self) -> int:
        """See `QuorumNode`."""
        return self._next_offset

    def status(self) -> QuorumStatus:
        """See `QuorumNode`."""
        return QuorumStatus(
            "leader" if self.leader.leader_id == self.node_id else "unattached", self._next_offset, 1, {}
        )

    def register(self, listener: Listener, snapshot_records: SnapshotRecords | None = None) -> None:
        """See `QuorumNode`; a snapshot is only written when `write_snapshot` is called."""
        self._listeners.append(listener)
        if self.snapshot is not None:
            steps = listener.handle_snapshot(*self.snapshot)
            if steps is not None:
                run_at_once(steps)
        for batch in self.batches:
            listener.handle_commit(batch)
        listener.handle_leader_change(self.leader)

    def leader_endpoint(self) -> tuple[str, int] | None:
        """See `QuorumNode`."""
        return None if self.leader.leader_id is None else self._address

    def append(self, records: Sequence[bytes], *, epoch: int) -> asyncio.Future[int]:
        """See `QuorumNode`."""
        if self.leader != (self.node_id, epoch):
            raise NotQuorumLeader(f"node {self.node_id} does not lead the metadata quorum in epoch {epoch}")
        committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        base = self._next_offset
        self._next_offset += len(records)
        if records:
            self._commit(CommittedBatch(base, self._next_offset - 1, epoch, self.now_ms, tuple(records)))
        committed.set_result(self._next_offset - 1)
        return committed

    def _commit(self, batch: CommittedBatch) -> None:
        self.batches.append(batch)
        for listener in self._listeners:
            listener.handle_commit(batch)

    async def raise_kraft_version(self, level: int, *, epoch: int, validate_only: bool = False) -> None:
        """See `QuorumNode`."""
        if self.leader != (self.node_id, epoch):
            raise NotQuorumLeader(f"node {self.node_id} does not lead the metadata quorum in epoch {epoch}")
        if not validate_only:
            self.kraft_version = level

    async def write_snapshot(self, at: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        """See `QuorumNode`."""
        if self.snapshot is None or self.snapshot[0] < at:
            self.snapshot = at, tuple(records)
            self.batches = [batch for batch in self.batches if batch.last_offset >= at.offset]

    def resign(self, epoch: int) -> None:
        """Nobody else can lead: this node does so again, in the next epoch."""
        if self.leader == (self.node_id, epoch):
            self.lead(None)
            self.lead(self.node_id)

    def lead(self, leader_id: int | None) -> None:
        """Begins an epoch with this leader, or without one."""
        self.leader = LeaderAndEpoch(leader_id, self.leader.epoch + 1)
        if leader_id == self.node_id:
            self._next_offset += 1  # the record of a new leader
        for listener in self._listeners:
            listener.handle_leader_change(self.leader)

    async def start(self) -> None:
        """Leads in the next epoch."""
        self.lead(self.node_id)

    async def close(self) -> None:
        """Leads no longer."""
        self.lead(None)
