"""Looks into the nodes of the simulated cluster's quorum: what one of them has shown as committed stays committed.

a high watermark    what it passes is the same on every node, whatever happens to them
a leader            is the only one of its epoch, and has everything that was committed in earlier epochs
a truncation        takes back nothing below the node's high watermark
a broker            is unfenced when it has read the log up to its registration, and has no lease while it is fenced;
                    then, and while others lead, it acknowledges nothing by itself
an image            is that of the log up to its offset, with controllers and with brokers, by records or a snapshot
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.cluster.image import MetadataImage
from ottla.cluster.metadata_log.state import ClusterState
from ottla.ids import BrokerId
from ottla.metadata.broker_lifecycle import BrokerLifecycle
from ottla.metadata.quorum.metadata_log import MetadataLog
from ottla.metadata.quorum.raft_node import RaftNode
from ottla.metadata.quorum_metadata import QuorumMetadata
from ottla.metadata.quorum_replay import QuorumReplay
from ottla.quorum.effects import Role, RoleChanged
from ottla.records.batch import BatchHeader, iter_batches
from ottla.records.record import decode_records
from ottla.replication.manager import ALL_IN_SYNC, ReplicaManager
from ottla.replication.partition import Partition
from ottla.testing.simulation.machine import SimMachine
from tests.simulation.history import History, Place

READ_BYTES = 1 << 22


class _Batch(NamedTuple):
    next: int
    epoch: int
    crc: int


class MetadataObserver:
    """The metadata log of one run, as it was committed. Findings go to `History.fail`."""

    def __init__(self, cluster_id: str, machines: Sequence[SimMachine]) -> None:
        """`machines` are those of the brokers."""
        self._machines = machines
        self.end = 0
        self.state = ClusterState(cluster_id)
        self.image: MetadataImage = self.state.image()
        self._history = History()
        self._look: Callable[[], None] = lambda: None
        self._batches: dict[int, _Batch] = {}
        self._committed_in: dict[int, int] = {}
        """The epoch of the leader that committed a batch, which may be later than the batch's own, by base offset."""
        self._images: dict[int, MetadataImage] = {-1: self.image}
        """By the offset of the last record."""
        self._leaders: dict[int, int] = {}
        """By epoch."""
        self._registered: dict[tuple[int, int], BrokerLifecycle] = {}
        """By broker and epoch."""

    @property
    def newest_leader(self) -> int | None:
        """The node that was elected in the newest epoch."""
        return self._leaders[max(self._leaders)] if self._leaders else None

    @contextmanager
    def installed(self, history: History, look: Callable[[], None]) -> Iterator[None]:
        """Sees everything inside; `look` is called when partitions have changed."""
        self._history = history
        self._look = look
        advance, changed, truncate = RaftNode._advance, RaftNode._role_changed, MetadataLog.truncate
        register, for_produce = BrokerLifecycle.register, ReplicaManager.for_produce
        reached, shown = QuorumReplay._reached, QuorumMetadata._follow

        def advanced(node: RaftNode, high_watermark: int) -> None:
            self._committed(node, high_watermark)
            advance(node, high_watermark)

        def role_changed(node: RaftNode, effect: RoleChanged) -> None:
            changed(node, effect)
            if effect.role is Role.LEADER:
                self._leads(node, effect.epoch)

        def truncated(log: MetadataLog, offset: int) -> None:
            if offset < log._log.high_watermark:
                self._fail(f"{log.directory} is truncated to {offset}, below its high watermark")
            truncate(log, offset)

        def replayed(replay: QuorumReplay, *more: Any, **named: Any) -> None:
            reached(replay, *more, **named)
            self._compare_image("a controller", replay.image, replay.offset)

        def followed(metadata: QuorumMetadata, *more: Any) -> None:
            shown(metadata, *more)
            self._compare_image(f"broker {metadata.broker_id}", metadata.image, metadata.offset)

        async def registered(lifecycle: BrokerLifecycle) -> None:
            await register(lifecycle)
            self._registered[lifecycle._config.node_id, lifecycle.broker_epoch] = lifecycle

        def taken(replicas: ReplicaManager, topic: Any, number: int, acks: int, client_id: Any) -> Partition:
            partition = for_produce(replicas, topic, number, acks, client_id)
            if acks != ALL_IN_SYNC:
                self._acknowledges_alone(replicas, partition)
            return partition

        with (
            patch.object(BrokerLifecycle, "register", registered),
            patch.object(ReplicaManager, "for_produce", taken),
            patch.object(RaftNode, "_advance", advanced),
            patch.object(RaftNode, "_role_changed", role_changed),
            patch.object(MetadataLog, "truncate", truncated),
            patch.object(QuorumReplay, "_reached", replayed),
            patch.object(QuorumMetadata, "_follow", followed),
        ):
            yield

    def _fail(self, problem: str) -> None:
        self._history.fail(f"metadata log: {problem}")

    def _leads(self, node: RaftNode, epoch: int) -> None:
        known = self._leaders.setdefault(epoch, node.node_id)
        if known != node.node_id:
            self._fail(f"{known} and {node.node_id} both lead the quorum in epoch {epoch}")
        # The last vote for a leader may arrive when a later epoch has begun, and has committed more.
        earlier = [base for base, committed_in in self._committed_in.items() if committed_in < epoch]
        if earlier and not _has(node.log, self._batches[max(earlier)]):
            self._fail(
                f"{self._batches[max(earlier)].next} records were committed in earlier epochs, and node "
                f"{node.node_id}, which leads in epoch {epoch}, lacks the last of them: its log ends at "
                f"{tuple(node.log.end)}"
            )

    def _committed(self, node: RaftNode, high_watermark: int) -> None:
        """Everything below the node's high watermark is committed, if it was not known to be."""
        at = max(node.high_watermark or 0, node.log.start_offset)
        while at < high_watermark:
            view = memoryview(node.log.read_blocking(at, READ_BYTES, upper_bound=high_watermark))
            for header in iter_batches(view):
                self._check(node, view, header)
                at = header.next_offset
        if self.end < high_watermark:
            self._fail(f"node {node.node_id} has nothing from {self.end} to its high watermark {high_watermark}")

    def _check(self, node: RaftNode, view: memoryview, header: BatchHeader) -> None:
        found = _Batch(header.next_offset, header.leader_epoch, header.crc)
        if header.base_offset == self.end:
            self._batches[self.end] = found
            self._committed_in[self.end] = node.leader.epoch
            self.end = found.next
            if not header.is_control:
                fenced = {each.broker_id for each in self.state.brokers.values() if each.fenced}
                self.state.replay_all([record.value or b"" for record in decode_records(view, header)])
                self._check_unfenced(fenced)
                self.look_at_leases()
            before = self.image.topics
            self.image = self._images[self.end - 1] = self.state.image(self.end - 1)
            if self.image.topics is not before:
                self._look()
        elif self._batches.get(header.base_offset) != found:
            self._fail(
                f"node {node.node_id} has {found} at {header.base_offset}, below its high watermark; committed there "
                f"is {self._batches.get(header.base_offset)}"
            )

    # -- brokers -------------------------------------------------------------------------------------------------------

    def _check_unfenced(self, fenced: set[BrokerId]) -> None:
        """Those that were fenced before the newest batch, and are not any longer, have read the log so far."""
        for broker in self.state.brokers.values():
            lifecycle = self._registered.get((broker.broker_id, broker.epoch))
            if broker.broker_id not in fenced or broker.fenced or lifecycle is None:
                continue
            if lifecycle._offset() < broker.epoch:
                self._fail(
                    f"broker {broker.broker_id} of epoch {broker.epoch} is unfenced, and has read up to "
                    f"{lifecycle._offset()}"
                )

    def look_at_leases(self) -> None:
        """A broker that is fenced does not take itself for a leader any longer, unless it is about to stop."""
        for machine in self._machines:
            lifecycle = None if machine.broker is None else _lifecycle(machine.broker.replicas)
            if lifecycle is None or lifecycle.wants_shut_down or not lifecycle.holds():
                continue
            broker = self.state.brokers.get(lifecycle._config.node_id)
            if broker is not None and broker.fenced and broker.epoch == lifecycle.broker_epoch:
                self._fail(f"broker {broker.broker_id} of epoch {broker.epoch} is fenced, and its lease is not over")

    def _acknowledges_alone(self, replicas: ReplicaManager, partition: Partition) -> None:
        """A leader accepts records that it will not wait for followers to have."""
        lifecycle = _lifecycle(replicas)
        if lifecycle is None or lifecycle.wants_shut_down:
            return
        number = lifecycle._config.node_id
        broker, decided = self.state.brokers.get(number), self.image.partition(partition.topic_partition)
        if (
            broker is not None
            and decided is not None
            and broker.fenced
            and broker.epoch == lifecycle.broker_epoch
            and decided.leader_epoch > partition.leader_epoch
            and {*decided.isr, *decided.eligible} != {number}  # else nobody but itself can be elected
        ):
            self._history.fail(
                f"{Place(*partition.topic_partition)}: broker {number} acknowledges records by itself in epoch "
                f"{partition.leader_epoch}, though it is fenced, and epoch {decided.leader_epoch} has begun"
            )

    # -- images --------------------------------------------------------------------------------------------------------

    def _compare_image(self, who: str, image: MetadataImage, offset: int) -> None:
        known = self._images.get(offset)
        if known is None:
            self._fail(f"{who} has an image of offset {offset}, where no committed batch ends")
        elif _content(image) != _content(known):
            self._fail(f"{who} has {_content(image)} up to {offset}; committed there is {_content(known)}")


def _has(log: MetadataLog, batch: _Batch) -> bool:
    """Whether a log has a batch, and so, by log matching, all before it."""
    held = log.end_of_epoch(batch.epoch)
    return log.start_offset >= batch.next or (held.epoch == batch.epoch and held.offset >= batch.next)


def _lifecycle(replicas: ReplicaManager) -> BrokerLifecycle | None:
    """The one whose lease the replicas obey."""
    found = getattr(replicas.holds_session, "__self__", None)
    return found if isinstance(found, BrokerLifecycle) else None


def _content(image: MetadataImage) -> tuple[object, ...]:
    """All that the records say: not which node leads the quorum, nor where the image ends."""
    return image.brokers, image.topics, image.configs, image.features, image.failed_replicas, image.full_replicas
