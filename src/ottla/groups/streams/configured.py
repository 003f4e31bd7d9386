"""A topology held against the topics there are: how many tasks, which internal topics, and what is wrong. PURE.

    repartition topic   as many partitions as it asks for, or as the topics of the subtopologies that write to it
    copartition group   the same number of partitions in all of its topics; repartition topics follow the others
    changelog topic     as many partitions as its subtopology has tasks
    tasks               as many as the largest input topic has partitions

Source: KIP-1071, as Kafka 4.3 does it. Where Kafka answers a topology that makes no sense with an unknown server error,
it is STREAMS_INVALID_TOPOLOGY here.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.errors import ApiError, ErrorCode
from ottla.groups.streams.topology import ANY_COUNT, CopartitionGroup, InternalTopicInfo, Subtopology, Topology
from ottla.groups.topics import TopicsView
from ottla.ids import SubtopologyId, TopicName

_NAMED_AT_MOST: Final = 3
MOST_TASKS: Final = 20_000
"""The most tasks of one application: a rebalance assigns all of them at once. Kafka has no limit."""


class StatusCode(IntEnum):
    """What members are informed of, as numbered in StreamsGroupHeartbeat."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    """A status in the reply to a heartbeat, with its explanation for people."""

    code: StatusCode
    detail: str


class ConfiguredSubtopology(NamedTuple):
    """A subtopology whose internal topics have their number of partitions."""

    subtopology_id: SubtopologyId
    task_count: int
    source_topics: tuple[TopicName, ...]
    repartition_sink_topics: tuple[TopicName, ...]
    repartition_source_topics: tuple[InternalTopicInfo, ...]
    state_changelog_topics: tuple[InternalTopicInfo, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.state_changelog_topics)

    @property
    def input_topics(self) -> tuple[TopicName, ...]:
        return (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))


class ConfiguredTopology(NamedTuple):
    """`subtopologies`: in the order of their ids, none if the topology does not fit the topics.
    `missing`: internal topics to be created; `problem`: why no tasks can be assigned yet."""

    epoch: int
    subtopologies: tuple[ConfiguredSubtopology, ...] = ()
    missing: tuple[InternalTopicInfo, ...] = ()
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None

    def task_counts(self) -> dict[SubtopologyId, int]:
        return {each.subtopology_id: each.task_count for each in self.subtopologies}


class _DoesNotFitError(Exception):
    """The topology makes sense, but not with these topics."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def configure(topology: Topology, topics: TopicsView) -> ConfiguredTopology:
    """Hold the topology against the topics. Raises `ApiError` STREAMS_INVALID_TOPOLOGY if it fits no topics at all."""
    check(topology)
    try:
        subtopologies, missing = _Configuration(topology, topics).result()
    except _DoesNotFitError as misfit:
        return ConfiguredTopology(topology.epoch, problem=misfit.status)
    problem = None
    if missing:
        names = summary(topic.name for topic in missing)
        problem = Status(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def check(topology: Topology) -> None:
    """Refuse what no topics could make right. Raises `ApiError` STREAMS_INVALID_TOPOLOGY."""
    ids = [each.subtopology_id for each in topology.subtopologies]
    if len(set(ids)) < len(ids):
        raise _invalid("Two subtopologies have the same id.")
    for each in topology.subtopologies:
        if not each.input_topics:
            raise _invalid(f"No source topics found for subtopology {each.subtopology_id}")
        for topic in each.repartition_source_topics:
            if not 0 <= topic.partitions <= MOST_TASKS:
                raise _invalid(
                    f"Repartition topic {topic.name} asks for {topic.partitions} partitions; it may have from 1 to "
                    f"{MOST_TASKS}, or 0 for as many as its sources."
                )
        for group in each.copartition_groups:
            _check_indexes(each, group)


def _check_indexes(subtopology: Subtopology, group: CopartitionGroup) -> None:
    for indexes, count in (
        (group.source_topics, len(subtopology.source_topics)),
        (group.repartition_source_topics, len(subtopology.repartition_source_topics)),
    ):
        if any(not 0 <= index < count for index in indexes):
            raise _invalid(
                f"A copartition group of subtopology {subtopology.subtopology_id} names a topic that is not in it."
            )


def summary(names: Iterable[str]) -> str:
    """The first few of these names, and how many there are besides."""
    known = sorted(names)
    shown = ", ".join(known[:_NAMED_AT_MOST])
    left = len(known) - _NAMED_AT_MOST
    return f"{shown} and {left} additional topics" if left > 0 else shown


class _Configuration:
    """One attempt. `self._decided`: partitions of internal topics, as far as they are known."""

    def __init__(self, topology: Topology, topics: TopicsView) -> None:
        self._subtopologies = sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
        self._topics = topics
        self._decided: dict[TopicName, int] = {}

    def result(self) -> tuple[tuple[ConfiguredSubtopology, ...], tuple[InternalTopicInfo, ...]]:
        self._refuse_missing_sources()
        self._decide_repartition_topics()
        for subtopology in self._subtopologies:
            for group in subtopology.copartition_groups:
                self._decide_copartition_group(subtopology, group)
        for subtopology in self._subtopologies:
            count = self._task_count(subtopology)
            self._decided.update((topic.name, count) for topic in subtopology.state_changelog_topics)
        configured = tuple(map(self._configured, self._subtopologies))
        task_count = sum(each.task_count for each in configured)
        if task_count > MOST_TASKS:
            raise _invalid(
                f"The topology has {task_count} tasks with the topics there are; {MOST_TASKS} are supported."
            )
        return configured, tuple(self._missing(configured))

    def _existing(self, name: TopicName) -> int | None:
        topic = self._topics.by_name(name)
        return None if topic is None else topic.partition_count

    def _count(self, name: TopicName) -> int:
        """Partitions of a topic, as it is or as it is going to be."""
        count = self._existing(name)
        return self._decided[name] if count is None else count

    def _refuse_missing_sources(self) -> None:
        missing = {name for each in self._subtopologies for name in each.source_topics if self._existing(name) is None}
        if missing:
            detail = f"Source topics {summary(missing)} are missing."
            raise _DoesNotFitError(StatusCode.MISSING_SOURCE_TOPICS, detail)

    def _decide_repartition_topics(self) -> None:
        """Sinks follow the sources of the subtopology that writes to them, which may be sinks of another."""
        sources = [topic for each in self._subtopologies for topic in each.repartition_source_topics]
        self._decided.update((topic.name, topic.partitions) for topic in sources if topic.partitions != ANY_COUNT)
        waiting = list(self._subtopologies)
        while waiting:
            left = [subtopology for subtopology in waiting if not self._decide_sinks(subtopology)]
            if len(left) == len(waiting):
                raise _invalid(
                    "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                    "topology that cannot be resolved."
                )
            waiting = left
        if any(topic.name not in self._decided for topic in sources):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
                "is never used as a sink topic."
            )

    def _decide_sinks(self, subtopology: Subtopology) -> bool:
        """Are all sinks of the subtopology decided now? What it reads and does not know yet does not count."""
        undecided = [name for name in subtopology.repartition_sink_topics if name not in self._decided]
        if not undecided:
            return True
        known = [self._count(name) for name in subtopology.source_topics]
        known += [
            self._decided[topic.name] for topic in subtopology.repartition_source_topics if topic.name in self._decided
        ]
        if not known:
            return False
        self._decided.update(dict.fromkeys(undecided, max(known)))
        return True

    def _decide_copartition_group(self, subtopology: Subtopology, group: CopartitionGroup) -> None:
        internal = [subtopology.repartition_source_topics[index] for index in group.repartition_source_topics]
        counts = {topic.name: self._count(topic.name) for topic in internal}
        external = {
            name: self._count(name)
            for index in group.source_topics
            if (name := subtopology.source_topics[index]) not in counts
        }
        fixed = {topic.name: counts[topic.name] for topic in internal if topic.partitions != ANY_COUNT}
        leading = external or fixed or counts
        if not leading:
            return
        if (external or fixed) and len(set(leading.values())) > 1:
            shown = ", ".join(f"{name}={count}" for name, count in sorted((external or counts).items()))
            raise _DoesNotFitError(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Following topics do not have the same number of partitions: [{{{shown}}}]",
            )
        wanted = max(leading.values())
        for name, count in fixed.items():
            if count != wanted:
                raise _DoesNotFitError(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{count}] of repartition topic [{name}] doesn't match number of partitions "
                    f"[{wanted}] of the source topic.",
                )
        self._decided.update(dict.fromkeys(counts, wanted))

    def _task_count(self, subtopology: Subtopology) -> int:
        return max(map(self._count, subtopology.input_topics))

    def _configured(self, subtopology: Subtopology) -> ConfiguredSubtopology:
        return ConfiguredSubtopology(
            subtopology.subtopology_id,
            self._task_count(subtopology),
            subtopology.source_topics,
            subtopology.repartition_sink_topics,
            tuple(map(self._sized, subtopology.repartition_source_topics)),
            tuple(map(self._sized, subtopology.state_changelog_topics)),
        )

    def _sized(self, topic: InternalTopicInfo) -> InternalTopicInfo:
        if topic.partitions != ANY_COUNT:
            return topic
        return topic._replace(partitions=self._decided[topic.name])

    def _missing(self, subtopologies: Iterable[ConfiguredSubtopology]) -> Iterator[InternalTopicInfo]:
        wanted: Mapping[TopicName, InternalTopicInfo] = {
            topic.name: topic
            for each in subtopologies
            for topic in (*each.repartition_source_topics, *each.state_changelog_topics)
        }
        for name, topic in sorted(wanted.items()):
            existing = self._existing(name)
            if existing is None:
                yield topic
            elif existing != topic.partitions:
                raise _DoesNotFitError(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {name} has different number of partitions: expected {topic.partitions}, found "
                    f"{existing}",
                )


def _invalid(why: str) -> ApiError:
    return ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)
