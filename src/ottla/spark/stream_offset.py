"""How far a stream has come, as it stands in Spark's checkpoint. PURE.

    {"flights": {"0": 23, "1": 40}, "#": {"ids": {"flights": "6e0f..."}, "minPartitions": 6}}

That is the Kafka source's form and, under a key that can be no topic's name, what a restart has to know beside it. A
checkpoint of Spark's own source, which has no such key, is read as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from ottla.spark.offsets import FlatOffsets, Partition, TopicIds

StreamJson = dict[str, dict[str, Any]]

_BESIDE: Final = "#"


class Cut(NamedTuple):
    """Into which tasks a micro-batch is cut. A repeated one must be cut alike, whatever the options say by then: the
    exactly-once sink knows a task again by its number."""

    min_partitions: int
    max_records_per_partition: int | None


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """`offsets` of the next record to read in each partition; `ids` distinguishes a topic that was deleted and created
    anew
    from the one that was read; `cut` None: unknown, from an older checkpoint."""

    offsets: FlatOffsets
    ids: TopicIds = field(default_factory=dict)
    cut: Cut | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Mapping[str, Any]]) -> Self:
        """From the JSON object of the checkpoint, or of a query's progress."""
        offsets = {
            Partition(topic, int(number)): offset
            for topic, numbers in given.items()
            if topic != _BESIDE
            for number, offset in numbers.items()
        }
        beside = given.get(_BESIDE)
        if beside is None:
            return cls(offsets)
        ids = {topic: UUID(text) for topic, text in beside.get("ids", {}).items()}
        return cls(offsets, ids, Cut(beside.get("minPartitions", 0), beside.get("maxRecordsPerPartition")))

    def as_json(self) -> StreamJson:
        """What `parse` reads."""
        nested: StreamJson = {}
        for partition in sorted(self.offsets):
            nested.setdefault(partition.topic, {})[str(partition.number)] = self.offsets[partition]
        if self.cut is not None:
            beside: dict[str, Any] = {"ids": {topic: self.ids[topic].hex for topic in sorted(self.ids)}}
            if self.cut.min_partitions:
                beside["minPartitions"] = self.cut.min_partitions
            if self.cut.max_records_per_partition is not None:
                beside["maxRecordsPerPartition"] = self.cut.max_records_per_partition
            nested[_BESIDE] = beside
        return nested

    def replaced(self, now: TopicIds) -> set[str]:
        """Topics that were deleted and made again since: they have another id."""
        return {topic for topic, known in self.ids.items() if now.get(topic, known) != known}
