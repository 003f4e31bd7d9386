"""One pass over the partitions of a fetch: what is read of each, and the response made of it.

`ottla.server.handlers.fetch` decides when to make one, and whether its response is sent or more records are waited for.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.errors import ApiError, ErrorCode, OffsetOutOfRange, OttlaError
from ottla.ids import BrokerId, LeaderEpoch, Offset
from ottla.log.file_region import MIN_REGION_BYTES, FileRegion
from ottla.log.partition_log import PartitionLog
from ottla.log.reader import ColdRead
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.protocol.primitives import Buffer
from ottla.security.authorization import Operation
from ottla.server.cold_fetches import BYTES_EACH
from ottla.server.context import RequestContext
from ottla.server.fetch_sessions import FetchSession, FetchTarget
from ottla.server.leaders import MOVED, endpoints_of, leader_of, nearer_replica
from ottla.server.settled_sessions import NO_EPOCH, Look, epoch_of, replica_of, unsettled_targets
from ottla.slices import Steps

if TYPE_CHECKING:
    import asyncio

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.partition import Partition
    from ottla.server.access.access import Access
    from ottla.server.cluster_member import ClusterMember
    from ottla.server.cold_fetches import ColdFetches
    from ottla.server.fetch_sessions import FetchSessionCache
    from ottla.server.memory import MemoryBudget
    from ottla.server.shared_answers import SharedAnswers
    from ottla.slices import Slices

log = logging.getLogger(__name__)

READ_COMMITTED: Final = 1
READS_FROM_FOLLOWERS_SINCE: Final = 11
LEADERS_NAMED_SINCE: Final = 12
ENDPOINTS_NAMED_SINCE: Final = 16
NO_OFFSET: Final = -1
NO_BYTES: Final = b""
SMALLEST_REGION_BYTES: Final = 1
"""When requests and answers hold much already, everything is sent from its file."""
MOST_INLINE_BYTES: Final = 1 << 20
"""What one answer holds of ranges too small for a region: more than that, too, is sent from its file."""
NO_SUCH_TOPIC: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
MANY: Final = 500
"""Partitions; a fetch of more is worked on in slices."""
STEP_MASK: Final = 15


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that a fetch uses."""

    config: "BrokerConfig"
    loop: "asyncio.AbstractEventLoop"
    metadata: "MetadataView"
    replicas: "ReplicaManager"
    fetch_sessions: "FetchSessionCache"
    shared_answers: "SharedAnswers"
    cold_fetches: "ColdFetches"
    memory: "MemoryBudget"
    slices: "Slices"
    cluster: "ClusterMember | None"


