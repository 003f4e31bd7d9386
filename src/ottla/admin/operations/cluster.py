"""Brokers, partitions and their replicas. PURE."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.admin.operations.core import Ask, Operation, addresses, by_topic
from ottla.client.addresses import Address
from ottla.client.errors import ClientError
from ottla.client.partition import Partition
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

Replicas = tuple[int, ...]
"""Ids of brokers; the first is the preferred leader."""
_ANY_REPLICA: Final = -2
"""As a tool of this id, a broker is asked where its own log ends, whether it leads or follows."""
_LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that is alive."""

    broker_id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Leader and replicas of a partition, by the ids of their brokers; `leader` None: it has none at the moment."""

    leader: int | None
    replicas: Replicas
    in_sync: Replicas


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers that are alive, and partitions. `controller` None: one is being elected."""

    controller: int | None
    brokers: Mapping[int, Broker]
    partitions: Mapping[Partition, PartitionState]

    @property
    def assignments(self) -> dict[Partition, Replicas]:
        """The replicas of each partition."""
        return {partition: state.replicas for partition, state in self.partitions.items()}

    @property
    def racks(self) -> dict[int, str | None]:
        """The rack of each broker that is alive."""
        return {number: broker.rack for number, broker in self.brokers.items()}


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica as its broker has it; `directory` is a path on the broker's machine."""

    size_bytes: int
    directory: str


def describe_cluster(topics: Collection[str] | None = None) -> Operation[Cluster]:
    """Describe the brokers, and the partitions of these topics; None: of all. Topics that do not exist are left out.

    Raises `ClientError`.
    """
    wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    answer: MetadataResponse = yield Ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
    places = addresses(answer)
    alive = {node.node_id: Broker(node.node_id, places[node.node_id], node.rack) for node in answer.brokers}
    partitions = {
        Partition(str(topic.name), part.partition_index): PartitionState(
            part.leader_id if part.leader_id in alive else None, tuple(part.replica_nodes), tuple(part.isr_nodes)
        )
        for topic in answer.topics
        for part in topic.partitions
    }
    return Cluster(
        answer.controller_id if answer.controller_id in alive else None, alive, dict(sorted(partitions.items()))
    )


def list_log_ends(
    cluster: Cluster, wanted: Mapping[int, Iterable[Partition]]
) -> Operation[dict[int, dict[Partition, int]]]:
    """Where the logs of these partitions end on each broker, by its id: the offset after the last record.

    A broker that does not answer, and a partition that it does not hold, are left out.
    """
    found: dict[int, dict[Partition, int]] = {}
    for number, partitions in wanted.items():
        if number in cluster.brokers:
            found[number] = yield from _log_ends(cluster.brokers[number].address, partitions)
    return found


def _log_ends(address: Address, partitions: Iterable[Partition]) -> Operation[dict[Partition, int]]:
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[ListOffsetsPartition(partition_index=number, timestamp=_LATEST) for number in numbers],
        )
        for name, numbers in by_topic(partitions).items()
    ]
    try:
        answer: ListOffsetsResponse = yield Ask(ListOffsetsRequest(replica_id=_ANY_REPLICA, topics=topics), address)
    except ClientError:
        return {}
    return {
        Partition(topic.name, part.partition_index): part.offset
        for topic in answer.topics
        for part in topic.partitions
        if not part.error_code
    }


def describe_replicas(
    cluster: Cluster, wanted: Mapping[int, Iterable[Partition]]
) -> Operation[dict[tuple[int, Partition], Replica]]:
    """What each broker holds of these partitions, by its id and the partition: size in bytes, and directory.

    A broker that does not answer, and a replica that it does not hold, are left out.
    """
    found: dict[tuple[int, Partition], Replica] = {}
    for number, partitions in wanted.items():
        if number not in cluster.brokers:
            continue
        topics = [
            DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
        ]
        try:
            answer: DescribeLogDirsResponse = yield Ask(
                DescribeLogDirsRequest(topics=topics), cluster.brokers[number].address
            )
        except ClientError:
            continue
        for directory in answer.results:
            for topic in directory.topics:
                for part in topic.partitions:
                    if not part.is_future_key:
                        at = Partition(topic.name, part.partition_index)
                        found[number, at] = Replica(part.partition_size, directory.log_dir)
    return found
