"""A streams group (KIP-1071): what it knows, what can be asked of it, and how records change it. PURE.

    group epoch         grows when members, the topology, its topics or the settings of the assignment change
    assignment epoch    the group epoch that the target assignment was worked out for
    member epoch        how far a member has come on its way to its part of the target

Whatever is decided about the group (`machine`) is written as records; `apply` puts them into force, here and at a
successor alike.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.groups.events import CommitOffsets, OffsetToCommit
from ottla.groups.kinds import GroupKind, OffsetExpiry
from ottla.groups.member_epochs import EMPTY, MemberEpochsGroup
from ottla.groups.streams.configured import ConfiguredTopology
from ottla.groups.streams.events import LEAVING
from ottla.groups.streams.members import Owners, StreamsMember
from ottla.groups.streams.records import (
    StreamsAssignment,
    StreamsAssignmentDeleted,
    StreamsGroupDeleted,
    StreamsGroupEpoch,
    StreamsMemberDeleted,
    StreamsMemberMetadata,
    StreamsRecord,
    StreamsTarget,
    StreamsTargetDeleted,
    StreamsTargetEpoch,
    StreamsTargetEpochDeleted,
    StreamsTopology,
    StreamsTopologyDeleted,
)
from ottla.groups.streams.tasks import NO_EPOCHS, NOTHING, TaskId, TaskSets
from ottla.groups.streams.topology import Topology
from ottla.ids import GroupId, MemberId, TopicName

STREAMS_PROTOCOL: Final = "streams"
NOT_READY: Final = "NotReady"

FIRST_EPOCH: Final = 1
"""Group and assignment epoch of a group before its first record."""
NO_EPOCH: Final = -1
NOT_VALIDATED: Final = -1


class StreamsGroup(MemberEpochsGroup[StreamsMember]):
    """One group. Everything but what stands under "in memory" changes by `apply` alone."""

    kind: Final = GroupKind.STREAMS
    protocol_type: Final = STREAMS_PROTOCOL

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.validated_topology_epoch = NOT_VALIDATED
        self.assignment_configs: Mapping[str, str] = {}
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        self.topology: Topology | None = None
        self.members: dict[MemberId, StreamsMember] = {}
        self.target: dict[MemberId, TaskSets] = {}
        self.owners = Owners()

        # In memory:
        self.configured: ConfiguredTopology | None = None
        """The topology, held against the topics at the last change of either."""
        self.needs_refresh = True
        """Topics may have changed since the hash was computed."""
        self.is_delayed = False
        """The first assignment waits for more members."""
        self.shutdown_requested_by: MemberId | None = None
        """The member that asked for the end of the whole application; as in Kafka, forgotten with the coordinator."""
        self.endpoint_epoch = 0
        """Incremented whenever a member with an end point is given other tasks."""
        self.fast_heartbeats_until_ms = 0
        """Tasks move, or have just moved: members are to come back soon."""

    # --- of every group ---

    @property
    def state_name(self) -> str:
        if not self.members:
            return EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return NOT_READY
        return self.reconciliation(self.epoch)

    def member_commit_refusal(self, member: StreamsMember, commit: CommitOffsets) -> ErrorCode:
        """A member that has not seen its newest epoch yet may commit for tasks that it has had since before."""
        epoch = commit.generation
        if epoch < member.epoch and self._had_all(member, epoch, commit.offsets):
            return ErrorCode.NONE
        return self.epoch_refusal(member, epoch)

    def epoch_refusal(self, member: StreamsMember, epoch: int) -> ErrorCode:
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def _had_all(self, member: StreamsMember, epoch: int, offsets: Sequence[OffsetToCommit]) -> bool:
        """Were the tasks that read these offsets' partitions the member's at this epoch, and are they still?"""
        if self.topology is None:
            return False
        subtopology_of, assigned_at = self.topology.subtopology_reading, member.assignment_epochs
        return all(
            each.topic in subtopology_of
            and epoch >= assigned_at.get(TaskId(subtopology_of[each.topic], each.partition), epoch + 1)
            for each in offsets
        )

    def is_subscribed_to(self, topic: TopicName) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.subtopology_reading

    def offset_expiry(self) -> OffsetExpiry:
        if not self.members or self.topology is None:
            return OffsetExpiry()
        return OffsetExpiry(subscribed=frozenset(self.topology.subtopology_reading))

    def tombstones(self) -> tuple[StreamsRecord, ...]:
        """Take the group out of the log; as in Kafka, the topology goes last."""
        group_id = self.group_id
        return (
            *(StreamsAssignmentDeleted(group_id, member_id) for member_id in self.members),
            *(StreamsTargetDeleted(group_id, member_id) for member_id in self.members),
            StreamsTargetEpochDeleted(group_id),
            *(StreamsMemberDeleted(group_id, member_id) for member_id in self.members),
            StreamsGroupDeleted(group_id),
            StreamsTopologyDeleted(group_id),
        )

    def topics_changed(self, names: frozenset[TopicName]) -> None:
        """The next heartbeat looks whether this changes the tasks."""
        if self.topology is not None and not names.isdisjoint(self.topology.required_topics):
            self.needs_refresh = True

    # --- questions ---

    def with_member(self, member: StreamsMember) -> dict[MemberId, StreamsMember]:
        return {**self.members, member.member_id: member}

    def member_tombstones(self, member_id: MemberId) -> tuple[StreamsRecord, ...]:
        group_id = self.group_id
        return (
            StreamsAssignmentDeleted(group_id, member_id),
            StreamsTargetDeleted(group_id, member_id),
            StreamsMemberDeleted(group_id, member_id),
        )

    # --- what lasts ---

    def apply(self, record: StreamsRecord) -> None:
        """Put a record into force, in whatever order compaction has left them."""
        _APPLY[type(record)](self, record)

    def _set_member(self, member: StreamsMember) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self.owners.remove(before)
        self.members[member.member_id] = member
        self.owners.add(member)

    def _apply_member(self, record: StreamsMemberMetadata) -> None:
        member = self.members.get(record.member_id) or StreamsMember(record.member_id)
        self._set_member(
            member._replace(
                instance_id=record.instance_id,
                rack_id=record.rack_id,
                client_id=record.client_id,
                client_host=record.client_host,
                rebalance_timeout_ms=record.rebalance_timeout_ms,
                topology_epoch=record.topology_epoch,
                process_id=record.process_id,
                user_endpoint=record.user_endpoint,
                client_tags=record.client_tags,
            )
        )

    def _apply_no_member(self, record: StreamsMemberDeleted) -> None:
        member = self.members.pop(record.member_id, None)
        if member is not None:
            self.owners.remove(member)
        if not self.members:
            self.shutdown_requested_by = None

    def _apply_epoch(self, record: StreamsGroupEpoch) -> None:
        self.epoch = record.epoch
        self.metadata_hash = record.metadata_hash
        self.validated_topology_epoch = record.validated_topology_epoch
        self.assignment_configs = record.assignment_configs

    def _apply_target_epoch(self, record: StreamsTargetEpoch) -> None:
        self.assignment_epoch = record.epoch
        self.assigned_at_ms = record.timestamp_ms

    def _apply_no_target_epoch(self, record: StreamsTargetEpochDeleted) -> None:
        self.assignment_epoch = NO_EPOCH
        self.assigned_at_ms = 0

    def _apply_target(self, record: StreamsTarget) -> None:
        self.target[record.member_id] = record.tasks

    def _apply_no_target(self, record: StreamsTargetDeleted) -> None:
        self.target.pop(record.member_id, None)

    def _apply_assignment(self, record: StreamsAssignment) -> None:
        member = self.members.get(record.member_id) or StreamsMember(record.member_id)
        self._set_member(
            member._replace(
                epoch=record.epoch,
                previous_epoch=record.previous_epoch,
                state=record.state,
                assigned=record.assigned,
                pending_revocation=record.pending_revocation,
                assignment_epochs=record.assignment_epochs,
            )
        )

    def _apply_no_assignment(self, record: StreamsAssignmentDeleted) -> None:
        member = self.members.get(record.member_id)
        if member is not None:
            self._set_member(
                member._replace(
                    epoch=LEAVING,
                    previous_epoch=LEAVING,
                    assigned=NOTHING,
                    pending_revocation=NOTHING,
                    assignment_epochs=NO_EPOCHS,
                )
            )

    def _apply_topology(self, record: StreamsTopology) -> None:
        self.topology = record.topology

    def _apply_no_topology(self, record: StreamsTopologyDeleted) -> None:
        self.topology = None
        self.configured = None


_APPLY: Final[Mapping[type, Callable[[StreamsGroup, Any], None]]] = MappingProxyType(
    {
        StreamsMemberMetadata: StreamsGroup._apply_member,
        StreamsMemberDeleted: StreamsGroup._apply_no_member,
        StreamsGroupEpoch: StreamsGroup._apply_epoch,
        StreamsTargetEpoch: StreamsGroup._apply_target_epoch,
        StreamsTargetEpochDeleted: StreamsGroup._apply_no_target_epoch,
        StreamsTarget: StreamsGroup._apply_target,
        StreamsTargetDeleted: StreamsGroup._apply_no_target,
        StreamsAssignment: StreamsGroup._apply_assignment,
        StreamsAssignmentDeleted: StreamsGroup._apply_no_assignment,
        StreamsTopology: StreamsGroup._apply_topology,
        StreamsTopologyDeleted: StreamsGroup._apply_no_topology,
    }
)


def made_by_a_deletion(record: StreamsRecord) -> bool:
    """Is it a tombstone, which makes no group where there is none?"""
    return type(record) in _DELETIONS


_DELETIONS: Final[Iterable[type]] = frozenset(
    {
        StreamsMemberDeleted,
        StreamsTargetEpochDeleted,
        StreamsTargetDeleted,
        StreamsAssignmentDeleted,
        StreamsTopologyDeleted,
    }
)
