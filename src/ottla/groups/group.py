"""What a group is at a moment, and what can be asked of it. How it moves on is in `classic`. PURE."""

from collections.abc import Callable

from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.events import NO_MEMBER, GroupDescription, MemberDescription
from ottla.groups.members import Member, Roster
from ottla.groups.records import GroupMetadata
from ottla.groups.states import DECIDED, GroupState, IllegalTransition
from ottla.groups.subscription import CONSUMER_PROTOCOL, subscribed_topics
from ottla.ids import GroupId, InstanceId, MemberId, TopicName


class Group:
    """State, generation, protocol and members of one group."""

    def __init__(self, group_id: GroupId, config: GroupConfig) -> None:
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
        self._config = config

    @property
    def is_simple(self) -> bool:
        """Nothing but a name for committed offsets."""
        return self.protocol_type is None and self.state is GroupState.EMPTY and not self.pending

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
        """What members told is shown while the group is stable only; what they were given, until it is replaced."""
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

    def commit_refusal(self, member_id: MemberId, instance_id: InstanceId | None, generation: int) -> ErrorCode:
        """Why this sender may not commit offsets now, or NONE."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE  # an administrator, or a consumer that only keeps its offsets here
        if generation >= 0 or member_id != NO_MEMBER or instance_id is not None:
            error = self.refusal(member_id, instance_id)
            if error:
                return error
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif self.state is not GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.COMPLETING_REBALANCE else ErrorCode.NONE

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

    def _move(self, state: GroupState) -> None:
        if state not in DECIDED[self.state]:
            raise IllegalTransition(f"group {self.group_id}: from {self.state} to {state}")
        self.state = state
