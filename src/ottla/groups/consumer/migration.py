"""How a group that has members changes its kind (KIP-848): both ways keep members, assignments and offsets. PURE.

classic -> consumer    when a member of the new protocol joins
consumer -> classic    when the last of those has gone, and only members of the classic protocol are left
"""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from ottla.coordination.state_machine import CancelTimer, Effect, Reply
from ottla.errors import ApiError, ErrorCode
from ottla.groups.classic.embedded import partitions_of, read_assignment, read_subscription, write_assignment
from ottla.groups.classic.members import Member, Roster
from ottla.groups.classic.protocol import REBALANCE, SESSION, SYNC, ClassicGroup
from ottla.groups.classic.records import GroupMetadata
from ottla.groups.classic.subscription import CONSUMER_PROTOCOL
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import NO_PARTITIONS, Partitions
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.members import ConsumerMember
from ottla.groups.consumer.records import (
    ClassicMember,
    ConsumerGroupEpoch,
    ConsumerRecord,
    TargetAssignment,
    TargetAssignmentEpoch,
)
from ottla.groups.events import Joined, Synced
from ottla.groups.topics import TopicsView
from ottla.ids import MemberId, TopicName
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion

log = logging.getLogger(__name__)

STICKY_ASSIGNORS: Final = frozenset(("sticky", "cooperative-sticky"))
"""Default assignors whose user data holds earlier owners, which the group now knows by itself. librdkafka
puts it into assignments, for which Kafka 4.1 takes them for custom ones and refuses the upgrade."""


# --- classic to consumer -----------------------------------------------------------------------------------------


def refuse_upgrade(group: ClassicGroup, config: GroupConfig) -> None:
    """Raises `ApiError` GROUP_ID_NOT_FOUND, saying why this group cannot become a consumer group."""
    if not config.allows_upgrade:
        why = "because online upgrade is disabled"
    elif not group.uses_consumer_protocol:
        why = "because the group does not use the consumer embedded protocol"
    elif len(group.members) > config.group_consumer_max_size:
        why = "because the group size exceeds the consumer group maximum size"
    else:
        return
    _refuse_upgrade(group, why)


def _refuse_upgrade(group: ClassicGroup, why: str) -> None:
    log.info("group %s cannot become a consumer group %s", group.group_id, why)
    raise ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group.group_id} to consumer group {why}."
    )


def upgraded(
    group: ClassicGroup, topics: TopicsView, hash_of: Callable[[frozenset[TopicName]], int]
) -> list[ConsumerRecord]:
    """The group as a consumer group. Its members keep what they have. `hash_of`: of the topics that they read.

    Raises `ApiError` GROUP_ID_NOT_FOUND for members whose subscription or assignment cannot be carried over.
    """
    group_id, generation = group.group_id, group.generation
    members: list[ConsumerMember] = []
    try:
        members = [_upgraded_member(member, group, topics) for member in group.members.values()]
    except (MalformedMessage, UnsupportedVersion):
        _refuse_upgrade(group, "because the embedded consumer protocol is malformed")
    metadata_hash = hash_of(frozenset().union(*(member.topic_names for member in members)))
    return [
        *(member.subscription_record(group_id) for member in members),
        ConsumerGroupEpoch(group_id, generation, metadata_hash),
        *(TargetAssignment(group_id, member.member_id, member.assigned) for member in members),
        TargetAssignmentEpoch(group_id, generation),
        *(member.current_record(group_id) for member in members),
    ]


def _upgraded_member(member: Member, group: ClassicGroup, topics: TopicsView) -> ConsumerMember:
    metadata = member.metadata(group.protocol_name) or member.protocols[0].metadata
    subscription = read_subscription(metadata)
    assigned: Partitions = NO_PARTITIONS
    if member.assignment:
        assignment = read_assignment(member.assignment)
        if assignment.user_data and group.protocol_name not in STICKY_ASSIGNORS:
            _refuse_upgrade(
                group,
                "because an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                "default assignor before re-attempting the upgrade",
            )
        assigned = partitions_of(assignment.assigned_partitions, topics)
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id or None,
        member.client_id,
        member.client_host,
        frozenset(map(TopicName, subscription.topics)),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=assigned,
    )


def dissolved(group: ClassicGroup) -> list[Effect]:
    """Make all parked members join again, and forget the timers."""
    effects: list[Effect] = []
    for member in group.members.values():
        join, sync = group.members.unpark_join(member), member.parked_sync
        member.parked_sync = None
        if join is not None:
            effects.append(Reply(join, Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))
        if sync is not None:
            effects.append(Reply(sync, Synced(ErrorCode.REBALANCE_IN_PROGRESS)))
    effects += [CancelTimer((SESSION, group.group_id, member_id)) for member_id in (*group.members, *group.pending)]
    effects += [CancelTimer((kind, group.group_id)) for kind in (REBALANCE, SYNC)]
    return effects


# --- consumer to classic -----------------------------------------------------------------------------------------


def may_downgrade(
    group: ConsumerGroup, staying: Collection[ConsumerMember], topics: TopicsView, config: GroupConfig
) -> bool:
    """Whether the group may become a classic group, now that only these stay. A replacement counts as classic."""
    if any(member.classic is None for member in staying):
        return False
    if not config.allows_downgrade:
        log.info("group %s cannot become a classic group: online downgrade is disabled", group.group_id)
        return False
    if len(staying) > config.group_max_size:
        log.info("group %s cannot become a classic group: it has more than group.max.size members", group.group_id)
        return False
    if downgraded(group, staying, topics, 0, rebalances=True).approximate_size_bytes > config.max_record_bytes:
        log.warning("group %s cannot become a classic group: it does not fit into one record", group.group_id)
        return False
    return True


def downgraded(
    group: ConsumerGroup, staying: Iterable[ConsumerMember], topics: TopicsView, now_ms: int, *, rebalances: bool
) -> GroupMetadata:
    """The group as a classic group, stable at its epoch, with the target assignment of each member.

    A group with partitions still owned by others needs a rebalance: its missing leader shows that to a new coordinator.
    """
    roster = Roster()
    targets: dict[MemberId, Partitions] = {}
    for member in staying:
        assert member.classic is not None
        roster.add(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.classic.protocols,
            )
        )
        targets[member.member_id] = group.target_of(member.member_id, member.instance_id)
    protocol = roster.select_protocol()

    def assignment(member: Member) -> bytes:
        return write_assignment(targets[member.member_id], topics, member.metadata(protocol))

    return GroupMetadata(
        group.group_id,
        CONSUMER_PROTOCOL,
        group.group_epoch,
        protocol,
        None if rebalances else roster.leader,
        now_ms,
        roster.to_record(protocol, assignment),
    )
