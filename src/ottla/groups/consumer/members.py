"""A member of a consumer group, and the next step from its present to its target assignment. PURE.

                     target epoch is new,                    all given up
    +--------+       nothing to give up       +--------+ <------------------+----------------------+
    | STABLE | ------------------------------>| STABLE |                    | UNREVOKED_PARTITIONS |
    +--------+                                +--------+      to give up    +----------------------+
        |                                          ^      +------------------------^
        | others still have some of it             | released                      |
        +-------------------------> UNRELEASED_PARTITIONS -------------------------+ target epoch is new

A member waits only for its own new partitions: a member that keeps its partitions goes on reading.

Source: KIP-848, as Kafka 4.3 does it.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.errors import ApiError, ErrorCode
from ottla.groups.consumer.events import NO_PARTITIONS, Partitions
from ottla.groups.consumer.records import ClassicMember, CurrentAssignment, MemberState, MemberSubscription
from ottla.ids import GroupId, InstanceId, MemberId, TopicId, TopicName

NO_TIMEOUT: Final = -1


class ConsumerMember(NamedTuple):
    """One member: its subscription and its state. Replaced as a whole."""

    member_id: MemberId
    instance_id: InstanceId | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[TopicName] = frozenset()
    topic_regex: str | None = ""
    rebalance_timeout_ms: int = NO_TIMEOUT
    assignor: str | None = None
    classic: ClassicMember | None = None
    """Set for a member of the classic protocol, in a group that is on its way from one to the other."""
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def described_by(self, record: MemberSubscription) -> "ConsumerMember":
        return self._replace(
            instance_id=record.instance_id,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            topic_names=record.topic_names,
            topic_regex=record.topic_regex,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            assignor=record.assignor,
            classic=record.classic,
        )

    def placed_by(self, record: CurrentAssignment) -> "ConsumerMember":
        return self._replace(
            epoch=record.epoch,
            previous_epoch=record.previous_epoch,
            state=record.state,
            assigned=record.assigned,
            pending_revocation=record.pending_revocation,
        )

    @property
    def responsible_for(self) -> Partitions:
        """What the member has, and what it still has to give up."""
        if not self.pending_revocation:
            return self.assigned
        return {
            topic_id: self.assigned.get(topic_id, frozenset()) | self.pending_revocation.get(topic_id, frozenset())
            for topic_id in {**self.assigned, **self.pending_revocation}
        }

    def subscription_record(self, group_id: GroupId) -> MemberSubscription:
        return MemberSubscription(
            group_id,
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.topic_names,
            self.topic_regex,
            self.rebalance_timeout_ms,
            self.assignor,
            self.classic,
        )

    def current_record(self, group_id: GroupId) -> CurrentAssignment:
        return CurrentAssignment(
            group_id,
            self.member_id,
            self.epoch,
            self.previous_epoch,
            self.state,
            self.assigned,
            self.pending_revocation,
        )


def reconciled(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    is_owned: Callable[[TopicId, int], bool],
    owned: Partitions | None,
    reads: Callable[[TopicId], bool],
) -> ConsumerMember:
    """The member one step nearer to its target, or as it is.

    `is_owned`: whether any member has the partition, or still has to revoke it. `owned`: the partitions the member
    reports, None if it reports none. `reads`: whether the member is subscribed to the topic now. Its target may be
    older.
    Raises
    `ApiError` FENCED_MEMBER_EPOCH for a state that only later versions know.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return _without_unread(member, owned, reads)
            return _next_step(member, member.epoch, target_epoch, target, is_owned, owned, reads)
        case MemberState.UNREVOKED_PARTITIONS:
            if _has_any(owned, member.pending_revocation):
                return _without_unread(member, owned, reads)
            return _next_step(member, member.epoch, target_epoch, target, is_owned, owned, reads)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next_step(member, member.epoch, target_epoch, target, is_owned, owned, reads)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                    "rejoin.",
                )
            return _next_step(member, target_epoch, target_epoch, target, is_owned, owned, reads)


def _without_unread(
    member: ConsumerMember, owned: Partitions | None, reads: Callable[[TopicId], bool]
) -> ConsumerMember:
    """The member where it is, giving up the topics that it does not read any longer."""
    unread = {topic_id: indexes for topic_id, indexes in member.assigned.items() if not reads(topic_id)}
    if not unread:
        return member
    kept = {topic_id: indexes for topic_id, indexes in member.assigned.items() if topic_id not in unread}
    to_revoke = {
        topic_id: unread.get(topic_id, frozenset()) | member.pending_revocation.get(topic_id, frozenset())
        for topic_id in {**member.pending_revocation, **unread}
    }
    if not _has_any(owned, to_revoke):
        return member._replace(previous_epoch=member.epoch, assigned=kept)
    return member._replace(
        state=MemberState.UNREVOKED_PARTITIONS,
        previous_epoch=member.epoch,
        assigned=kept,
        pending_revocation=to_revoke,
    )


def _next_step(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    is_owned: Callable[[TopicId, int], bool],
    owned: Partitions | None,
    reads: Callable[[TopicId], bool],
) -> ConsumerMember:
    """`epoch`: the one to stay in if there is something to give up first."""
    kept: dict[TopicId, frozenset[int]] = {}
    to_revoke: dict[TopicId, frozenset[int]] = {}
    to_add: dict[TopicId, frozenset[int]] = {}
    waits = False
    for topic_id in {**target, **member.assigned}:
        wanted = target.get(topic_id, frozenset()) if reads(topic_id) else frozenset()
        current = member.assigned.get(topic_id, frozenset())
        still = current & wanted
        missing = wanted - still
        own = member.pending_revocation.get(topic_id, frozenset())  # what it has just given up itself is free
        free = frozenset(partition for partition in missing if partition in own or not is_owned(topic_id, partition))
        waits = waits or len(free) < len(missing)
        if still:
            kept[topic_id] = still
        if len(still) < len(current):
            to_revoke[topic_id] = current - still
        if free:
            to_add[topic_id] = free
    if to_revoke and _has_any(owned, to_revoke):
        return member._replace(
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            pending_revocation=to_revoke,
        )
    for topic_id, partitions in to_add.items():
        kept[topic_id] = kept.get(topic_id, frozenset()) | partitions
    return member._replace(
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=kept if kept else NO_PARTITIONS,
        pending_revocation=NO_PARTITIONS,
    )


def _has_any(owned: Partitions | None, partitions: Partitions) -> bool:
    """Does the member still have one of these? If it does not say, it does."""
    if owned is None:
        return True
    return any(not partitions.get(topic_id, frozenset()).isdisjoint(indexes) for topic_id, indexes in owned.items())


def is_within(owned: Partitions | None, assigned: Partitions) -> bool:
    """Does a member say that it has nothing but what it was assigned?"""
    if owned is None:
        return False
    return all(indexes <= assigned.get(topic_id, frozenset()) for topic_id, indexes in owned.items())
