"""Which partitions are read, and from where to where: what the options mean, before any broker is asked. PURE."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ottla.spark.offsets import EARLIEST, LATEST, Offsets, Partition


@dataclass(frozen=True, slots=True)
class Topics:
    """`subscribe`: all partitions of these topics, those added later too."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """`subscribePattern`: all topics whose whole name matches, those created later too; never internal ones."""

    expression: str

    def matches(self, topic: str) -> bool:
        return not topic.startswith("__") and re.fullmatch(self.expression, topic) is not None


@dataclass(frozen=True, slots=True)
class Assigned:
    """`assign`: these partitions and no others."""

    partitions: tuple[Partition, ...]


Selection: TypeAlias = Topics | Pattern | Assigned


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of each partition that is not older than a time (milliseconds since the epoch).

    `by_partition` None: the same `everywhere`. Where all records are older, the read starts or ends behind the last one
    if `latest_if_none`, and is refused otherwise.
    """

    everywhere: int | None
    by_partition: Mapping[str, Mapping[int, int]] | None
    latest_if_none: bool

    def of(self, partition: Partition) -> int | None:
        """The time for one partition, None if none is given for it."""
        if self.by_partition is None:
            return self.everywhere
        return self.by_partition.get(partition.topic, {}).get(partition.number)


Position: TypeAlias = int | Offsets | AtTime
"""EARLIEST, LATEST, an offset for each partition, or a time."""


def reads_nothing(position: Position, *, as_start: bool) -> bool:
    """Whether a batch read that starts (or ends) there has no records, whatever is in the topics."""
    if as_start:
        return position == LATEST
    if isinstance(position, dict):
        return any(offset == EARLIEST for numbers in position.values() for offset in numbers.values())
    return position == EARLIEST
