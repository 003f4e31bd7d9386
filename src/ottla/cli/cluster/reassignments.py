"""Partitions that move between brokers, as the cluster's controller is asked about them (KIP-455), and their throttle.

No client library has a call for this. Throttled are, as by Kafka's own tool, the brokers that hold a partition now for
what they give, and those that are to hold it for what they take (KIP-73).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla.admin import Admin, Cluster, Replica, RequestRefused, UnsupportedRequest
from ottla.cli.brokers.client import Connection, client_log
from ottla.cli.brokers.failures import explain
from ottla.cli.cluster.reassignment_plan import Move
from ottla.cli.terminal.exits import CommandFailed
from ottla.client.partition import Partition

POLL_INTERVAL_S: Final = 0.2
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"


class Reassignments:
    """The moves in one cluster. Every method may raise `ClientError` and CommandFailed."""

    def __init__(self, connection: Connection, admin: Admin) -> None:
        self._connection = connection
        self.admin = admin

    def cluster(self) -> Cluster:
        """The brokers that are alive, and the replicas of all partitions. Raises CommandFailed if none may move."""
        try:
            self.admin.list_reassignments()
        except UnsupportedRequest as problem:
            raise CommandFailed(f"{problem} (this broker cannot move partitions)") from None
        return self.admin.describe_cluster()

    def place(self, moves: Iterable[Move], cluster: Cluster) -> dict[Partition, RequestRefused]:
        """Have replicas, those to come as well, lie in the directories that the moves name; returns the refusals."""
        places: dict[int, dict[Partition, str]] = {}
        for move in moves:
            for broker, directory in move.places.items():
                places.setdefault(broker, {})[move.partition] = directory
        return self.admin.place_replicas(cluster, places)

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
    admin: Admin, moves: Sequence[Move], shown: Callable[[int, int], None], sizes: Mapping[Partition, int]
) -> None:
    """Return when none of the moves is in progress; `shown` gets the number of finished moves and of copied bytes.

    `sizes` is the size of each partition, once for every broker that copies it. Raises CommandFailed.
    """
    while True:
        going = set(admin.list_reassignments())
        wanted: dict[int, list[Partition]] = {}
        for move in moves:
            for broker in {*move.places, *(move.added if move.partition in going else ())}:
                wanted.setdefault(broker, []).append(move.partition)
        held = admin.describe_replicas(admin.describe_cluster([]), wanted) if wanted else {}
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
        time.sleep(POLL_INTERVAL_S)


def _is_elsewhere(held: Replica | None, directory: str) -> bool:
    return held is None or held.directory != directory
