"""Partitions that move between brokers, as the cluster's controller is asked about them (KIP-455), and their throttle.

No client library has a call for this. Throttled are, as by Kafka's own tool, the brokers that hold a partition now for
what they give, and those that are to hold it for what they take (KIP-73).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla.cli.client import Connection, client_log
from ottla.cli.exits import CommandFailed
from ottla.cli.failures import explain
from ottla.cli.partition import Partition
from ottla.cli.reassignment_plan import Move, Racks, Replicas
from ottla.cli.requests import Address, Requests, refusal
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import Message

PARTITIONS_AT_ONCE: Final = 500
LOOK_AGAIN_S: Final = 0.2
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"


class Ongoing(NamedTuple):
    """A partition that is being moved."""

    replicas: Replicas
    adding: Replicas
    removing: Replicas


class Held(NamedTuple):
    """A replica as its broker has it."""

    size_bytes: int
    directory: str


class Cluster(NamedTuple):
    """What is there."""

    controller: int
    brokers: dict[int, Address]
    racks: Racks
    assignments: dict[Partition, Replicas]
    leaders: dict[Partition, int]


class Reassignments:
    """Of one cluster. Every method may raise CommandFailed."""

    def __init__(self, connection: Connection, requests: Requests) -> None:
        self._connection = connection
        self._requests = requests

    # --- looking ---

    def cluster(self, *, with_topics: bool = True) -> Cluster:
        """The brokers that are alive, and who holds which partition."""
        answer = self._requests.ask(MetadataRequest(topics=None if with_topics else []))
        parts = {
            Partition(topic.name, part.partition_index): part for topic in answer.topics for part in topic.partitions
        }
        return Cluster(
            answer.controller_id,
            {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers},
            {broker.node_id: broker.rack for broker in answer.brokers},
            {partition: tuple(part.replica_nodes) for partition, part in sorted(parts.items())},
            {partition: part.leader_id for partition, part in parts.items()},
        )

    def check_served(self, cluster: Cluster) -> None:
        """Fail at once where nobody moves partitions: a controller that is being elected is waited for."""
        try:
            self._requests.version(ApiKey.ALTER_PARTITION_REASSIGNMENTS, min(cluster.brokers.items())[1])
        except CommandFailed as problem:
            raise CommandFailed(f"{problem} (this broker cannot move partitions)") from None

    def under_way(self) -> dict[Partition, Ongoing]:
        """What is being moved at this moment."""
        answer = self._ask_controller(ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=None))
        if answer.error_code:
            raise CommandFailed(
                f"the controller does not say what is being moved: {refusal(answer.error_code, answer.error_message)}"
            )
        return {
            Partition(topic.name, part.partition_index): Ongoing(
                tuple(part.replicas), tuple(part.adding_replicas), tuple(part.removing_replicas)
            )
            for topic in answer.topics
            for part in topic.partitions
        }

    def held(self, cluster: Cluster, wanted: Mapping[int, Iterable[Partition]]) -> dict[tuple[int, Partition], Held]:
        """What brokers hold of these partitions; of brokers that do not say, nothing."""
        found: dict[tuple[int, Partition], Held] = {}
        for broker, partitions in wanted.items():
            topics: dict[str, list[int]] = {}
            for topic, number in partitions:
                topics.setdefault(topic, []).append(number)
            request = DescribeLogDirsRequest(
                topics=[DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
            )
            try:
                answer = self._requests.ask(request, to=cluster.brokers[broker])
            except (CommandFailed, KeyError):
                continue
            for directory in answer.results:
                for topic in directory.topics:
                    for part in topic.partitions:
                        if not part.is_future_key:
                            at = Partition(topic.name, part.partition_index)
                            found[broker, at] = Held(part.partition_size, directory.log_dir)
        return found

    # --- moving ---

    def place(self, moves: Iterable[Move], cluster: Cluster) -> dict[Partition, str]:
        """Have replicas, those to come as well, lie in the directories that the moves name; what was refused."""
        dirs: dict[int, dict[str, list[Partition]]] = {}
        for move in moves:
            for broker, directory in move.places.items():
                dirs.setdefault(broker, {}).setdefault(directory, []).append(move.partition)
        refused: dict[Partition, str] = {}
        for broker, by_directory in dirs.items():
            if broker not in cluster.brokers:
                raise CommandFailed(f"broker {broker}, which a directory is named of, is not running")
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=directory,
                        topics=[
                            AlterReplicaLogDirTopic(name=topic, partitions=[number]) for topic, number in partitions
                        ],
                    )
                    for directory, partitions in by_directory.items()
                ]
            )
            for topic in self._requests.ask(request, to=cluster.brokers[broker]).results:
                for part in topic.partitions:
                    if part.error_code not in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
                        at = Partition(topic.topic_name, part.partition_index)
                        refused[at] = f"broker {broker}: {refusal(part.error_code)}"
        return refused

    def begin(self, targets: Mapping[Partition, Replicas | None]) -> dict[Partition, str]:
        """Have partitions moved, or with None call their moves off; what was refused, and why."""
        refused: dict[Partition, str] = {}
        wanted = list(targets.items())
        for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
            refused |= self._begin(wanted[start : start + PARTITIONS_AT_ONCE])
        return refused

    def _begin(self, wanted: Sequence[tuple[Partition, Replicas | None]]) -> dict[Partition, str]:
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, number), replicas in wanted:
            topics.setdefault(topic, []).append(
                ReassignablePartition(partition_index=number, replicas=None if replicas is None else list(replicas))
            )
        answer = self._ask_controller(
            AlterPartitionReassignmentsRequest(
                timeout_ms=self._timeout_ms,
                topics=[ReassignableTopic(name=topic, partitions=parts) for topic, parts in topics.items()],
            )
        )
        if answer.error_code:
            raise CommandFailed(f"nothing is moved: {refusal(answer.error_code, answer.error_message)}")
        return {
            Partition(topic.name, part.partition_index): refusal(part.error_code, part.error_message)
            for topic in answer.responses
            for part in topic.partitions
            if part.error_code
        }

    @property
    def _timeout_ms(self) -> int:
        return int(self._connection.timeout_s * 1000)

    def _ask_controller(self, request: Message) -> Any:
        """Whoever it is: it may change at any time."""
        deadline = time.monotonic() + self._connection.timeout_s
        while True:
            problem = "it is being elected"
            try:
                cluster = self.cluster(with_topics=False)
                address = cluster.brokers.get(cluster.controller)
                if address is not None:
                    answer = self._requests.ask(request, to=address)
                    if answer.error_code != ErrorCode.NOT_CONTROLLER:
                        return answer
            except CommandFailed as failure:
                problem = str(failure)
            if time.monotonic() >= deadline:
                raise CommandFailed(f"the controller of the cluster does not answer: {problem}")
            time.sleep(LOOK_AGAIN_S)

    # --- throttling ---

    def throttle(self, moves: Sequence[Move], cluster: Cluster, bytes_per_s: int) -> None:
        """Have these moves, and nothing else, copy no faster than so many bytes per second and broker."""
        involved = {broker for move in moves for broker in (*move.before, *move.replicas)} & cluster.brokers.keys()
        for topic in sorted({move.partition.topic for move in moves}):
            of_topic = [move for move in moves if move.partition.topic == topic]
            leaders = [f"{move.partition.partition}:{broker}" for move in of_topic for broker in move.before]
            followers = [f"{move.partition.partition}:{broker}" for move in of_topic for broker in move.added]
            lists = {LEADERS: ",".join(leaders), FOLLOWERS: ",".join(followers)}
            self._alter(ConfigResource.Type.TOPIC, [topic], lists)
        self._alter(ConfigResource.Type.BROKER, map(str, sorted(involved)), dict.fromkeys(RATES, str(bytes_per_s)))

    def unthrottle(self, topics: Iterable[str], cluster: Cluster) -> None:
        """Take the throttle from these topics, and from all brokers."""
        self._alter(ConfigResource.Type.BROKER, map(str, sorted(cluster.brokers)), dict.fromkeys(RATES))
        self._alter(ConfigResource.Type.TOPIC, sorted(set(topics)), {LEADERS: None, FOLLOWERS: None})

    def _alter(self, kind: ResourceType, names: Iterable[str], settings: Mapping[str, str | None]) -> None:
        """Set or, with None, unset settings of several resources; topics that are gone need no change."""
        entries = [
            ConfigEntry(
                name,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ]
        admin = self._connection.admin()
        for name in names:
            resource = ConfigResource(kind, name, incremental_configs=entries)
            (future,) = admin.incremental_alter_configs([resource], request_timeout=self._connection.timeout_s).values()
            try:
                self._connection.wait(future)
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise CommandFailed(
                    f"the throttle of {kind.name.lower()} {name!r} cannot be changed: "
                    + explain(error, client_log.last_reason())
                ) from None


def wait_until_moved(
    moving: Reassignments, moves: Sequence[Move], shown: Callable[[int, int], None], sizes: Mapping[Partition, int]
) -> None:
    """Return when none of the moves is under way any more; `shown` is told how many are through, and the bytes copied.

    `sizes` is what there is to copy of each partition, for every broker that copies it. Raises CommandFailed.
    """
    while True:
        going = set(moving.under_way())
        wanted: dict[int, list[Partition]] = {}
        for move in moves:
            for broker in {*move.places, *(move.added if move.partition in going else ())}:
                wanted.setdefault(broker, []).append(move.partition)
        held = moving.held(moving.cluster(with_topics=False), wanted) if wanted else {}
        for move in moves:
            if any(_is_elsewhere(held.get((broker, move.partition)), path) for broker, path in move.places.items()):
                going.add(move.partition)
        through = [move for move in moves if move.partition not in going]
        copied = sum(sizes.get(move.partition, 0) * len(move.added) for move in through)
        for move in moves:
            if move.partition in going:
                copied += sum(
                    held[broker, move.partition].size_bytes for broker in move.added if (broker, move.partition) in held
                )
        shown(len(through), copied)
        if len(through) == len(moves):
            return
        time.sleep(LOOK_AGAIN_S)


def _is_elsewhere(held: Held | None, directory: str) -> bool:
    return held is None or held.directory != directory
