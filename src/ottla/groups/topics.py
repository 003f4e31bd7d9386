"""The topics of the cluster, as far as groups need them: a view that the coordinator passes in. PURE.

Source: KIP-848; KIP-1101 (the hash by which a group notices that its topics have changed).
"""

from collections.abc import Collection
from typing import NamedTuple, Protocol

from ottla.ids import TopicId, TopicName


class Topic(NamedTuple):
    """One topic at one moment."""

    name: TopicName
    topic_id: TopicId
    racks: tuple[tuple[str, ...], ...]
    """For each partition, the racks of its replicas' brokers; empty where brokers name none."""

    @property
    def partition_count(self) -> int:
        return len(self.racks)


class TopicsView(Protocol):
    """All topics at one moment. It never changes: when topics do, there is another one."""

    @property
    def version(self) -> int:
        """Another one whenever topics have come or gone, so that regular expressions have to be resolved again."""
        ...

    def by_name(self, name: TopicName) -> Topic | None: ...

    def by_id(self, topic_id: TopicId) -> Topic | None: ...


class FixedTopics:
    """A view of these topics only: of none, for a machine without metadata, and for tests."""

    def __init__(self, topics: Collection[Topic] = (), version: int = 0) -> None:
        self.version = version
        self._by_name = {topic.name: topic for topic in topics}
        self._by_id = {topic.topic_id: topic for topic in topics}

    def by_name(self, name: TopicName) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: TopicId) -> Topic | None:
        return self._by_id.get(topic_id)
