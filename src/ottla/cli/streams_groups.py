"""Streams groups (KIP-1071) as their coordinators know them: no client library in Python has calls for them."""

from typing import Any, Final, NamedTuple

from ottla.cli.exits import CommandFailed
from ottla.cli.partition import Partition
from ottla.cli.requests import GROUP, Requests, refusal
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest

STREAMS: Final = "streams"

Tasks = tuple[tuple[str, int], ...]
"""Subtopology and partition of each task."""


class Listed(NamedTuple):
    group: str
    state: str


class TaskSets(NamedTuple):
    active: Tasks
    standby: Tasks
    warmup: Tasks


class Member(NamedTuple):
    member: str
    epoch: int
    topology_epoch: int
    process: str
    client: str
    host: str
    endpoint: str | None
    has: TaskSets
    target: TaskSets


class InternalTopic(NamedTuple):
    topic: str
    partitions: int
    """0: not known before the source topics are there."""


class Subtopology(NamedTuple):
    subtopology: str
    sources: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    repartition_sinks: tuple[str, ...]
    changelogs: tuple[InternalTopic, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Topics in which the group commits offsets."""
        return (*self.sources, *(topic.topic for topic in self.repartition_sources))


class StreamsGroup(NamedTuple):
    group: str
    state: str
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    subtopologies: tuple[Subtopology, ...]
    members: tuple[Member, ...]

    def readers(self) -> dict[Partition, tuple[str, Member]]:
        """Subtopology and member of each partition that an active task reads."""
        inputs = {each.subtopology: each.inputs for each in self.subtopologies}
        return {
            Partition(topic, index): (subtopology, member)
            for member in self.members
            for subtopology, index in member.has.active
            for topic in inputs.get(subtopology, ())
        }


def streams_groups(requests: Requests) -> list[Listed]:
    """The streams groups of all brokers, by name. Raises CommandFailed."""
    found: list[Listed] = []
    for address in requests.brokers().values():
        answer = requests.ask(ListGroupsRequest(types_filter=[STREAMS]), to=address)
        if answer.error_code:
            raise CommandFailed(f"{address} cannot list its groups: {refusal(answer.error_code)}")
        found += [Listed(group.group_id, group.group_state) for group in answer.groups if group.group_type == STREAMS]
    return sorted(found)


def streams_group(requests: Requests, name: str) -> StreamsGroup:
    """One group with its topology and members. Raises CommandFailed."""
    request = StreamsGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    (group,) = requests.ask(request, to=requests.coordinator(name, GROUP)).groups
    if group.error_code:
        why = refusal(group.error_code, group.error_message)
        raise CommandFailed(f"streams group {name!r} cannot be described: {why}")
    topology = group.topology
    return StreamsGroup(
        name,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        None if topology is None else topology.epoch,
        () if topology is None else tuple(map(_subtopology, topology.subtopologies or ())),
        tuple(sorted(map(_member, group.members))),
    )


def _subtopology(each: Any) -> Subtopology:
    return Subtopology(
        each.subtopology_id,
        tuple(each.source_topics),
        tuple(InternalTopic(topic.name, topic.partitions) for topic in each.repartition_source_topics),
        tuple(each.repartition_sink_topics),
        tuple(InternalTopic(topic.name, topic.partitions) for topic in each.state_changelog_topics),
    )


def _member(member: Any) -> Member:
    endpoint = member.user_endpoint
    return Member(
        member.member_id,
        member.member_epoch,
        member.topology_epoch,
        member.process_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
        _task_sets(member.assignment),
        _task_sets(member.target_assignment),
    )


def _task_sets(assignment: Any) -> TaskSets:
    def tasks(kind: Any) -> Tasks:
        return tuple(sorted((each.subtopology_id, index) for each in kind for index in each.partitions))

    return TaskSets(tasks(assignment.active_tasks), tasks(assignment.standby_tasks), tasks(assignment.warmup_tasks))
