"""The cluster: its brokers with their log directories, its controllers, replicas that are behind, and moves."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.admin import Broker, Cluster, LogDirectory, Machine, Partition, PartitionState, Quorum, Reassignment, Replica
from ottla.admin.errors import RequestRefused
from ottla.admin.operations.cluster import Replicas
from ottla.admin.operations.machines import (
    Place,
    controllers_of,
    is_shared,
    machines_of,
    on_one_machine,
    only_controller,
)
from ottla.client.errors import ClientError, UnsupportedRequest
from ottla.console.cluster import ClusterView

SHOWN: Final = 100
"""Partitions of a list; the others are counted."""
_DIRECTORIES_S: Final = 30.0
_QUORUM_S: Final = 10.0


class BrokerRow(NamedTuple):
    """A broker; `broker` None: it should have replicas, and is not there. `directories` None: it does not show them."""

    number: int
    broker: Broker | None
    leads: int
    preferred: int
    """Partitions that it would lead if all replicas were in sync and elections were held."""
    replicas: int
    behind: int
    """Replicas of it that are not in sync."""
    directories: list[LogDirectory] | None


class Move(NamedTuple):
    """A partition that is being moved, and how much of it has been copied, 0 to 100; None: not known."""

    partition: Partition
    before: tuple[int, ...]
    after: tuple[int, ...]
    copied_bytes: int | None
    size_bytes: int | None
    percent: int | None


class ClusterPage(NamedTuple):
    """All that the page of the cluster shows. `quorum` None: the controller is a broker, as with ZooKeeper.

    `machines` are none where each has one broker.
    """

    cluster: Cluster
    machines: tuple[Machine, ...]
    on_one_machine: dict[Partition, list[Replicas]]
    brokers: list[BrokerRow]
    quorum: Quorum | None
    behind: list[tuple[Partition, PartitionState]]
    behind_in_all: int
    moves: list[Move]
    moves_in_all: int
    moves_problem: str


async def cluster_page(view: ClusterView) -> ClusterPage:
    """The page of the cluster. Raises ClientError."""
    return await view.shared.get("cluster page", lambda: _cluster_page(view))


async def _cluster_page(view: ClusterView) -> ClusterPage:
    cluster = await view.cluster()
    directories = await log_directories(view, cluster)
    quorum = await view.shared.get("quorum", lambda: _quorum(view), _QUORUM_S)
    moving, problem = await _moving(view)
    behind = under_replicated(cluster)
    machines = machines_in(cluster, quorum)
    return ClusterPage(
        cluster,
        machines if is_shared(machines) else (),
        on_one_machine(machines, cluster.assignments),
        broker_rows(cluster, directories),
        quorum,
        behind[:SHOWN],
        len(behind),
        await _moves(view, cluster, dict(list(moving.items())[:SHOWN])),
        len(moving),
        problem,
    )


async def log_directories(view: ClusterView, cluster: Cluster) -> dict[int, list[LogDirectory]]:
    """The log directories of each broker that shows them."""
    return await view.shared.get(
        "directories", lambda: view.dear(lambda admin: admin.describe_log_directories(cluster)), _DIRECTORIES_S
    )


async def _quorum(view: ClusterView) -> Quorum | None:
    try:
        return await view.quick(lambda admin: admin.describe_quorum())
    except (UnsupportedRequest, RequestRefused):
        return None


async def _moving(view: ClusterView) -> tuple[dict[Partition, Reassignment], str]:
    try:
        return await view.quick(lambda admin: admin.list_reassignments()), ""
    except ClientError as refused:
        return {}, str(refused)


async def _moves(view: ClusterView, cluster: Cluster, moving: Mapping[Partition, Reassignment]) -> list[Move]:
    wanted: dict[int, list[Partition]] = {}
    for partition, each in moving.items():
        state = cluster.partitions.get(partition)
        leader = None if state is None else state.leader
        for broker in {*each.adding, *(() if leader is None else (leader,))}:
            wanted.setdefault(broker, []).append(partition)
    if not wanted:
        return []
    held = await view.dear(lambda admin: admin.describe_replicas(cluster, wanted))
    return [move(partition, each, cluster.partitions.get(partition), held) for partition, each in moving.items()]


# -- pure --------------------------------------------------------------------------------------------------------------


def broker_rows(cluster: Cluster, directories: Mapping[int, list[LogDirectory]]) -> list[BrokerRow]:
    """A row for each broker that is alive or should have replicas."""
    leads: Counter[int] = Counter()
    preferred: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    for state in cluster.partitions.values():
        if state.leader is not None:
            leads[state.leader] += 1
        if state.replicas:
            preferred[state.replicas[0]] += 1
        for replica in state.replicas:
            replicas[replica] += 1
        if len(state.in_sync) < len(state.replicas):
            behind.update(set(state.replicas) - set(state.in_sync))
    return [
        BrokerRow(
            number,
            cluster.brokers.get(number),
            leads[number],
            preferred[number],
            replicas[number],
            behind[number],
            directories.get(number),
        )
        for number in sorted({*cluster.brokers, *replicas})
    ]


def machines_in(cluster: Cluster, quorum: Quorum | None) -> tuple[Machine, ...]:
    """The machines of the brokers that are alive, and of the controllers."""
    places = {number: Place(broker.address.host, broker.rack) for number, broker in cluster.brokers.items()}
    controllers = only_controller(cluster) if quorum is None else controllers_of(quorum)
    return machines_of(places, (), controllers.hosts, (state.leader for state in cluster.partitions.values()))


def under_replicated(cluster: Cluster) -> list[tuple[Partition, PartitionState]]:
    """Partitions with replicas that are not in sync, those without a leader first."""
    found = [(each, state) for each, state in cluster.partitions.items() if len(state.in_sync) < len(state.replicas)]
    return sorted(found, key=lambda each: (each[1].leader is not None, len(each[1].in_sync), each[0]))


def move(
    partition: Partition,
    reassignment: Reassignment,
    state: PartitionState | None,
    held: Mapping[tuple[int, Partition], Replica],
) -> Move:
    """How far a move is: what the brokers that are added hold, of what the leader holds."""
    before = tuple(each for each in reassignment.replicas if each not in reassignment.adding)
    after = tuple(each for each in reassignment.replicas if each not in reassignment.removing)
    leader = None if state is None or state.leader is None else held.get((state.leader, partition))
    if leader is None or not reassignment.adding:
        return Move(partition, before, after, None, None, None)
    in_sync: Sequence[int] = () if state is None else state.in_sync
    size = leader.size_bytes * len(reassignment.adding)
    copied = sum(
        leader.size_bytes if broker in in_sync else min(there.size_bytes, leader.size_bytes)
        for broker in reassignment.adding
        if (there := held.get((broker, partition))) is not None
    )
    return Move(partition, before, after, copied, size, 100 if not size else copied * 100 // size)
