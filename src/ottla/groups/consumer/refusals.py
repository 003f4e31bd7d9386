"""Why a request to a consumer group is refused, in Kafka's words. PURE.

Each either raises an `ApiError` or makes one to be raised.
"""

from ottla.errors import ApiError, ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import Partitions
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.members import ConsumerMember, is_within
from ottla.ids import GroupId, InstanceId, MemberId


def not_a_consumer_group(group_id: GroupId, *, exists: bool) -> ApiError:
    """GROUP_ID_NOT_FOUND with Kafka's message."""
    why = "is not a consumer group" if exists else "not found"
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")


def unknown_member(group_id: GroupId, member_id: MemberId) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def known_instance(
    current: ConsumerMember | None, instance_id: InstanceId | None, member_id: MemberId
) -> ConsumerMember:
    """The member with the instance id; FENCED_INSTANCE_ID if that is another one (KIP-345)."""
    if current is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if current.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {current.member_id}.",
        )
    return current


def refuse_if_full(group: ConsumerGroup, member_id: MemberId, config: GroupConfig) -> None:
    if len(group.members) >= config.group_consumer_max_size and member_id not in group.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {config.group_consumer_max_size} members.",
        )


def refuse_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """FENCED_MEMBER_EPOCH, unless the epoch is the member's; or the one before, if the response with the new one
    may have been lost: it then has only partitions of its assignment."""
    if epoch == member.epoch or (
        epoch < member.epoch and epoch == member.previous_epoch and is_within(owned, member.assigned)
    ):
        return
    than = "greater" if epoch > member.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )
