"""Metadata of topics, queried over connections of our own.

The leader of a partition is looked up when it is unknown, refuses, or is gone. A
query carries the leader epoch it is for (KIP-320): a replaced leader that has not learned of its replacement would
return
an end offset that is too low, which looks like a log that has lost records. A restarted broker refuses the epoch
known before (FENCED_LEADER_EPOCH), and is queried again with the new one.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from ottla.client.addresses import Address
from ottla.client.errors import ClientError
from ottla.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.primitives import NULL_UUID
from ottla.spark.client_settings import ClientSettings
from ottla.spark.errors import NotReadyError, SourceError, refusal
from ottla.spark.metadata_queries import Described
from ottla.spark.offsets import Partition
from ottla.spark.wire import cluster_of, is_refused, no_answer

LIST_OFFSETS_VERSION: Final = 6
NOT_A_REPLICA: Final = -1
REQUESTS: Final = 2
"""One to the known leader, and one to its successor."""


class WireMetadata:
    """`MetadataQueries` over connections of our own (see `ottla.spark.wire.is_for_wire`). For one thread."""

    def __init__(self, client: ClientSettings, answer_within_s: float) -> None:
        given = dict(client)
        self._servers = given["bootstrap.servers"]
        self._isolation = int(given.get("isolation.level") == "read_committed")
        self._cluster = cluster_of(client, answer_within_s)

    def names(self, expected: Collection[str] = ()) -> list[str]:
        try:
            return sorted(self._cluster.names(expected))
        except ClientError as error:
            raise no_answer(self._servers, "the list of topics", error) from error

    def describe(self, topics: Collection[str]) -> dict[str, Described]:
        """As `MetadataQueries.describe`."""
        found = self._topics(topics)
        described = {}
        for name in topics:
            topic = found.get(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
            if topic is None or code:
                raise refusal(code, f"topic '{name}'", self._servers)
            topic_id = None if topic.topic_id == NULL_UUID else topic.topic_id
            described[name] = Described(sorted(each.partition_index for each in topic.partitions), topic_id)
        return described

    def offsets(self, places: Mapping[Partition, int]) -> dict[Partition, int | SourceError]:
        """As `MetadataQueries.offsets`."""
        found: dict[Partition, int | SourceError] = {}
        left = dict(places)
        for _ in range(REQUESTS):
            found |= self._offsets(left)
            left = {partition: place for partition, place in left.items() if not isinstance(found[partition], int)}
            if not left:
                break
            for partition in left:
                self._cluster.forget_leader(partition)
        return found

    def _offsets(self, places: Mapping[Partition, int]) -> dict[Partition, int | SourceError]:
        topics = self._topics(
            {partition.topic for partition in places if self._cluster.known_leader(partition) is None}
        )
        found: dict[Partition, int | SourceError] = {}
        by_leader: dict[Address, dict[Partition, ListOffsetsPartition]] = {}
        for partition, place in places.items():
            leader = self._cluster.known_leader(partition)
            if leader is None:
                found[partition] = self._refusal(partition, _why_unled(partition, topics.get(partition.topic)))
            else:
                by_leader.setdefault(leader.address, {})[partition] = ListOffsetsPartition(
                    partition_index=partition.number, current_leader_epoch=leader.epoch, timestamp=place
                )
        requests = {address: _request(asked, self._isolation) for address, asked in by_leader.items()}
        for address, answer in self._cluster.ask_each(requests, LIST_OFFSETS_VERSION).items():
            asked = by_leader[address]
            if isinstance(answer, ClientError):
                if is_refused(answer):
                    raise no_answer(self._servers, "offsets", answer)
                found |= {
                    partition: NotReadyError(f"partition {partition} at {self._servers}: its leader {answer}")
                    for partition in asked
                }
                continue
            said = {
                Partition(topic.name, each.partition_index): each
                for topic in answer.topics
                for each in topic.partitions
            }
            for partition in asked:
                each = said.get(partition)
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each is None else each.error_code
                found[partition] = self._refusal(partition, code) if each is None or code else each.offset
        return found

    def _topics(self, names: Collection[str]) -> dict[str, Any]:
        try:
            return self._cluster.topics(names) if names else {}
        except ClientError as error:
            some = f"topic '{min(names)}'" if len(names) == 1 else f"{len(names)} topics"
            raise no_answer(self._servers, some, error) from error

    def _refusal(self, partition: Partition, code: int) -> SourceError:
        return refusal(code, f"partition {partition}", self._servers)


def _request(asked: Mapping[Partition, ListOffsetsPartition], isolation: int) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, each in asked.items():
        topics.setdefault(partition.topic, []).append(each)
    return ListOffsetsRequest(
        replica_id=NOT_A_REPLICA,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in topics.items()],
    )


def _why_unled(partition: Partition, topic: Any) -> int:
    """The error code for a partition without a known leader, from the brokers' answer about its topic."""
    if topic is None or topic.error_code:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
    if all(each.partition_index != partition.number for each in topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.LEADER_NOT_AVAILABLE
