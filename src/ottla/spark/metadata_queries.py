"""The metadata queries about topics, independent of the client. PURE."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.spark.errors import SourceError
from ottla.spark.offsets import Partition


class Described(NamedTuple):
    """A topic: the numbers of its partitions, and its id, None where brokers have none (before Kafka 2.8)."""

    partitions: list[int]
    topic_id: UUID | None


class MetadataQueries(Protocol):
    """Each question is put to the brokers anew, and answered or refused once.

    Raises UnreachableError when no broker answers at all.
    """

    def names(self, expected: Collection[str] = ()) -> list[str]:
        """All topics; brokers are asked until the `expected` ones are among them, or all have been asked."""

    def describe(self, topics: Collection[str]) -> dict[str, Described]:
        """Raises UnknownTopicError, NotReadyError or SourceError for the first topic that cannot be described."""

    def offsets(self, places: Mapping[Partition, int]) -> dict[Partition, int | SourceError]:
        """The offset of a place in each partition, or why there is none now. A place is EARLIEST, LATEST (with
        `isolation.level` = `read_committed`, the last stable offset), or a time in milliseconds: the first record that
        is not older, -1 if all are."""
