"""What a client sees of a cluster: names, ports, advertised addresses, versions, and the state of partitions."""

import socket
import time
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.admin import Admin, Cluster, Controllers
from ottla.admin.operations.machines import Place, machines_of, on_one_machine, together
from ottla.cli.doctor.remarks import Remark, Verdict, fine, warning, worst, wrong
from ottla.client.addresses import Address
from ottla.client.blocking import Connection
from ottla.client.errors import AuthenticationFailed, ClientError
from ottla.client.security import security_of
from ottla.errors import sentence
from ottla.local_names import is_loopback
from ottla.protocol.messages.metadata import MetadataRequest

TIMEOUT_S: Final = 5.0
SLOW_S: Final = 0.5
CLIENT_ID: Final = "ottla-doctor"
ADVERTISED: Final = "advertised.listeners of that broker has to be an address that its clients reach"


def check_cluster(bootstrap: list[Address], properties: Mapping[str, str]) -> Iterator[Remark]:
    """Look at the bootstrap servers, then at every broker that the cluster names."""
    reached: Address | None = None
    for address in bootstrap:
        remarks = list(_check_address(address, properties, f"bootstrap {address}"))
        if reached is None and worst(remarks) is not Verdict.WRONG:
            reached = address
        yield from remarks
    if reached is None:
        return
    try:
        with Admin(str(reached), client_id=CLIENT_ID, timeout_s=TIMEOUT_S, properties=properties) as admin:
            cluster = admin.describe_cluster()
            controllers = admin.describe_controllers(cluster)
    except ClientError as error:
        yield wrong("metadata", str(error), "see the log of the broker")
        return
    for number, broker in sorted(cluster.brokers.items()):
        subject = f"broker {number} at {broker.address}"
        yield from _check_advertised(subject, broker.address, reached)
        yield from _check_address(broker.address, properties, subject, advice=ADVERTISED)
    yield from _check_identity(cluster, properties)
    yield from _check_partitions(cluster)
    yield from _check_controllers_and_machines(cluster, controllers)


def _check_address(
    address: Address, properties: Mapping[str, str], subject: str, *, advice: str = ""
) -> Iterator[Remark]:
    try:
        found = sorted({str(each[4][0]) for each in socket.getaddrinfo(*address, type=socket.SOCK_STREAM)})
    except (OSError, ValueError) as error:  # ValueError as for `a..b`
        yield wrong(subject, f"the name has no address ({sentence(error)})", advice or "correct the name, or DNS")
        return
    began = time.monotonic()
    try:
        socket.create_connection(address, timeout=TIMEOUT_S).close()
    except OSError as error:
        yield wrong(
            subject,
            f"cannot be reached at {', '.join(found)} ({sentence(error).lower()})",
            advice or "start the broker, or open the port in the firewall",
        )
        return
    try:
        Connection(address, client_id=CLIENT_ID, timeout_s=TIMEOUT_S, security=security_of(properties)).close()
    except AuthenticationFailed as error:
        yield wrong(subject, str(error), "correct the user or the password in --command-config")
        return
    except (ClientError, ValueError) as error:
        yield wrong(
            subject,
            f"the port is open, and does not speak Kafka's protocol as it should ({error})",
            "see whether security.protocol fits the listener: TLS, SASL, or neither",
        )
        return
    took_s = time.monotonic() - began
    if took_s > SLOW_S:
        yield warning(subject, f"answers after {took_s:.1f} s", "see the network, DNS, and the load of the broker")
    else:
        yield fine(subject, f"answers within {took_s * 1000:.0f} ms")


def _check_advertised(subject: str, advertised: Address, reached: Address) -> Iterator[Remark]:
    """An address that means this machine is right only if the broker was reached on this machine."""
    if is_loopback(advertised.host) and not is_loopback(reached.host):
        yield wrong(
            subject,
            f"the broker was reached at {reached.host}, but has clients connect to {advertised.host}, "
            "which means their own machine",
            ADVERTISED,
        )
    elif advertised.host in ("", "0.0.0.0", "::"):
        yield wrong(subject, f"{advertised.host or 'nothing'} is no address to connect to", ADVERTISED)


def _check_identity(cluster: Cluster, properties: Mapping[str, str]) -> Iterator[Remark]:
    """Whether brokers that are named as one cluster are one: a port may have gone to a broker of another one."""
    ids: dict[str | None, list[int]] = {}
    for number, broker in sorted(cluster.brokers.items()):
        try:
            with Connection(
                broker.address, client_id=CLIENT_ID, timeout_s=TIMEOUT_S, security=security_of(properties)
            ) as connection:
                ids.setdefault(connection.ask(MetadataRequest(topics=[])).cluster_id, []).append(number)
        except (ClientError, ValueError):
            continue  # named above
    if len(ids) > 1:
        named = "; ".join(f"{cluster_id}: {', '.join(map(str, numbers))}" for cluster_id, numbers in ids.items())
        yield wrong(
            "cluster",
            f"its brokers belong to several clusters ({named})",
            "two brokers share an address, or advertised.listeners names that of another cluster",
        )
    elif ids:
        (cluster_id,) = ids
        yield fine("cluster", f"{cluster_id} with {len(cluster.brokers)} brokers")


def _check_partitions(cluster: Cluster) -> Iterator[Remark]:
    offline = sum(state.leader is None for state in cluster.partitions.values())
    behind = sum(len(state.in_sync) < len(state.replicas) for state in cluster.partitions.values())
    alone = {each.topic for each, state in cluster.partitions.items() if len(state.replicas) == 1}
    if offline:
        yield wrong(
            "partitions",
            f"{offline} have no leader",
            "start the brokers that have their replicas; if these run, their logs name what is lost, and the way out",
        )
    if behind:
        yield warning("partitions", f"{behind} have replicas that are not in sync", "see ottla cluster info")
    if alone and len(cluster.brokers) > 1:
        yield warning(
            "partitions",
            f"{len(alone)} topics have one replica only, such as {min(alone)}",
            "they are gone for as long as their broker is; ottla cluster reassign gives them more replicas",
        )
    if not offline and not behind:
        yield fine("partitions", f"all {len(cluster.partitions)} have a leader and all replicas in sync")


def _check_controllers_and_machines(cluster: Cluster, controllers: Controllers) -> Iterator[Remark]:
    places = {number: Place(broker.address.host, broker.rack) for number, broker in cluster.brokers.items()}
    if controllers.active is None:
        yield wrong("controller", "the cluster has none", "see whether its controllers run, and the brokers' logs")
    machines = machines_of(places, (), controllers.hosts)
    shared = on_one_machine(machines, cluster.assignments)
    if shared:
        partition, replicas = min(shared.items())
        yield warning(
            "machines",
            f"{len(shared)} have several replicas on one machine, such as {partition} ({together(replicas)})",
            "they are lost together; give the brokers of a machine one broker.rack, and see ottla cluster reassign",
        )
    elif len(machines) > 1:
        yield fine("machines", f"no two replicas of a partition are on one of the {len(machines)}")
