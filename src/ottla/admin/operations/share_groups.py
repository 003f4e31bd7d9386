"""Share groups (KIP-932) as their coordinators know them. PURE."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.admin.errors import RequestRefused, refusal
from ottla.admin.operations.core import GROUP, Ask, Operation, ask_about_group, ask_coordinator, by_topic
from ottla.client.addresses import Address
from ottla.client.partition import Partition
from ottla.ids import uuid_to_text
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
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.read_share_group_state import (
    PartitionData,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateData,
)
from ottla.protocol.messages.share_group_describe import DescribedGroup, Member, ShareGroupDescribeRequest

_UNKNOWN: Final = -1
_SHARE: Final = 2
"""FindCoordinator's key type of share partitions."""
_ANY_EPOCH: Final = -1
"""A read that does not take the partition over, as its leader's does."""
_FATES: Final = {0: "available", 2: "acknowledged", 4: "archived"}


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


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Records of a partition, from `first_offset` to `last_offset`, with one fate: `available` (to be delivered; again,
    if `count` is above 0), `acknowledged` or `archived` (rejected, or delivered too often)."""

    first_offset: int
    last_offset: int
    fate: str
    count: int


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


def list_share_deliveries(name: str, partitions: Iterable[Partition]) -> Operation[dict[Partition, list[Deliveries]]]:
    """What the share coordinator has kept of deliveries beyond the start offset of each of these partitions.

    Records that a member holds at the moment are only in the memory of the partition's leader: no request has them.
    Brokers ask for the right CLUSTER_ACTION: it is their own request. Partitions without state are left out. Raises
    `RequestRefused`, `ClientError`.
    """
    wanted = by_topic(partitions)
    topics = [MetadataRequestTopic(name=topic) for topic in wanted]
    answer: MetadataResponse = yield Ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
    ids = {str(topic.name): topic.topic_id for topic in answer.topics if not topic.error_code}
    names = {topic_id: topic for topic, topic_id in ids.items()}
    keys = {
        f"{name}:{uuid_to_text(ids[topic])}:{number}": (ids[topic], number)
        for topic, numbers in wanted.items()
        if topic in ids
        for number in numbers
    }
    if not keys:
        return {}
    there: FindCoordinatorResponse = yield Ask(FindCoordinatorRequest(key_type=_SHARE, coordinator_keys=list(keys)))
    by_coordinator: dict[Address, dict[UUID, list[int]]] = {}
    for each in there.coordinators:
        if each.error_code:
            reason = refusal(each.error_code, each.error_message)
            raise RequestRefused(f"the coordinator of {each.key!r} cannot be found: {reason}", each.error_code)
        topic_id, number = keys[each.key]
        by_coordinator.setdefault(Address(each.host, each.port), {}).setdefault(topic_id, []).append(number)
    found: dict[Partition, list[Deliveries]] = {}
    for address, asked in by_coordinator.items():
        found |= yield from _deliveries(name, names, asked, address)
    return found


def _deliveries(
    name: str, names: Mapping[UUID, str], asked: Mapping[UUID, list[int]], address: Address
) -> Operation[dict[Partition, list[Deliveries]]]:
    request = ReadShareGroupStateRequest(
        group_id=name,
        topics=[
            ReadStateData(
                topic_id=topic_id,
                partitions=[PartitionData(partition=number, leader_epoch=_ANY_EPOCH) for number in numbers],
            )
            for topic_id, numbers in asked.items()
        ],
    )
    answer: ReadShareGroupStateResponse = yield Ask(request, address)
    found: dict[Partition, list[Deliveries]] = {}
    for topic in answer.results:
        for part in topic.partitions:
            if part.error_code:
                reason = refusal(part.error_code, part.error_message)
                raise RequestRefused(
                    f"the deliveries of share group {name!r} cannot be read: {reason}", part.error_code
                )
            found[Partition(names[topic.topic_id], part.partition)] = [
                Deliveries(
                    each.first_offset, each.last_offset, _FATES.get(each.delivery_state, ""), each.delivery_count
                )
                for each in part.state_batches
            ]
    return found


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
