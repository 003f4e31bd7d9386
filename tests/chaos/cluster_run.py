"""One run over a cluster: its hosts are made and entered, it is judged, and nothing of it is left but its directory."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

from tests.chaos.cluster import Cluster
from tests.chaos.cluster_broken import ClusterBreakage
from tests.chaos.cluster_network import Network, check_available
from tests.chaos.cluster_nodes import CLIENTS, Makeup
from tests.chaos.cluster_plan import OF_CONTROLLERS, OF_WORKERS, OF_ZOOKEEPER, ON_LOOPBACK, ClusterFault
from tests.chaos.run import Run, Verdict, Workload
from tests.chaos.workers import java_classes
from tests.support.genuine import kafka_libs
from tests.support.genuine39 import kafka39_libs

ALL_FAULTS: Final[Sequence[Enum]] = (*ClusterFault, *OF_WORKERS)


@contextmanager
def hosts(*, loopback: bool) -> Iterator[Network | None]:
    """The network of a cluster, with this thread on the host of the clients. None with `loopback`.

    Raises `NetworkUnavailable`.
    """
    if loopback:
        yield None
        return
    with Network(*Cluster.hosts()) as network, network.entered(CLIENTS):
        yield network


@contextmanager
def cluster_target(
    directory: Path,
    properties: Mapping[str, str],
    *,
    makeup: Makeup = Makeup.QUORUM,
    breakage: ClusterBreakage = ClusterBreakage.NONE,
    loopback: bool = False,
) -> Iterator[Cluster]:
    """A cluster that has not been started, and, inside, its network. Raises NetworkUnavailable."""
    if not loopback:
        check_available()
    # What has to be fetched or compiled is, before the machine's own network is out of reach.
    kafka39_libs() if makeup is Makeup.ZOOKEEPER else kafka_libs()
    with (
        hosts(loopback=loopback) as network,
        Cluster(directory, makeup, network=network, breakage=breakage, properties=properties) as cluster,
    ):
        yield cluster


def possible(faults: Sequence[Enum], *, loopback: bool, makeup: Makeup = Makeup.QUORUM) -> Sequence[Enum]:
    """Those of the faults that there can be: some need a network and a disk of a broker's own, some ZooKeeper, some
    controllers."""
    there = (*ON_LOOPBACK, *OF_WORKERS) if loopback else ALL_FAULTS
    missing = (*OF_CONTROLLERS, ClusterFault.CHANGE_VOTERS) if makeup is Makeup.ZOOKEEPER else OF_ZOOKEEPER
    return [fault for fault in faults if fault in there and fault not in missing]


def cluster_run(
    directory: Path,
    workload: Workload,
    *,
    seed: int,
    seconds: float,
    faults: Sequence[Enum] = ALL_FAULTS,
    group_protocol: str = "classic",
    makeup: Makeup = Makeup.QUORUM,
    breakage: ClusterBreakage = ClusterBreakage.NONE,
    loopback: bool = False,
    least_strikes: int = 0,
    properties: Mapping[str, str] | None = None,
) -> Verdict:
    """Arguments as of `Run`, and `properties` of the brokers, over those they always have.

    Faults that there cannot be are left out (`possible`).

    Raises:
        NetworkUnavailable: there can be no network namespaces here; nothing has been started.
        BrokerFailedError: ZooKeeper or a broker does not even start.
    """
    if "java" in workload.clients:
        java_classes()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with cluster_target(directory, properties or {}, makeup=makeup, breakage=breakage, loopback=loopback) as cluster:
        return Run(
            cluster,
            workload,
            seed=seed,
            seconds=seconds,
            directory=directory,
            faults=possible(faults, loopback=loopback, makeup=makeup),
            group_protocol=group_protocol,
            least_strikes=least_strikes,
        )()
