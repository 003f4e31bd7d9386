"""A node of the metadata quorum as controllers, brokers and tests use it: `QuorumNode` and its listeners.

    class State:                                    # a Listener
        def handle_commit(self, batch): ...

    node.register(State())                          # everything committed so far, then each new batch
    await node.append(records, epoch=node.leader.epoch)

The implementations are `ottla.metadata.quorum.raft_node.RaftNode` and, for tests, `ottla.testing.memory_quorum`.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from ottla.errors import ErrorCode, OttlaError
from ottla.protocol.compiled import Steps
from ottla.quorum.replicas import OffsetAndEpoch

__all__ = [
    "CommittedBatch",
    "LeaderAndEpoch",
    "Listener",
    "NotQuorumLeader",
    "OffsetAndEpoch",
    "QuorumNode",
    "SnapshotRecords",
]

SnapshotRecords = Callable[[], Iterable[bytes] | None]
"""Framed records of a listener's whole state, as of what it received last; None in the middle of a transaction.

Later commits must not change what the iterable yields: it is read piece by piece while they arrive.
"""


class LeaderAndEpoch(NamedTuple):
    """The leader of an epoch of the quorum; None while this node does not know it."""

    leader_id: int | None
    epoch: int


class CommittedBatch(NamedTuple):
    """Committed metadata records, side by side, without control records: of one batch, or of small ones together.

    `records` are framed values, as `ottla.protocol.metadata_records.decode_framed` reads them; the offset of the n-th
    is `base_offset` + n. Control records in between make batches of their own, which listeners do not get.
    """

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    records: Sequence[bytes]


class NotQuorumLeader(OttlaError):
    """This node does not lead the quorum in the given epoch; records that it had appended may or may not survive."""

    code = ErrorCode.NOT_CONTROLLER


class QuorumStatus(NamedTuple):
    """A node's part in the quorum. `lags`: on the leader, the records that each other voter lacks, by node id."""

    role: str
    log_end_offset: int
    voters: int
    lags: Mapping[int, int]
    log_start_offset: int = 0
    snapshot: OffsetAndEpoch | None = None
    """The newest one."""
    snapshot_bytes: int = 0
    addresses: Mapping[int, Sequence[str]] = MappingProxyType({})
    """The voters' listeners as the log or the settings have them, by node id."""
    requests: int = 0
    """Requests of the quorum that wait for their answers: fetches of other nodes among them."""
    appends: int = 0
    """Appends that are not committed and delivered yet."""


class Listener(Protocol):
    """Receives committed metadata in the order of the log, on the loop's thread. Must not raise."""

    def handle_snapshot(self, snapshot: OffsetAndEpoch, records: Iterable[bytes]) -> Steps[None] | None:
        """`records`, framed, replace everything received before; they stand for all below `snapshot.offset`.

        Returns the steps that do so, if they take long. Nothing else is delivered before they have ended, except for
        changes of the leader.
        """
        ...

    def handle_commit(self, batch: CommittedBatch) -> None:
        """The next committed records."""
        ...

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """The quorum has a new leader or epoch.

        This node is named only when it has received everything committed in earlier epochs.
        """
        ...


class QuorumNode(Protocol):
    """A voter or an observer of the metadata quorum. On the loop's thread."""

    node_id: int
    voters_stay: str
    """Why no voter may be added at this moment, while this node leads; empty if one may."""

    remark: str
    """What this node waits for while it leads, for operators; empty if all is as usual."""

    @property
    def voter_ids(self) -> Collection[int]:
        """The newest voters in the log, committed or not."""
        ...

    def voter_addresses(self, listener: str) -> Mapping[int, tuple[str, int]]:
        """Host and port of the voters whose listener of this name is known."""
        ...

    @property
    def leader(self) -> LeaderAndEpoch:
        """The newest leader and epoch this node knows; `handle_leader_change` may still be to come."""
        ...

    @property
    def high_watermark(self) -> int | None:
        """All records below are committed; None while it is unknown."""
        ...

    @property
    def next_offset(self) -> int:
        """The offset of the first record of the next `append`, while this node leads."""
        ...

    @property
    def kraft_version(self) -> int:
        """The level of `kraft.version`: 1 once the voters are in the log (KIP-853). It may not be committed yet."""
        ...

    def status(self) -> QuorumStatus:
        """The present state, for operators."""
        ...

    def register(self, listener: Listener, snapshot_records: SnapshotRecords | None = None) -> None:
        """Delivers the newest snapshot, what is committed after it, the leader, and everything that follows.

        With `snapshot_records` the node writes a snapshot of the listener's state whenever one is due
        (`metadata.log.max.record.bytes.between.snapshots`, `metadata.log.max.snapshot.interval.ms`).
        """
        ...

    @property
    def meets_only_strangers(self) -> bool:
        """Whether all nodes that it can ask for the leader belong to another cluster."""
        ...

    def leader_endpoint(self) -> tuple[str, int] | None:
        """Host and port of the leader; None while it is unknown."""
        ...

    def append(self, records: Sequence[bytes], *, epoch: int) -> asyncio.Future[int]:
        """Appends framed records in one batch: after a crash all of them are there, or none.

        Their offsets are fixed when this returns: they begin at `next_offset`. The future yields the last of them, once
        it is committed and delivered to the listeners; it fails with `NotQuorumLeader` if this node loses its
        leadership first, and the outcome is unknown then. Raises NotQuorumLeader, with nothing appended, if it does not
        lead in `epoch`; RecordListTooLarge for more than a batch may hold (8 MiB).
        """
        ...

    async def raise_kraft_version(self, level: int, *, epoch: int, validate_only: bool = False) -> None:
        """Writes the level and the voters to the log; what is appended afterwards is committed after them.

        Raises `OttlaError`: NOT_CONTROLLER if it does not lead in `epoch`, INVALID_UPDATE_VERSION if the quorum cannot
        have the level, REQUEST_TIMED_OUT if it cannot be changed at this moment.
        """
        ...

    async def write_snapshot(self, at: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        """Keeps framed records that stand for all below `at`, a position that was delivered to listeners.

        Does nothing if there is a newer snapshot. Raises KafkaStorageError.
        """
        ...

    def resign(self, epoch: int) -> None:
        """Gives up leadership in this epoch, if it still has it; the other voters elect another leader."""
        ...

    async def start(self) -> None:
        """Opens the log and joins the quorum. Raises InvalidConfig, KafkaStorageError."""
        ...

    async def close(self) -> None:
        """Leaves in order: a leader hands over, everything appended is on the disk."""
        ...
