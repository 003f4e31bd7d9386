"""Raft's invariants, checked at every step of every node."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from ottla.quorum.effects import Role, RoleChanged
from ottla.quorum.replicas import OffsetAndEpoch

if TYPE_CHECKING:
    from tests.simulation.quorum.disk import Batch
    from tests.simulation.quorum.node import Node


class Broken(AssertionError):
    """An invariant does not hold."""


class Observer:
    """Sees all nodes at once, which none of them can."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.leaders: dict[int, int] = {}
        self.batches: dict[tuple[int, int], tuple[int, int]] = {}
        """Checksum and previous epoch of each batch, by base offset and epoch."""
        self.committed: list[tuple[int, int, bytes]] = []
        """Base offset, epoch and content of the committed batches."""
        self.committed_by: dict[int, OffsetAndEpoch] = {}
        """How far the leader of an epoch has committed records."""
        self.committed_end = OffsetAndEpoch(0, 0)
        self.states: dict[int, bytes] = {0: b"\0" * 4}
        """The state that the committed records up to an offset add up to."""

    def appended(self, node: Node, batches: list[Batch], previous: int) -> None:
        """Log matching: batches with the same offset and epoch are the same, and so are those before."""
        for batch in batches:
            found = (crc32(batch.data), previous)
            if self.batches.setdefault((batch.base, batch.epoch), found) != found:
                raise Broken(f"log matching: node {node.id} has another batch at {batch.base} of epoch {batch.epoch}")
            previous = batch.epoch

    def role_changed(self, node: Node, change: RoleChanged) -> None:
        if change.role is not Role.LEADER:
            return
        if self.leaders.setdefault(change.epoch, node.id) != node.id:
            raise Broken(f"two leaders in epoch {change.epoch}: {self.leaders[change.epoch]} and {node.id}")
        for epoch, end in self.committed_by.items():
            if epoch < change.epoch and not _has(node, end):
                raise Broken(
                    f"leader completeness: node {node.id}, leader of epoch {change.epoch}, lacks records before {end}, "
                    f"which were committed in epoch {epoch}"
                )

    def advanced(self, node: Node, high_watermark: int) -> None:
        if node.machine.role is Role.LEADER and high_watermark > self.committed_end.offset:
            self._check_majority(node, high_watermark)
        if high_watermark > node.disk.end.offset:
            raise Broken(f"node {node.id} has a high watermark beyond its log")
        if high_watermark < node.high_watermark:
            raise Broken(f"the high watermark of node {node.id} goes back to {high_watermark}")
        for batch in node.disk.batches:
            if batch.next > node.high_watermark and batch.base < high_watermark:
                self._commit(node, batch)
        if node.machine.role is Role.LEADER:
            last = node.disk.epoch_at(high_watermark - 1)
            assert last is not None, "a leader commits records that it has in a snapshot alone"
            self.committed_by[node.machine.epoch] = OffsetAndEpoch(high_watermark, last)
        node.high_watermark = high_watermark
        if node.disk.start.offset > self.committed_end.offset:
            raise Broken(f"node {node.id} has a snapshot of records that are not committed")

    def _commit(self, node: Node, batch: Batch) -> None:
        if batch.base >= self.committed_end.offset:
            if batch.base > self.committed_end.offset:
                raise Broken(f"node {node.id} commits offset {batch.base} before the records before it")
            self.committed.append((batch.base, batch.epoch, batch.data))
            self.committed_end = OffsetAndEpoch(batch.next, batch.epoch)
            before = self.states[batch.base]
            self.states[batch.next] = crc32(batch.data, int.from_bytes(before, "big")).to_bytes(4, "big")
        found = next((each for each in reversed(self.committed) if each[0] <= batch.base), None)
        if found is None or found != (batch.base, batch.epoch, batch.data):
            raise Broken(f"node {node.id} commits another batch at {batch.base} than was committed before")

    def _check_majority(self, leader: Node, high_watermark: int) -> None:
        """Records are committed only if a majority of the voters would keep them without power."""
        epoch = leader.disk.epoch_at(high_watermark - 1)
        if epoch != leader.machine.epoch:
            raise Broken(
                f"leader {leader.id} of epoch {leader.machine.epoch} commits a record of epoch {epoch} by count"
            )
        voters = leader.machine.voters
        holders = 0
        for voter in voters:
            node = next(node for node in self.nodes if node.id == voter.key.node_id)
            disk = node.disk
            holders += disk.synced >= high_watermark and (
                disk.start.offset >= high_watermark or disk.epoch_at(high_watermark - 1) == epoch
            )
        if holders < voters.majority:
            raise Broken(f"leader {leader.id} commits offset {high_watermark - 1}, which {holders} of {voters} keep")

    def voters_changed(self, node: Node) -> None:
        """Only one set of voters may be uncommitted: two that overlap too little could elect two leaders."""
        if node.machine.role is Role.LEADER:
            open_sets = node.uncommitted_voter_sets()
            if open_sets > 1:
                raise Broken(f"leader {node.id} has {open_sets} sets of voters that are not committed")

    def truncating(self, node: Node, offset: int) -> None:
        if offset < node.high_watermark:
            raise Broken(f"node {node.id} truncates committed records from {offset} on")

    def installed(self, node: Node, snapshot: OffsetAndEpoch, state: bytes) -> None:
        if self.states.get(snapshot.offset) != state:
            raise Broken(f"node {node.id} installs a snapshot {snapshot} with another state")


def _has(node: Node, end: OffsetAndEpoch) -> bool:
    """Whether a node has the record before `end`, and so, by log matching, all before it."""
    return end.offset <= node.disk.start.offset or node.disk.epoch_at(end.offset - 1) == end.epoch
