"""What a classic group is at a moment, and what can be asked of it. How it moves on is in `classic`. PURE."""

from collections.abc import Callable, Mapping
from typing import Final

from ottla.coordination.state_machine import IllegalTransition
from ottla.errors import ErrorCode
from ottla.groups.classic.embedded import assigned_by_name
from ottla.groups.classic.members import Member, Roster
from ottla.groups.classic.records import GroupDeleted, GroupMetadata
from ottla.groups.classic.states import DECIDED, GroupState
from ottla.groups.classic.subscription import CONSUMER_PROTOCOL, subscribed_topics
from ottla.groups.config import GroupConfig
from ottla.groups.events import NO_MEMBER, CommitOffsets, GroupDescription, MemberDescription
from ottla.groups.history import AssignmentByName, History, Rebalance, moves_between
from ottla.groups.kinds import GroupKind, OffsetExpiry
from ottla.groups.records import GroupRecord
from ottla.ids import GroupId, InstanceId, MemberId, TopicName


class ClassicState:
    """State, generation, protocol and members of one classic group."""

    kind: Final = GroupKind.CLASSIC

    def __init__(self, group_id: GroupId, config: GroupConfig, history: History | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Roster()
        self.pending: set[MemberId] = set()
        """Ids given out (KIP-394) to clients that have not come back with them yet."""
        self.record: GroupMetadata | None = None
        """The last one replayed."""
        self.history = History(group_id) if history is None else history
        self._config = config

    @property
    def is_simple(self) -> bool:
        """Nothing but a name for committed offsets."""
        return self.protocol_type is None and self.state is GroupState.EMPTY and not self.pending

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def may_expire(self) -> bool:
        return self.is_empty and not self.pending

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def subscribed_topics(self) -> frozenset[TopicName] | None:
        """The topics that members read; None: only they know."""
        if not self.uses_consumer_protocol:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())

    def is_subscribed_to(self, topic: TopicName) -> bool:
        """In doubt, a group of consumers is."""
        topics = self.subscribed_topics()
        return topic in topics if topics is not None else self.uses_consumer_protocol

    def describe(self) -> GroupDescription:
        """Describe the group; the members' metadata only while it is stable, their assignments until they are
        replaced."""
        stable = self.state is GroupState.STABLE
        return GroupDescription(
            group_id=self.group_id,
            state=self.state,
            protocol_type=self.protocol_type or "",
            protocol_name=(self.protocol_name or "") if stable else "",
            members=tuple(
                MemberDescription(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self.protocol_name) if stable else b"",
                    member.assignment,
                )
                for member in self.members.values()
            ),
        )

    def refusal(self, member_id: MemberId, instance_id: InstanceId | None) -> ErrorCode:
        """Why this is not one of the members, or NONE (KIP-345 for instances)."""
        if instance_id is not None:
            current = self.members.static_member(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def commit_refusal(self, commit: CommitOffsets) -> ErrorCode:
        """Why an offset commit is refused; NONE if it is not."""
        if commit.generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE  # an administrator, or a consumer that only keeps its offsets here
        if commit.generation >= 0 or commit.member_id != NO_MEMBER or commit.instance_id is not None:
            error = self.refusal(commit.member_id, commit.instance_id)
            if error:
                return error
            if commit.generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif self.state is not GroupState.EMPTY and commit.producer is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is GroupState.COMPLETING_REBALANCE and commit.producer is None:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def fetch_refusal(self, member_id: MemberId | None, epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def delete_offsets_refusal(self) -> ErrorCode:
        """Only consumers name their topics, so that offsets of other topics can be deleted."""
        return ErrorCode.NONE if self.is_empty or self.uses_consumer_protocol else ErrorCode.NON_EMPTY_GROUP

    def offset_expiry(self) -> OffsetExpiry | None:
        """A group with members keeps what it reads, and one that only members understand keeps all."""
        if self.is_empty:
            if self.protocol_type is not None and self.record is not None:
                return OffsetExpiry(self.record.current_state_timestamp_ms)
            return OffsetExpiry()
        topics = self.subscribed_topics() if self.state is GroupState.STABLE else None
        return None if topics is None else OffsetExpiry(subscribed=topics)

    def tombstones(self) -> tuple[GroupRecord, ...]:
        return (GroupDeleted(self.group_id),)

    def topics_changed(self, names: frozenset[TopicName]) -> None:
        """The members see for themselves."""

    def as_record(self, now_ms: int, assignment: Callable[[Member], bytes] | None = None) -> GroupMetadata:
        """What a successor has to know; with these assignments, or those in force."""
        return GroupMetadata(
            self.group_id,
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.members.leader,
            now_ms,
            self.members.to_record(self.protocol_name, assignment or (lambda member: member.assignment)),
        )

    def _remember(self, now_ms: int, assignments: Mapping[MemberId, bytes]) -> None:
        """Keep why there was a rebalance, and what the leader's assignments move."""
        before = {} if self.record is None else {member.member_id: member.assignment for member in self.record.members}
        known = assigned_by_name if self.uses_consumer_protocol else _unknown
        moved, moves = moves_between(known(before), known(assignments))
        assignor = self.protocol_name or ""
        reasons = self.history.take_reasons()
        self.history.add(
            Rebalance(now_ms, self.generation, self.kind, assignor, reasons, len(self.members), moved, moves)
        )

    def _move(self, state: GroupState) -> None:
        if state not in DECIDED[self.state]:
            raise IllegalTransition(f"group {self.group_id}: from {self.state} to {state}")
        self.state = state


def _unknown(assignments: Mapping[MemberId, bytes]) -> Mapping[MemberId, AssignmentByName]:
    """Only the members can read what they are assigned."""
    return {}
