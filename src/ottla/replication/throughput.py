"""Records and bytes that went into and out of the partitions of this broker, by topic, since it was started."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Throughput:
    """The counts of one topic, or of all. Bytes are those of record batches, as they lie in the log."""

    __slots__ = (
        "fetched_bytes",
        "partitions",
        "produced_bytes",
        "produced_records",
        "replicated_in_bytes",
        "replicated_out_bytes",
    )

    def __init__(self) -> None:
        self.partitions = 0
        """How many of the topic's partitions are held."""
        self.produced_records = 0
        """Records of clients and of this broker's coordinators, as leader."""
        self.produced_bytes = 0
        self.fetched_bytes = 0
        """Sent to consumers, from leaders and followers."""
        self.replicated_in_bytes = 0
        """Appended as follower."""
        self.replicated_out_bytes = 0
        """Sent to followers."""

    def add(self, other: "Throughput") -> None:
        """Count what another one has counted, too."""
        self.produced_records += other.produced_records
        self.produced_bytes += other.produced_bytes
        self.fetched_bytes += other.fetched_bytes
        self.replicated_in_bytes += other.replicated_in_bytes
        self.replicated_out_bytes += other.replicated_out_bytes


class ThroughputByTopic:
    """The counts of each topic of which a partition is held. On the loop's thread."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Throughput] = {}
        self._past = Throughput()
        """The counts of topics that are no longer here: the sum over all must not fall."""

    def held(self, topic: str) -> Throughput:
        """The counts of a topic, for one more of its partitions."""
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = Throughput()
        found.partitions += 1
        return found

    def released(self, topic: str) -> None:
        """One of the topic's partitions is no longer held."""
        found = self._by_topic[topic]
        found.partitions -= 1
        if not found.partitions:
            self._past.add(self._by_topic.pop(topic))

    def __iter__(self) -> "Iterator[tuple[str, Throughput]]":
        return iter(list(self._by_topic.items()))

    @property
    def appended_bytes(self) -> int:
        """Bytes appended to logs of all topics, past ones too, as leader or follower."""
        counted = (self._past, *self._by_topic.values())
        return sum(counts.produced_bytes + counts.replicated_in_bytes for counts in counted)

    def total(self) -> Throughput:
        """The counts of all topics, past ones too."""
        total = Throughput()
        total.add(self._past)
        for counts in self._by_topic.values():
            total.add(counts)
        return total
