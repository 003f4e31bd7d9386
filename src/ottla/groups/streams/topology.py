"""The topology of a streams application, as its clients describe it when they join. PURE.

A subtopology reads its source topics and its repartition sources, writes to repartition sinks, and keeps its state in
changelog topics. The internal topics (repartition, changelog) are created by the coordinator. Topics that have to have
the same number of partitions form a copartition group. Source: KIP-1071.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from ottla.ids import SubtopologyId, TopicName

ANY_COUNT = 0
"""Partitions of an internal topic that has as many as its sources; replication factor that is the broker's default."""


class InternalTopicInfo(NamedTuple):
    """An internal topic as the application wants it. Settings are kept in the order in which they were sent."""

    name: TopicName
    partitions: int = ANY_COUNT
    replication_factor: int = ANY_COUNT
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Indexes into the lists of the subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    """A part of a topology that shares no topic with the others; one task for each partition."""

    subtopology_id: SubtopologyId
    source_topics: tuple[TopicName, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopicInfo, ...] = ()
    repartition_sink_topics: tuple[TopicName, ...] = ()
    repartition_source_topics: tuple[InternalTopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def input_topics(self) -> tuple[TopicName, ...]:
        """Everything that its tasks read, but for changelogs."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))


class Topology:
    """A topology of one epoch. Never changes; compared by epoch and subtopologies, in whatever order."""

    def __init__(self, epoch: int, subtopologies: tuple[Subtopology, ...]) -> None:
        self.epoch = epoch
        self.subtopologies = subtopologies

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self.epoch == other.epoch and sorted(self.subtopologies) == sorted(other.subtopologies)

    def __hash__(self) -> int:
        return hash((self.epoch, frozenset(self.subtopologies)))

    def __repr__(self) -> str:
        return f"Topology({self.epoch}, {self.subtopologies!r})"

    @cached_property
    def subtopology_reading(self) -> Mapping[TopicName, SubtopologyId]:
        """Which subtopology reads a topic."""
        return {name: each.subtopology_id for each in self.subtopologies for name in each.input_topics}

    @cached_property
    def required_topics(self) -> frozenset[TopicName]:
        """Everything that its tasks read, changelogs too."""
        changelogs = (topic.name for each in self.subtopologies for topic in each.state_changelog_topics)
        return frozenset((*self.subtopology_reading, *changelogs))
