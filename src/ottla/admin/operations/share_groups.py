"""Share groups (KIP-932) as their coordinators know them. PURE."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.admin.errors import RequestRefused, refusal
from ottla.admin.operations.core import GROUP, Operation, ask_about_group, ask_coordinator
from ottla.client.partition import Partition
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponseGroup,
)
from ottla.protocol.messages.share_group_describe import DescribedGroup, Member, ShareGroupDescribeRequest

_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member, the topics it has subscribed to, and the partitions it reads."""

    member: str
    epoch: int
    client: str
    host: str
    topics: tuple[str, ...]
    assigned: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """A share group with its members; `state` is Kafka's name for it."""

    group: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareMember, ...]

    def readers(self, partition: Partition) -> int:
        """How many members read a partition."""
        return sum(partition in member.assigned for member in self.members)


@dataclass(frozen=True, slots=True)
class ShareProgress:
    """How far a share group has come in a partition."""

    start: int | None
    """The offset before which everything is finished; None: the group's first reader decides."""
    lag: int | None
    """Records that are not finished (KIP-1226); None while that is not known, as of brokers before Kafka 4.2."""


def describe_share_group(name: str) -> Operation[ShareGroup]:
    """Describe a share group with its members. Raises `NotFound`, `ClientError`."""
    request = ShareGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    group: DescribedGroup = yield from ask_about_group(name, request, f"share group {name!r} cannot be described")
    return ShareGroup(
        name,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        tuple(sorted(map(_member, group.members), key=lambda member: member.member)),
    )


def list_share_group_offsets(name: str) -> Operation[dict[Partition, ShareProgress]]:
    """How far a share group has come in each partition that it has state for. Raises `ClientError`."""
    asked = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)]
    request = DescribeShareGroupOffsetsRequest(groups=asked)
    group: DescribeShareGroupOffsetsResponseGroup = yield from ask_about_group(
        name, request, f"the offsets of share group {name!r} cannot be read"
    )
    return {
        Partition(topic.topic_name, found.partition_index): ShareProgress(
            None if found.start_offset == _UNKNOWN else found.start_offset,
            None if found.lag == _UNKNOWN else found.lag,
        )
        for topic in group.topics
        for found in topic.partitions
    }


def alter_share_group_offsets(name: str, offsets: Mapping[Partition, int]) -> Operation[None]:
    """Have a share group without members start at these offsets; its state of deliveries there is forgotten.

    Raises `RequestRefused` if that is refused for the group or for one of the partitions, `ClientError`.
    """
    answer: AlterShareGroupOffsetsResponse = yield from ask_coordinator(
        name,
        GROUP,
        AlterShareGroupOffsetsRequest(group_id=name, topics=_by_topic(offsets)),
        lambda answered: int(answered.error_code),
    )
    if answer.error_code:
        reason = refusal(answer.error_code, answer.error_message)
        raise RequestRefused(f"share group {name!r} was not moved: {reason}", answer.error_code)
    results = {
        Partition(topic.topic_name, partition.partition_index): partition
        for topic in answer.responses
        for partition in topic.partitions
    }
    for partition in offsets:
        if partition not in results:
            raise RequestRefused(f"the broker does not say that {partition} was moved; Kafka 4.1 moves nothing")
        code = results[partition].error_code
        if code:
            raise RequestRefused(f"{partition} was not moved: {refusal(code, results[partition].error_message)}", code)


def _by_topic(offsets: Mapping[Partition, int]) -> list[AlterShareGroupOffsetsRequestTopic]:
    topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
    for partition, offset in offsets.items():
        topic = topics.setdefault(
            partition.topic, AlterShareGroupOffsetsRequestTopic(topic_name=partition.topic, partitions=[])
        )
        topic.partitions.append(
            AlterShareGroupOffsetsRequestPartition(partition_index=partition.partition, start_offset=offset)
        )
    return list(topics.values())


def _member(member: Member) -> ShareMember:
    return ShareMember(
        member.member_id,
        member.member_epoch,
        member.client_id,
        member.client_host.removeprefix("/"),
        tuple(member.subscribed_topic_names),
        tuple(
            sorted(
                Partition(topic.topic_name, index)
                for topic in member.assignment.topic_partitions
                for index in topic.partitions
            )
        ),
    )