class FetchAttempt:
    """One pass over the session's partitions, and the response made of it."""

    __slots__ = (
        "_committed_only",
        "_context",
        "_first",
        "_found",
        "_has_records",
        "_incremental",
        "_inline_bytes",
        "_look",
        "_min_region_bytes",
        "_parts",
        "_request",
        "_session",
        "_some",
        "cold",
        "marks",
        "must_answer",
        "partitions",
        "replica",
        "total_bytes",
    )

    def __init__(
        self,
        parts: Parts,
        request: FetchRequest,
        context: RequestContext,
        session: FetchSession,
        incremental: bool,
        *,
        first: bool = False,
    ) -> None:
        self._session = session
        self._parts = parts
        self._context = context
        self._request = request
        self._first = first
        self.replica = replica_of(request)
        """The broker that follows; -1 for a consumer."""
        self._incremental = incremental
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._found: list[tuple[FetchTarget, PartitionData]] = []
        self.partitions: list[Partition] = []
        self.marks: list[tuple[int, ...]] | None = None
        """How far each partition was when it was looked at, if others may go on meanwhile."""
        self.cold: list[tuple[ColdRead, PartitionLog, FetchTarget, PartitionData, Offset]] = []
        self.must_answer = False
        self.total_bytes = 0
        self._has_records = False
        self._min_region_bytes = SMALLEST_REGION_BYTES if parts.memory.is_short else MIN_REGION_BYTES
        self._inline_bytes = 0
        now = parts.loop.time()
        self._some = unsettled_targets(parts.replicas, session, request, context, now)
        """The partitions to look at, where that is not all."""
        self._look = Look(parts.replicas, session, request, now, is_first=first)

    @property
    def is_partial(self) -> bool:
        """Whether only those partitions are looked at that may have changed."""
        return self._some is not None

    @property
    def is_large(self) -> bool:
        """Whether so many partitions are looked at that others have to go on meanwhile."""
        return len(self._session.targets if self._some is None else self._some) > MANY

    @property
    def is_quiet(self) -> bool:
        """Whether the fetcher has and knows everything, and only what wakes those that wait can change that."""
        return self._look.is_quiet

    def has_changed(self) -> bool:
        """Whether anything has changed since the look began that its answer depends on."""
        if self.is_partial:
            return self._parts.replicas.led_changes.count != self._look.changes
        return self.marks != list(map(mark_of, self.partitions))

    def look(self) -> "Steps[None]":
        """Read the available records of each partition, in steps."""
        parts, request, context, first = self._parts, self._request, self._context, self._first
        incremental = self._incremental
        replicas = parts.replicas
        room = min(request.max_bytes, parts.config.fetch_max_bytes)
        from_leader = self.replica >= 0 or context.api_version < READS_FROM_FOLLOWERS_SINCE
        checks_quickly = incremental and not request.rack_id
        access = context.access
        if self._some is None:
            targets: Collection[FetchTarget] = self._session.targets.values()
        else:
            targets = self._some
            self._look.begin_with(self._some)
        for number, target in enumerate(list(targets) if len(targets) > MANY else targets):
            if number & STEP_MASK == STEP_MASK:
                yield
            if access is not None and not self._may(access, target):
                self._look.found(target, is_settled=False)
                self.must_answer = True
                self._fail(target, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no right to the topic"))
                continue
            if checks_quickly:
                known = replicas.find(target.topic, target.partition)
                if known is not None and self._is_unchanged(target, known, request, first=first):
                    self._add(known)
                    # Of one that is not, records will be committed, which does not wake followers.
                    is_settled = target.fetch_offset == target.last_high_watermark and not known.owes_visibility
                    self._look.found(target, is_settled=is_settled)
                    continue
            self._look.found(target, is_settled=False)
            try:
                partition = replicas.for_fetch(
                    target.topic, target.partition, target.current_leader_epoch, from_leader=from_leader
                )
                self._add(partition)
                if self.replica >= 0:
                    if self._diverges(target, partition):
                        continue
                    if first:
                        self._update_follower_state(request, target, partition)
                    room -= self._read_for_follower(target, partition, room)
                    continue
                if request.rack_id and partition.leading:
                    nearer = nearer_replica(parts.config, parts.metadata, partition, request.rack_id)
                    if nearer is not None:
                        self._answer_preferred_replica(target, partition.log, nearer)
                        continue
                room -= self._read(target, partition.log, room)
            except OttlaError as error:
                if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                    log.exception("fetch from %s-%d failed", target.topic, target.partition)
                self._fail(target, error)
        if self._some is None:
            if not self.partitions:
                self.must_answer = True
            self._look.end_with_all()

    def _may(self, access: "Access", target: FetchTarget) -> bool:
        """Whether the client may have a partition's records: its rights may have changed since the session began."""
        if self.replica >= 0:
            return access.may_cluster(Operation.CLUSTER_ACTION)
        name = access.name_of(None, target.topic) if isinstance(target.topic, UUID) else target.topic
        if name is None:  # an unknown id, which is refused as such, unless its partition is about to go
            return self._parts.replicas.find(target.topic, target.partition) is None
        return access.may_topic(Operation.READ, name)

    def _add(self, partition: "Partition") -> None:
        self.partitions.append(partition)
        if self.marks is not None:
            self.marks.append(mark_of(partition))

    def _is_unchanged(self, target: FetchTarget, partition: "Partition", request: FetchRequest, *, first: bool) -> bool:
        """Whether the fetcher has everything, and knows it, as for most partitions of a large session.

        Notes the follower's progress, as `_update_follower_state` does.
        """
        source = partition.log
        offset = target.fetch_offset
        if (
            not partition.leading
            or target.current_leader_epoch not in (NO_EPOCH, partition.leader_epoch)
            or target.last_high_watermark != source.high_watermark
            or target.last_log_start_offset != source.log_start_offset
        ):
            return False
        if self.replica < 0:
            return offset == (source.last_stable_offset if self._committed_only else source.high_watermark)
        if offset != source.log_end_offset or not _has_same_end(target, source):
            return False
        if not first:
            return True
        log_start, epoch = Offset(target.log_start_offset), epoch_of(request)
        replica = BrokerId(self.replica)
        return partition.is_still_followed_by(replica, Offset(offset), log_start, epoch, self._look.fetches)

    @property
    def owes_visibility(self) -> bool:
        """Whether it has found nothing though there is something that was acknowledged, which only has to be synced."""
        return (
            not self.total_bytes
            and self.replica < 0
            and any(partition.owes_visibility for partition in self.partitions)
        )

    @property
    def may_be_shared(self) -> bool:
        """Whether it has found records that are in memory, and no error."""
        return (
            self.total_bytes > 0
            and not self.must_answer
            and all(not isinstance(data.records, FileRegion) for _, data in self._found)
        )

    def _read(self, target: FetchTarget, source: "PartitionLog", room: int, *, is_held_back: bool = False) -> int:
        """Read one partition, or only say where it ends; returns how many bytes that took."""
        high_watermark = source.high_watermark
        if self.replica >= 0:
            bound = source.log_end_offset
        else:
            bound = source.last_stable_offset if self._committed_only else high_watermark
        log_start = source.log_start_offset
        offset = target.fetch_offset
        full = is_held_back or (
            room <= 0 and self._has_records
        )  # the first batch is given however little room there is
        if offset == bound or ((full or offset > bound) and log_start <= offset <= source.log_end_offset):
            if (
                self._incremental
                and target.last_high_watermark == high_watermark
                and target.last_log_start_offset == log_start
            ):
                return 0
            if self.replica >= 0 and NO_OFFSET != target.last_log_start_offset < log_start:
                self.must_answer = True  # records were deleted: the request that asked for it waits for followers
            self._answer(target, source, high_watermark)
            return 0
        max_bytes = max(min(target.partition_max_bytes, room), 0)
        region = source.region(offset, max_bytes, upper_bound=bound, min_bytes=self._min_region_bytes)
        if region is not None:
            return self._deliver(source, target, self._answer(target, source, high_watermark), region, bound)
        # More than a megabyte that is not known to be intact is checked in a thread, then sent whole: answers of a
        # megabyte cost a client that asked for more twice as much.
        result = source.read(offset, max_bytes, upper_bound=bound, min_one_message=not self._has_records, in_full=True)
        data = self._answer(target, source, high_watermark)
        if isinstance(result, ColdRead):
            self.cold.append((result, source, target, data, bound))
            self._has_records = True
            return max_bytes
        records: Buffer | FileRegion = result.data
        if len(records) >= self._min_region_bytes:  # checked now: it need not be held
            records = source.region(offset, len(records), upper_bound=bound, min_bytes=1) or records
        else:
            self._inline_bytes += len(records)
            if self._inline_bytes > MOST_INLINE_BYTES:
                self._min_region_bytes = SMALLEST_REGION_BYTES
        return self._deliver(source, target, data, records, bound)

    def _read_for_follower(self, target: FetchTarget, partition: "Partition", room: int) -> int:
        """As `_read`; of a partition whose copying is throttled, nothing for a while (KIP-73)."""
        cluster = self._parts.cluster
        if cluster is None or cluster.throttles.leader.is_idle:
            return self._read(target, partition.log, room)
        throttle, now = cluster.throttles.leader, self._parts.loop.time()
        at = partition.topic_partition
        is_held_back = self.replica not in partition.isr and throttle.wait_s(at, now) > 0
        size = self._read(target, partition.log, room, is_held_back=is_held_back)
        throttle.spend(at, size, now)
        return size

    def _diverges(self, target: FetchTarget, partition: "Partition") -> bool:
        """Whether the follower's log diverges from this one before the offset it asks for; the response then carries
        the place (KIP-595).

        Raises `OffsetOutOfRange` if this log does not know the follower's epoch at all.
        """
        epoch = target.last_fetched_epoch
        if epoch < 0:
            return False
        found = partition.log.end_offset_for_epoch(LeaderEpoch(epoch))
        if found.epoch < 0:
            raise OffsetOutOfRange(f"{partition.topic_partition} knows nothing of leader epoch {epoch}")
        if found.epoch >= epoch and found.end_offset >= target.fetch_offset:
            return False
        data = self._answer(target, partition.log, -1)
        data.diverging_epoch = EpochEndOffset(epoch=found.epoch, end_offset=found.end_offset)
        self.must_answer = True
        return True

    def _update_follower_state(self, request: FetchRequest, target: FetchTarget, partition: "Partition") -> None:
        """Note that a follower has everything before the offset it fetches. Raises OffsetOutOfRange."""
        source = partition.log
        if not source.log_start_offset <= target.fetch_offset <= source.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {target.fetch_offset} of {partition.topic_partition} is outside "
                f"{source.log_start_offset}..{source.log_end_offset}"
            )
        log_start, epoch = Offset(target.log_start_offset), epoch_of(request)
        partition.fetched_by(BrokerId(self.replica), Offset(target.fetch_offset), log_start, epoch)

    def _answer_preferred_replica(self, target: FetchTarget, source: "PartitionLog", replica: BrokerId) -> None:
        data = self._answer(target, source, source.high_watermark)
        data.preferred_read_replica = replica
        self.must_answer = True

    def _answer(self, target: FetchTarget, source: "PartitionLog", high_watermark: int) -> PartitionData:
        log_start = source.log_start_offset
        data = PartitionData(
            partition_index=target.partition,
            error_code=ErrorCode.NONE,
            high_watermark=high_watermark,
            last_stable_offset=source.last_stable_offset,
            log_start_offset=log_start,
            aborted_transactions=[] if self._committed_only else None,
            records=NO_BYTES,
        )
        self._found.append((target, data))
        return data

    def _deliver(
        self,
        source: "PartitionLog",
        target: FetchTarget,
        data: PartitionData,
        records: Buffer | FileRegion,
        bound: Offset,
        next_offset: int = -1,
    ) -> int:
        """`next_offset` is where the records end, if that is known."""
        size = len(records)
        data.records = records
        self.total_bytes += size
        self._has_records |= size > 0
        if self._committed_only and size:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in (
                    source.aborted_transactions(target.fetch_offset, bound, records)
                    if next_offset < 0
                    else source.aborted_transactions(target.fetch_offset, min(bound, next_offset))
                )
            ]
        return size

    def _fail(self, target: FetchTarget, error: OttlaError) -> None:
        """A topic that is not there holds the others up no longer than they would take without it."""
        self.must_answer |= error.code not in NO_SUCH_TOPIC
        data = PartitionData(
            partition_index=target.partition,
            error_code=error.code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            aborted_transactions=[] if error.code in NO_SUCH_TOPIC else None,
            records=NO_BYTES,
        )
        if error.code in MOVED and self._context.api_version >= LEADERS_NAMED_SINCE:
            data.current_leader = _current_leader(self._parts.metadata, target.topic, target.partition)
        self._found.append((target, data))

    def _count(self, target: FetchTarget, size: int) -> None:
        partition = self._parts.replicas.find(target.topic, target.partition)
        if partition is None:
            return  # removed since it was read
        if self.replica < 0:
            partition.throughput.fetched_bytes += size
        else:
            partition.throughput.replicated_out_bytes += size

    def read_cold(self) -> None:
        """Read and check what the page cache did not hold, up to `BYTES_EACH`; blocks, in a thread. Partitions for
        which nothing is left are answered without records."""
        left = BYTES_EACH
        for read, source, target, data, bound in self.cold:
            if left <= 0:
                return
            try:
                result = read.check(left)
            except OttlaError as error:
                data.error_code = error.code
                data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
            else:
                left -= self._deliver(source, target, data, result.data, bound, result.next_offset)

    def response(self) -> "Steps[FetchResponse]":
        """The answer, in steps."""
        session = self._session
        metered = self._context.metered
        if metered is not None and self.replica < 0 and not metered.fetched(self.total_bytes, len(self._found)):
            if not self._incremental:  # in Kafka, its session begins with its first answer that is not empty
                self._parts.fetch_sessions.drop(session.session_id)
                return FetchResponse(error_code=ErrorCode.NONE, responses=[])
            return FetchResponse(error_code=ErrorCode.NONE, session_id=session.session_id, responses=[])
        topics: dict[str | UUID, FetchableTopicResponse] = {}
        for number, (target, data) in enumerate(self._found):
            if number & STEP_MASK == STEP_MASK:
                yield
            # After an error -1: the next answer mentions the partition even if nothing has moved.
            target.last_high_watermark = data.high_watermark
            target.last_log_start_offset = data.log_start_offset
            topic = topics.get(target.topic)
            if topic is None:
                topic = topics[target.topic] = (
                    FetchableTopicResponse(topic_id=target.topic, partitions=[])
                    if isinstance(target.topic, UUID)
                    else FetchableTopicResponse(topic=target.topic, partitions=[])
                )
            topic.partitions.append(data)
            if data.records:
                self._count(target, len(data.records))
        if self.total_bytes and session.session_id:
            session.served([target for target, data in self._found if data.records])
        response = FetchResponse(
            error_code=ErrorCode.NONE, session_id=session.session_id, responses=list(topics.values())
        )
        leaders = {data.current_leader.leader_id for _, data in self._found if data.current_leader is not None}
        if leaders and self._context.api_version >= ENDPOINTS_NAMED_SINCE:
            response.node_endpoints = [
                NodeEndpoint(node_id=leader, host=host, port=port, rack=rack)
                for leader, host, port, rack in endpoints_of(self._parts.metadata, leaders, self._context)
            ]
        return response


def mark_of(partition: "Partition") -> tuple[int, ...]:
    """What a fetch's answer depends on; while it is equal, the answer is."""
    log = partition.log
    role = partition.leader_epoch, partition.leading
    return log.log_end_offset, log.high_watermark, log.last_stable_offset, *role


def _has_same_end(target: FetchTarget, source: "PartitionLog") -> bool:
    """Whether the follower's log ends in the epoch in which this one does.

    An empty log has no epoch, and one that was not written to in its leader's epoch has an earlier one.
    """
    epoch = target.last_fetched_epoch
    if epoch < 0 or epoch == source.latest_epoch:
        return True
    found = source.end_offset_for_epoch(LeaderEpoch(epoch))
    return found.epoch == epoch and found.end_offset == target.fetch_offset


def _current_leader(metadata: "MetadataView", topic: "str | UUID", partition: int) -> LeaderIdAndEpoch | None:
    """The leader of a partition that this broker does not lead, as far as it knows (KIP-951)."""
    found = leader_of(metadata, topic, partition)
    return None if found is None else LeaderIdAndEpoch(leader_id=found.leader, leader_epoch=found.leader_epoch)
