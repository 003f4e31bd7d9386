"""Share groups (KIP-932) as their coordinators know them: no client library in Python has calls for them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from ottla.cli.exits import CommandFailed
from ottla.cli.partition import Partition
from ottla.cli.requests import GROUP, Requests, refusal
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest

SHARE: Final = "share"
UNKNOWN_START: Final = -1
UNKNOWN_LAG: Final = -1


class Listed(NamedTuple):
    group: str
    state: str


class Member(NamedTuple):
    member: str
    epoch: int
    client: str
    host: str
    topics: tuple[str, ...]
    assigned: tuple[Partition, ...]


class ShareGroup(NamedTuple):
    group: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[Member, ...]


def share_groups(requests: Requests) -> list[Listed]:
    """The share groups of all brokers, by name. Raises CommandFailed."""
    found: list[Listed] = []
    for address in requests.brokers().values():
        answer = requests.ask(ListGroupsRequest(types_filter=[SHARE]), to=address)
        if answer.error_code:
            raise CommandFailed(f"{address} cannot list its groups: {refusal(answer.error_code)}")
        found += [Listed(group.group_id, group.group_state) for group in answer.groups if group.group_type == SHARE]
    return sorted(found)


def share_group(requests: Requests, name: str) -> ShareGroup:
    """One group with its members. Raises CommandFailed."""
    request = ShareGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    (group,) = requests.ask(request, to=requests.coordinator(name, GROUP)).groups
    if group.error_code:
        why = refusal(group.error_code, group.error_message)
        raise CommandFailed(f"share group {name!r} cannot be described: {why}")
    return ShareGroup(
        name,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        tuple(sorted(_member(member) for member in group.members)),
    )


def _member(member: Any) -> Member:
    return Member(
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


class Progress(NamedTuple):
    """How far a share group has come in a partition."""

    start: int | None
    """Everything before is finished; None: the group's first reader decides."""
    lag: int | None
    """Records that are not finished (KIP-1226); None while that is not known, as of brokers before Kafka 4.2."""


def progress_of(requests: Requests, name: str) -> dict[Partition, Progress]:
    """How far the group has come in each partition it has state for. Raises CommandFailed."""
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)]
    (group,) = requests.ask(
        DescribeShareGroupOffsetsRequest(groups=groups), to=requests.coordinator(name, GROUP)
    ).groups
    if group.error_code:
        why = refusal(group.error_code, group.error_message)
        raise CommandFailed(f"the offsets of share group {name!r} cannot be read: {why}")
    return {
        Partition(topic.topic_name, found.partition_index): Progress(
            None if found.start_offset == UNKNOWN_START else found.start_offset,
            None if found.lag == UNKNOWN_LAG else found.lag,
        )
        for topic in group.topics
        for found in topic.partitions
    }


def set_start_offsets(requests: Requests, name: str, offsets: Mapping[Partition, int]) -> None:
    """Have the group start elsewhere. Raises CommandFailed if that is refused for the group or for a partition."""
    answer = requests.ask(
        AlterShareGroupOffsetsRequest(group_id=name, topics=_by_topic(offsets)),
        to=requests.coordinator(name, GROUP),
    )
    if answer.error_code:
        raise CommandFailed(f"share group {name!r} was not moved: {refusal(answer.error_code, answer.error_message)}")
    told = {
        Partition(topic.topic_name, partition.partition_index): partition
        for topic in answer.responses
        for partition in topic.partitions
    }
    for partition in offsets:
        if partition not in told:
            raise CommandFailed(f"the broker does not say that {partition} was moved; Kafka 4.1 moves nothing")
        if told[partition].error_code:
            why = refusal(told[partition].error_code, told[partition].error_message)
            raise CommandFailed(f"{partition} was not moved: {why}")


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


def delete_groups(requests: Requests, names: Iterable[str]) -> dict[str, str | None]:
    """Delete groups; by name, why it could not be done. Raises CommandFailed."""
    failures: dict[str, str | None] = {}
    for name in names:
        answer = requests.ask(DeleteGroupsRequest(groups_names=[name]), to=requests.coordinator(name, GROUP))
        (result,) = answer.results
        failures[name] = refusal(result.error_code) if result.error_code else None
    return failures


def readers(members: Collection[Member], partition: Partition) -> int:
    """How many members read a partition."""
    return sum(partition in member.assigned for member in members)
