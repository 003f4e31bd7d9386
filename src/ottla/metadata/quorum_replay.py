"""Follows the metadata log of a quorum: committed records in, the cluster's state and its image out.

    QuorumNode -- snapshots, batches --> QuorumReplay -- old image, new image --> subscribers

A process has one, which its controller and its broker share: each record is decoded once, and the objects of the image
are there once. What cannot be replayed ends the node: its image would differ from all others'.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from ottla.cluster.image import NO_LEADER, MetadataImage
from ottla.cluster.metadata_log.snapshots import snapshot_records
from ottla.cluster.metadata_log.state import AclPattern, ClusterState
from ottla.errors import OttlaError, sentence
from ottla.ids import BrokerId
from ottla.metadata.quorum.node import CommittedBatch, LeaderAndEpoch, OffsetAndEpoch
from ottla.slices import Steps, run_at_once

log = logging.getLogger(__name__)

ImageSubscriber = Callable[[MetadataImage, MetadataImage], None]
LeaderSubscriber = Callable[[LeaderAndEpoch], None]


class Advance(NamedTuple):
    """What has been replayed: a batch, or a snapshot."""

    state: ClusterState
    is_new: bool
    """Whether it is another state than before: that of a snapshot."""
    acls: Collection[AclPattern]
    """The patterns whose access rules have changed; a pattern without rules is not in the state."""
    tokens: Collection[str]
    """Ids of the delegation tokens that have changed; one that is gone is not in the state."""


AdvanceSubscriber = Callable[[Advance], None]


class QuorumReplay:
    """A `Listener` of a quorum node. On the loop's thread."""

    def __init__(self, cluster_id: str, *, failed: Callable[[str], None]) -> None:
        """`failed` gets the reason when a record cannot be replayed: the node has to stop."""
        self._cluster_id = cluster_id
        self._failed = failed
        self.state = ClusterState(cluster_id)
        self.image: MetadataImage = self.state.image()
        self.position = OffsetAndEpoch(0, 0)
        """Everything below has been replayed."""
        self.leader = LeaderAndEpoch(None, 0)
        self.has_failed = False
        self._subscribers: list[ImageSubscriber] = []
        self._leader_subscribers: list[LeaderSubscriber] = []
        self._advance_subscribers: list[AdvanceSubscriber] = []

    @property
    def offset(self) -> int:
        """The offset of the last record that was replayed; -1 before the first."""
        return self.position.offset - 1

    def subscribe(self, changed: ImageSubscriber) -> Callable[[], None]:
        """Call `changed(old, new)` after every change of the image; returns what ends the subscription."""
        self._subscribers.append(changed)
        return lambda: self._subscribers.remove(changed)

    def on_leader(self, changed: LeaderSubscriber) -> None:
        """Call `changed` when the quorum has another leader or epoch, also without a leader."""
        self._leader_subscribers.append(changed)

    def on_advance(self, advanced: AdvanceSubscriber) -> None:
        """Call `advanced` after every batch and every snapshot, before the subscribers of images: for what is not in
        them, such as access rules."""
        self._advance_subscribers.append(advanced)

    def snapshot_records(self) -> Iterator[bytes] | None:
        """The records of the state at `position`, framed; None within a transaction, or after a failure."""
        return None if self.has_failed or self.state.in_transaction else snapshot_records(self.state)

    # -- a listener --------------------------------------------------------------------------------------------------

    def handle_snapshot(self, snapshot: OffsetAndEpoch, records: Iterable[bytes]) -> Steps[None]:
        """Replace everything."""
        state = ClusterState(self._cluster_id, like=self.image)
        if (yield from self._replayed(state, records)):
            old, self.state = self.state, state
            state.controller_id = old.controller_id
            self._reached(snapshot, replaced=old)

    def handle_commit(self, batch: CommittedBatch) -> None:
        """Replay a batch."""
        if run_at_once(self._replayed(self.state, batch.records)):
            self._reached(OffsetAndEpoch(batch.last_offset + 1, batch.epoch))

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Name the controller in the image, and notify."""
        if self.has_failed:
            return
        self.leader = leader
        self.state.controller_id = NO_LEADER if leader.leader_id is None else BrokerId(leader.leader_id)
        self._show()
        for subscriber in tuple(self._leader_subscribers):
            subscriber(leader)

    def _replayed(self, state: ClusterState, records: Iterable[bytes]) -> Steps[bool]:
        if self.has_failed:
            return False
        try:
            yield from state.replay_steps(records)
        except OttlaError as problem:
            self._fail(problem)
            return False
        return True

    def _reached(self, position: OffsetAndEpoch, *, replaced: ClusterState | None = None) -> None:
        """Show what is there up to a position; `replaced` is the state before that of a snapshot."""
        self.position = position
        tokens = self.state.take_token_changes()
        if replaced is not None:
            tokens |= replaced.tokens.keys()
        advance = Advance(self.state, replaced is not None, self.state.take_acl_changes(), tokens)
        for advanced in self._advance_subscribers:
            advanced(advance)
        self._show()

    def _show(self) -> None:
        try:
            new = self.state.image(self.offset)
        except OttlaError as problem:
            self._fail(problem)
            return
        old, self.image = self.image, new
        if new is old:
            return
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(old, new)
            except Exception:  # it is committed, and the others have to see it
                log.exception("a part of the node could not follow a change of the metadata")

    def _fail(self, problem: OttlaError) -> None:
        self.has_failed = True
        log.error("the metadata log cannot be followed behind offset %d: %s", self.offset, sentence(problem))
        self._failed(f"the metadata log cannot be followed: {sentence(problem)}")
