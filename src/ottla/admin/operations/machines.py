"""The machines of a cluster: the brokers and controllers that fail together. PURE.

Brokers with one host and one rack are on one machine, as those of `ottla serve --cores` are. Racks that differ tell
machines apart that are reached by one name, such as that of a gateway.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.admin.errors import RequestRefused
from ottla.admin.operations.cluster import Broker, Cluster, Replicas
from ottla.admin.operations.core import Ask, Operation, Version
from ottla.admin.operations.quorum import Quorum, describe_quorum
from ottla.client.addresses import Address
from ottla.client.errors import ClientError, UnsupportedRequest
from ottla.client.partition import Partition
from ottla.errors import ErrorCode
from ottla.local_names import is_loopback
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

_FENCED_SINCE: Final = 2


class Place(NamedTuple):
    """Where a broker is."""

    host: str
    rack: str | None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, by its host's name. `down`: those of its brokers that are not alive. `controllers` vote or are the
    controller; some are brokers, too. `leads`: the partitions that its brokers lead."""

    name: str
    rack: str | None
    brokers: tuple[int, ...]
    down: tuple[int, ...]
    controllers: tuple[int, ...]
    leads: int

    @property
    def is_up(self) -> bool:
        """Whether any of its brokers is alive, or it has none."""
        return len(self.down) < len(self.brokers) or not self.brokers


def describe_fenced_brokers() -> Operation[dict[int, Broker]]:
    """The brokers that are registered and not alive, by id; none by brokers that do not show them (before Kafka 4.1).

    Raises `ClientError`.
    """
    try:
        version: int = yield Version(ApiKey.DESCRIBE_CLUSTER)
        if version < _FENCED_SINCE:
            return {}
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
        answer: DescribeClusterResponse = yield Ask(request)
    except UnsupportedRequest:
        return {}
    return {
        each.broker_id: Broker(each.broker_id, Address(each.host, each.port), each.rack)
        for each in answer.brokers
        if each.is_fenced
    }


class Controllers(NamedTuple):
    """`active` None: none at the moment. `hosts`: those of the quorum's voters or, without a quorum, of the broker that
    is the controller, by id; None where the host is not known, or is the broker's."""

    active: int | None
    hosts: Mapping[int, str | None]


def describe_controllers(cluster: Cluster) -> Operation[Controllers]:
    """The controllers. With a quorum its leader is active; its brokers name any broker as the controller."""
    try:
        quorum = yield from describe_quorum()
    except UnsupportedRequest:
        return only_controller(cluster)
    except RequestRefused as refused:
        if refused.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return only_controller(cluster)
        return Controllers(None, {})
    except ClientError:
        return Controllers(None, {})
    return controllers_of(quorum)


def controllers_of(quorum: Quorum) -> Controllers:
    """The controllers of a quorum."""
    hosts = {each.node_id: each.listeners[0].address.host if each.listeners else None for each in quorum.voters}
    return Controllers(None if quorum.leader < 0 else quorum.leader, hosts)


def only_controller(cluster: Cluster) -> Controllers:
    """The controller of a cluster without a quorum, which is a broker."""
    return Controllers(cluster.controller, {} if cluster.controller is None else {cluster.controller: None})


def machines_of(
    places: Mapping[int, Place],
    down: Collection[int],
    controllers: Mapping[int, str | None],
    leaders: Iterable[int | None] = (),
) -> tuple[Machine, ...]:
    """The machines by name. `places` are those of brokers, alive or `down`; `controllers` are the hosts of controllers,
    by id; `leaders` the leaders of all partitions."""
    leads = Counter(leaders)
    brokers: dict[Place, list[int]] = defaultdict(list)
    voters: dict[Place, list[int]] = defaultdict(list)
    for number, place in sorted(places.items()):
        brokers[place].append(number)
    for number, host in sorted(controllers.items()):
        at = places.get(number) or _place(host, brokers)
        if at is not None:
            voters[at].append(number)
    found = sorted(brokers.keys() | voters.keys(), key=lambda place: (place.host, place.rack or ""))
    racks = Counter(place.host for place in found)
    return tuple(
        Machine(
            place.host if racks[place.host] == 1 else f"{place.host} ({place.rack or 'no rack'})",
            place.rack,
            tuple(brokers[place]),
            tuple(number for number in brokers[place] if number in down),
            tuple(voters[place]),
            sum(leads[number] for number in brokers[place]),
        )
        for place in found
    )


def _place(host: str | None, brokers: Collection[Place]) -> Place | None:
    """The machine of a controller that is no broker. One that only its own machine reaches is beside all brokers."""
    if host is None:
        return None
    near = [place for place in brokers if place.host == host]
    if not near and is_loopback(host):
        near = list(brokers)
    return near[0] if len(near) == 1 else Place(host, None)


def is_shared(machines: Iterable[Machine]) -> bool:
    """Whether a machine has anything but one broker."""
    return any(len({*machine.brokers, *machine.controllers}) > 1 or not machine.brokers for machine in machines)


def sharing(machines: Iterable[Machine], replicas: Replicas) -> list[Replicas]:
    """The replicas of a partition that are on one machine with another of its replicas, by machine."""
    on_machines = (tuple(number for number in replicas if number in machine.brokers) for machine in machines)
    return [found for found in on_machines if len(found) > 1]


def on_one_machine(
    machines: Collection[Machine], assignments: Mapping[Partition, Replicas]
) -> dict[Partition, list[Replicas]]:
    """The partitions with several replicas on one machine, and these replicas; none if there is one machine only."""
    if len(machines) < 2:
        return {}
    found = {partition: sharing(machines, replicas) for partition, replicas in assignments.items()}
    return {partition: shared for partition, shared in found.items() if shared}


def together(shared: Iterable[Iterable[int]]) -> str:
    """The replicas of a partition that share machines, as text: `1+2 3+4`."""
    return " ".join("+".join(map(str, replicas)) for replicas in shared)
