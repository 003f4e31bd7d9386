"""One run over a cluster: its hosts are made and entered, it is judged, and nothing of it is left but its directory."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

from tests.chaos.cluster import CLIENTS, Cluster
from tests.chaos.cluster_broken import ClusterBreakage
from tests.chaos.cluster_network import Network, check_available
from tests.chaos.cluster_plan import OF_WORKERS, ON_LOOPBACK, ClusterFault
from tests.chaos.run import Run, Verdict, Workload
from tests.chaos.workers import java_classes
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
    breakage: ClusterBreakage = ClusterBreakage.NONE,
    loopback: bool = False,
) -> Iterator[Cluster]:
    """A cluster that has not been started, and, inside, its network. Raises NetworkUnavailable."""
    if not loopback:
        check_available()
    kafka39_libs()  # what has to be fetched or compiled is, before the machine's own network is out of reach
    with (
        hosts(loopback=loopback) as network,
        Cluster(directory, network=network, breakage=breakage, properties=properties) as cluster,
    ):
        yield cluster


def possible(faults: Sequence[Enum], *, loopback: bool) -> Sequence[Enum]:
    """Those of the faults that need no network and no disk of a broker's own, on the loopback interface."""
    return [fault for fault in faults if fault in (*ON_LOOPBACK, *OF_WORKERS)] if loopback else faults


def cluster_run(
    directory: Path,
    workload: Workload,
    *,
    seed: int,
    seconds: float,
    faults: Sequence[Enum] = ALL_FAULTS,
    group_protocol: str = "classic",
    breakage: ClusterBreakage = ClusterBreakage.NONE,
    loopback: bool = False,
    least_strikes: int = 0,
    properties: Mapping[str, str] | None = None,
) -> Verdict:
    """Arguments as of `Run`, and `properties` of the brokers, over those they always have.

    With `loopback`, what needs a network or a disk of a broker's own is left out.

    Raises:
        NetworkUnavailable: there can be no network namespaces here; nothing has been started.
        BrokerFailedError: ZooKeeper or a broker does not even start.
    """
    if "java" in workload.clients:
        java_classes()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with cluster_target(directory, properties or {}, breakage=breakage, loopback=loopback) as cluster:
        return Run(
            cluster,
            workload,
            seed=seed,
            seconds=seconds,
            directory=directory,
            faults=possible(faults, loopback=loopback),
            group_protocol=group_protocol,
            least_strikes=least_strikes,
        )()
