"""Streams groups as StreamsGroupDescribe shows them. PURE."""

from collections.abc import Iterable

from ottla.errors import ErrorCode
from ottla.groups.kinds import Group
from ottla.groups.streams.configured import ConfiguredSubtopology
from ottla.groups.streams.events import (
    StreamsGroupDescription,
    StreamsMemberDescription,
    SubtopologyDescription,
    TopologyDescription,
)
from ottla.groups.streams.group import StreamsGroup
from ottla.groups.streams.refusals import not_a_streams_group
from ottla.groups.streams.tasks import NOTHING
from ottla.groups.streams.topology import Subtopology
from ottla.ids import GroupId


def description(group_id: GroupId, group: Group | None) -> StreamsGroupDescription:
    """The group of this id, or why it cannot be described."""
    if not isinstance(group, StreamsGroup):
        problem = not_a_streams_group(group_id, exists=group is not None)
        return StreamsGroupDescription(problem.code, str(problem), group_id)
    return StreamsGroupDescription(
        ErrorCode.NONE,
        None,
        group_id,
        group.state_name,
        group.epoch,
        group.assignment_epoch,
        _topology(group),
        tuple(
            StreamsMemberDescription(
                member.member_id,
                member.epoch,
                member.instance_id,
                member.rack_id,
                member.client_id,
                member.client_host,
                member.topology_epoch,
                member.process_id,
                member.user_endpoint,
                member.client_tags,
                member.assigned,
                group.target.get(member.member_id, NOTHING),
            )
            for member in group.members.values()
        ),
    )


def _topology(group: StreamsGroup) -> TopologyDescription | None:
    """With the numbers of partitions, once the topology fits the topics."""
    configured = group.configured
    if configured is not None and configured.is_ready:
        return TopologyDescription(configured.epoch, _subtopologies(configured.subtopologies))
    if group.topology is None:
        return None
    in_order = sorted(group.topology.subtopologies, key=lambda each: each.subtopology_id)
    return TopologyDescription(group.topology.epoch, _subtopologies(in_order))


def _subtopologies(subtopologies: Iterable[ConfiguredSubtopology | Subtopology]) -> tuple[SubtopologyDescription, ...]:
    return tuple(
        SubtopologyDescription(
            each.subtopology_id,
            tuple(sorted(each.source_topics)),
            tuple(sorted(each.repartition_sink_topics)),
            tuple(sorted(each.repartition_source_topics)),
            tuple(sorted(each.state_changelog_topics)),
        )
        for each in subtopologies
    )
