"""The assignors of the coordinator (KIP-848), which map partitions to members. PURE, and stateless.

Both take all their input in an `AssignmentProblem` and return a mapping of all members; every partition of a
subscribed topic goes to exactly one subscriber.

- `range` gives each member a range of every topic's partitions, the same of each topic if topics are alike in size:
  so partitions of two topics that belong together by their number end up with one member.
- `uniform` keeps what members have as far as balance allows (`uniform`).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.groups.consumer.events import NO_PARTITIONS, Partitions
from ottla.groups.topics import Topic
from ottla.ids import InstanceId, MemberId, TopicId


class Subscriber(NamedTuple):
    """A member, as an assignor sees it. All of `topics` exist."""

    topics: frozenset[TopicId]
    instance_id: InstanceId | None = None
    rack_id: str | None = None
    target: Partitions = NO_PARTITIONS
    """What the last assignment gave it."""


class AssignmentProblem(NamedTuple):
    """The input of an assignor."""

    subscribers: Mapping[MemberId, Subscriber]
    topics: Mapping[TopicId, Topic]
    """Every subscribed topic."""


PartitionAssignor = Callable[[AssignmentProblem], Mapping[MemberId, Partitions]]


def assign_ranges(problem: AssignmentProblem) -> Mapping[MemberId, Partitions]:
    """To members in order, static ones first; where a topic does not come out even, the first get one more."""
    in_order = sorted(
        problem.subscribers.items(),
        key=lambda item: (item[1].instance_id is None, item[1].instance_id or item[0]),
    )
    counts: dict[TopicId, int] = {}
    for _, subscriber in in_order:
        for topic_id in subscriber.topics:
            counts[topic_id] = counts.get(topic_id, 0) + 1
    places: dict[TopicId, int] = dict.fromkeys(counts, 0)
    assignment: dict[MemberId, Partitions] = {}
    for member_id, subscriber in in_order:
        ranges: dict[TopicId, frozenset[int]] = {}
        for topic_id in subscriber.topics:
            place = places[topic_id]
            places[topic_id] += 1
            each, more = divmod(problem.topics[topic_id].partition_count, counts[topic_id])
            start = each * place + min(place, more)
            end = start + each + (place < more)
            if start < end:
                ranges[topic_id] = frozenset(range(start, end))
        assignment[member_id] = ranges
    return assignment


def assign_uniformly(problem: AssignmentProblem) -> Mapping[MemberId, Partitions]:
    """As even as can be, and as much as can be as before."""
    from ottla.groups.consumer.uniform import UniformAssignment

    return UniformAssignment(problem).solve()


ASSIGNORS: Final[Mapping[str, PartitionAssignor]] = MappingProxyType(
    {"uniform": assign_uniformly, "range": assign_ranges}
)
"""By the names that members and `group.consumer.assignors` use."""
