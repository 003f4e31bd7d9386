"""Brokers, partitions and their replicas. PURE."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.admin.errors import refusal
from ottla.admin.operations.core import Ask, Operation, addresses, by_topic
from ottla.client.addresses import Address
from ottla.client.errors import ClientError
from ottla.client.partition import Partition
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
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
_CONSUMER: Final = -1
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
    cluster_id: str | None = None

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
        answer.controller_id if answer.controller_id in alive else None,
        alive,
        dict(sorted(partitions.items())),
        answer.cluster_id,
    )


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A log directory of a broker; `path` is on the broker's machine.

    `total_bytes` and `usable_bytes` are its volume's, None by brokers before Kafka 3.3 (KIP-827). `replicas` and
    `replica_bytes` are what the log has there, without copies that are still being moved in, which `moving_bytes` adds
    up. `problem`: why its broker does not use it.
    """

    path: str
    total_bytes: int | None
    usable_bytes: int | None
    replicas: int
    replica_bytes: int
    moving_bytes: int
    problem: str | None


def describe_log_directories(cluster: Cluster) -> Operation[dict[int, list[LogDirectory]]]:
    """The log directories of each broker, by its id. A broker that refuses or does not answer is left out."""
    found: dict[int, list[LogDirectory]] = {}
    for number, broker in cluster.brokers.items():
        try:
            answer: DescribeLogDirsResponse = yield Ask(DescribeLogDirsRequest(topics=None), broker.address)
        except ClientError:
            continue
        if not answer.error_code and answer.results:  # Kafka before 3.1 answers a client that may not ask with nothing
            found[number] = sorted(map(_directory, answer.results), key=lambda each: each.path)
    return found


def _directory(result: DescribeLogDirsResult) -> LogDirectory:
    held = [part for topic in result.topics for part in topic.partitions]
    there = [part.partition_size for part in held if not part.is_future_key]
    return LogDirectory(
        result.log_dir,
        None if result.total_bytes < 0 else result.total_bytes,
        None if result.usable_bytes < 0 else result.usable_bytes,
        len(there),
        sum(there),
        sum(part.partition_size for part in held if part.is_future_key),
        refusal(result.error_code) if result.error_code else None,
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


def _log_ends(
    address: Address, partitions: Iterable[Partition], *, replica: int = _ANY_REPLICA, isolation: int = 0
) -> Operation[dict[Partition, int]]:
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[ListOffsetsPartition(partition_index=number, timestamp=_LATEST) for number in numbers],
        )
        for name, numbers in by_topic(partitions).items()
    ]
    try:
        request = ListOffsetsRequest(replica_id=replica, isolation_level=isolation, topics=topics)
        answer: ListOffsetsResponse = yield Ask(request, address)
    except ClientError:
        return {}
    return {
        Partition(topic.name, part.partition_index): part.offset
        for topic in answer.topics
        for part in topic.partitions
        if not part.error_code
    }


def list_leader_ends(
    cluster: Cluster, partitions: Iterable[Partition], *, committed: bool = False
) -> Operation[dict[Partition, int]]:
    """Where partitions end for consumers: the high watermark or, `committed`, the last stable offset, after which
    records of open transactions begin. A partition without a leader that answers is left out."""
    by_leader: dict[int, list[Partition]] = {}
    for each in partitions:
        state = cluster.partitions.get(each)
        if state is not None and state.leader is not None:
            by_leader.setdefault(state.leader, []).append(each)
    found: dict[Partition, int] = {}
    for leader, led in by_leader.items():
        address = cluster.brokers[leader].address
        found |= yield from _log_ends(address, led, replica=_CONSUMER, isolation=int(committed))
    return found


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
