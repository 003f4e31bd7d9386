"""Streams groups (KIP-1071) as their coordinators know them. PURE."""

from dataclasses import dataclass
from typing import Any

from ottla.admin.operations.core import Operation, ask_about_group
from ottla.client.partition import Partition
from ottla.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeRequest,
)
from ottla.protocol.messages.streams_group_describe import Subtopology as DescribedSubtopology

Tasks = tuple[tuple[str, int], ...]
"""Subtopology and partition of each task."""


@dataclass(frozen=True, slots=True, order=True)
class TaskSets:
    """The tasks of a member, by their kind."""

    active: Tasks
    standby: Tasks
    warmup: Tasks


@dataclass(frozen=True, slots=True, order=True)
class StreamsMember:
    """A member with the tasks it has, and those it shall have (`target`)."""

    member: str
    epoch: int
    topology_epoch: int
    process: str
    client: str
    host: str
    endpoint: str | None
    has: TaskSets
    target: TaskSets


@dataclass(frozen=True, slots=True, order=True)
class InternalTopic:
    """A topic that the group makes for itself."""

    topic: str
    partitions: int
    """0: not known before the source topics are there."""


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of the topology whose tasks run independently, and its topics."""

    subtopology: str
    sources: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    repartition_sinks: tuple[str, ...]
    changelogs: tuple[InternalTopic, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Topics in which the group commits offsets."""
        return (*self.sources, *(topic.topic for topic in self.repartition_sources))


@dataclass(frozen=True, slots=True)
class StreamsGroup:
    """A streams group with its topology and members; `topology_epoch` None: no member has sent a topology yet."""

    group: str
    state: str
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    subtopologies: tuple[Subtopology, ...]
    members: tuple[StreamsMember, ...]

    def readers(self) -> dict[Partition, tuple[str, StreamsMember]]:
        """Subtopology and member of each partition that an active task reads."""
        inputs = {each.subtopology: each.inputs for each in self.subtopologies}
        return {
            Partition(topic, index): (subtopology, member)
            for member in self.members
            for subtopology, index in member.has.active
            for topic in inputs.get(subtopology, ())
        }


def describe_streams_group(name: str) -> Operation[StreamsGroup]:
    """Describe a streams group with its topology and members. Raises `NotFound`, `ClientError`."""
    request = StreamsGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    group: DescribedGroup = yield from ask_about_group(name, request, f"streams group {name!r} cannot be described")
    topology = group.topology
    return StreamsGroup(
        name,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        None if topology is None else topology.epoch,
        () if topology is None else tuple(map(_subtopology, topology.subtopologies or ())),
        tuple(sorted(map(_member, group.members), key=lambda member: member.member)),
    )


def _subtopology(each: DescribedSubtopology) -> Subtopology:
    return Subtopology(
        each.subtopology_id,
        tuple(each.source_topics),
        tuple(InternalTopic(topic.name, topic.partitions) for topic in each.repartition_source_topics),
        tuple(each.repartition_sink_topics),
        tuple(InternalTopic(topic.name, topic.partitions) for topic in each.state_changelog_topics),
    )


def _member(member: Member) -> StreamsMember:
    endpoint = member.user_endpoint
    return StreamsMember(
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


def _task_sets(assignment: Assignment) -> TaskSets:
    def tasks(kind: Any) -> Tasks:
        return tuple(sorted((each.subtopology_id, index) for each in kind for index in each.partitions))

    return TaskSets(tasks(assignment.active_tasks), tasks(assignment.standby_tasks), tasks(assignment.warmup_tasks))
