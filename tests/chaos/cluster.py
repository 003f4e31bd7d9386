"""Three brokers and a genuine ZooKeeper, each on a host of its own, as a run's target: struck and healed."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from enum import Enum
from functools import partial
from itertools import permutations
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from tests.chaos.checker import Anomaly, Kind
from tests.chaos.cluster_broken import ClusterBreakage
from tests.chaos.cluster_broker import MovableClock
from tests.chaos.cluster_disk import SmallDisk, remove_leftover_disks
from tests.chaos.cluster_network import Network
from tests.chaos.cluster_plan import ClusterFault, ClusterStrike, Victim, cluster_strikes
from tests.chaos.cluster_replicas import differences
from tests.chaos.plan import Strike
from tests.chaos.run import BROKER_PROPERTIES
from tests.chaos.target import traceback_in
from tests.support.broker_process import BrokerFailedError
from tests.support.ottla_process import OttlaProcess
from tests.support.zookeeper import ZooKeeperServer

CLIENTS: Final = "clients"
ZOOKEEPER: Final = "zookeeper"
DISK_BYTES: Final = 192 << 20
IN_SYNC_S: Final = 60.0
"""Within which all replicas have to be in sync again, after the last fault."""
IN_SYNC_BEFORE_S: Final = 10.0
"""How long faults that hurt several brokers wait for that: else there would be no successor to hurt."""
BETWEEN_STARTS_S: Final = 1.5
ELECTION_S: Final = 15.0
_NEED_PEACE: Final = (ClusterFault.KILL_TWO, ClusterFault.KILL_ALL, ClusterFault.ROLLING_RESTART)
"""Faults that begin when nothing else lasts, and do not run on: two brokers, or all, have to be fit for them."""
_REPOSITORY: Final = Path(__file__).resolve().parents[2]

PROPERTIES: Final[Mapping[str, str]] = {
    **BROKER_PROPERTIES,
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "30000",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "leader.imbalance.check.interval.seconds": "10",
}
"""Three replicas, two of which have to be in sync; quick to notice what breaks."""


class ClusterBroker(OttlaProcess):
    """One of them; see `BrokerProcess`. `disk` is None where it has none of its own."""

    def __init__(
        self,
        number: int,
        directory: Path,
        connect: str,
        *,
        network: Network | None,
        breakage: ClusterBreakage,
        properties: Mapping[str, str],
    ) -> None:
        host = f"broker-{number}"
        super().__init__(
            directory / host,
            properties={**PROPERTIES, **properties, "node.id": str(number), "zookeeper.connect": connect},
            environment={"PYTHONPATH": f"{_REPOSITORY / 'src'}{os.pathsep}{_REPOSITORY}"},
            port=None if network is None else 9092,
            host="127.0.0.1" if network is None else network.address(host),
            prefix=() if network is None else network.prefix(host),
        )
        self.name = self.at = host
        self.clock = MovableClock(self.directory / "clock")
        self.disk = None if network is None else SmallDisk(self.directory / "disk", DISK_BYTES)
        self._breakage = breakage

    @property
    def log_dir(self) -> Path:
        return self.directory / "disk" / "data"

    def command(self) -> list[str]:
        """`cluster_broker.py` in the place of the `ottla` command."""
        command = super().command()
        serve = command[command.index("serve") :]
        return [sys.executable, "-m", "tests.chaos.cluster_broker", str(self.clock.path), self._breakage.value, *serve]


class Cluster:
    """See `Target`. Inside `with`, nothing runs until `start`; what has been started is gone afterwards."""

    replicas = 3

    def __init__(
        self,
        directory: Path,
        *,
        network: Network | None,
        breakage: ClusterBreakage = ClusterBreakage.NONE,
        properties: Mapping[str, str],
    ) -> None:
        """`network` is one of `hosts`, or None for the loopback interface. Whoever uses this has to be on CLIENTS.
        `properties` of the brokers are over `PROPERTIES`."""
        self.name = f"{self.replicas} brokers" + ("" if breakage is ClusterBreakage.NONE else f" with {breakage.value}")
        self._loses_nothing = breakage is not ClusterBreakage.LOST_CACHE  # when its brokers are killed at the end
        self._network = network
        self._zookeeper = ZooKeeperServer(
            directory / ZOOKEEPER,
            port=None if network is None else 2181,
            host="127.0.0.1" if network is None else network.address(ZOOKEEPER),
            prefix=() if network is None else network.prefix(ZOOKEEPER),
        )
        self._brokers = {
            number: ClusterBroker(
                number,
                directory,
                self._zookeeper.connect,
                network=network,
                breakage=breakage,
                properties=properties,
            )
            for number in range(1, self.replicas + 1)
        }
        self._stack = ExitStack()
        self._admin: AdminClient | None = None
        self._known: ClusterMetadata | None = None
        self._running_on: list[tuple[set[int], Callable[[], None]]] = []
        self._complaints: list[str] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._network is not None:
                remove_leftover_disks()
            for broker in self._brokers.values():
                shutil.rmtree(broker.directory / "disk", ignore_errors=True)
                if broker.disk is not None:
                    stack.callback(broker.disk.unmount)
                    broker.disk.mount()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self._brokers.values(), self._zookeeper):
            process.kill()
        self._stack.close()

    @staticmethod
    def hosts() -> tuple[str, ...]:
        """What a network for it has to have."""
        return CLIENTS, ZOOKEEPER, *(f"broker-{number}" for number in range(1, Cluster.replicas + 1))

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self._brokers.values())

    def start(self) -> float:
        self._zookeeper.start()
        for broker in self._brokers.values():
            broker.start(wait=False)
        for broker in self._brokers.values():
            broker.wait_until_ready()
        return 0.0

    def strikes(self, places: int, faults: Sequence[Enum], random: Random) -> Iterator[Strike]:
        return cluster_strikes(places, faults, random)

    # -- faults ------------------------------------------------------------------------------------------------------

    def strike(self, strike: Strike) -> str:
        assert isinstance(strike, ClusterStrike)
        for broker in self._brokers.values():
            if not broker.is_alive() and not self._is_struck(broker):
                raise BrokerFailedError(f"{broker.name} died by itself; the end of its log:\n{broker.log_tail()}")
        if len(self._running_on) > 1 or strike.fault in _NEED_PEACE:
            self._end_all()
        if strike.fault in _NEED_PEACE:
            self._in_sync_within(IN_SYNC_BEFORE_S)
        victims, end = self._begin(strike)
        self._running_on.append((victims, end))
        if not strike.runs_on or strike.fault in _NEED_PEACE:
            time.sleep(strike.seconds)
            self._end_all()
        return ", ".join(self._brokers[number].name for number in sorted(victims)) or "all"

    def heal(self) -> None:
        self._end_all()
        if not self._in_sync_within(IN_SYNC_S):
            now = self._asked()
            lagging = "no broker answers" if now is None else ", ".join(self._lagging(now))
            self._complaints.append(f"not in sync {IN_SYNC_S:.0f} s after the last fault: {lagging}")

    def troubles(self) -> list[str]:
        complaints = list(self._complaints)
        for broker in self._brokers.values():
            if not broker.is_alive():
                complaints.append(f"{broker.name} died by itself; the end of its log:\n{broker.log_tail()}")
            complaints += traceback_in(broker)
        return complaints

    def anomalies(self) -> list[Anomaly]:
        same_end = self._loses_nothing and self._in_sync_within(IN_SYNC_BEFORE_S)
        for broker in self._brokers.values():
            broker.kill()
        log_dirs = {number: broker.log_dir for number, broker in self._brokers.items()}
        found = differences(log_dirs, same_end=same_end)
        return [Anomaly(Kind.REPLICAS_DIFFER, text) for text in found]

    def _end_all(self) -> None:
        while self._running_on:
            _, end = self._running_on.pop(0)
            end()
        for broker in self._brokers.values():
            broker.wait_until_ready()

    def _begin(self, strike: ClusterStrike) -> tuple[set[int], Callable[[], None]]:
        """Strike a broker that no other strike affects. Returns the brokers affected, and a function that undoes it."""
        fault = strike.fault
        if fault is ClusterFault.KILL_ZOOKEEPER:
            if self._zookeeper.is_alive():
                self._zookeeper.kill()
                return set(), self._zookeeper.start
            return set(), lambda: None
        if fault is ClusterFault.ROLLING_RESTART:
            self._roll()
            return set(), lambda: None
        if fault is ClusterFault.KILL_ALL:
            return set(self._brokers), self._kill_all(strike.choice)
        if fault is ClusterFault.SPLIT:
            return set(), self._cut(permutations((broker.at for broker in self._brokers.values()), 2))
        number = self._victim(strike)
        broker = self._brokers[number]
        if fault is ClusterFault.KILL:
            broker.kill()
            return {number}, partial(broker.start, wait=False)
        if fault is ClusterFault.KILL_TWO:
            return self._kill_two(number)
        if fault is ClusterFault.PAUSE:
            broker.pause()
            return {number}, broker.resume
        if fault is ClusterFault.FILL_DISK:
            return {number}, self._fill(broker)
        if fault is ClusterFault.JUMP_CLOCK:
            broker.clock.move(strike.jump_ms)
            return {number}, lambda: broker.clock.move(0)
        assert isinstance(fault, ClusterFault)
        return {number}, self._cut(self._severed(fault, number))

    def _is_struck(self, broker: ClusterBroker) -> bool:
        return any(self._brokers[number] is broker for victims, _ in self._running_on for number in victims)

    def _victim(self, strike: ClusterStrike) -> int:
        """The one that is meant, or the next one to which nothing is being done yet."""
        meant = 1 + strike.choice % len(self._brokers)
        known = self._metadata()
        if known is not None and strike.victim is Victim.CONTROLLER:
            meant = known.controller_id
        elif known is not None and strike.victim is Victim.LEADER:
            led = list(_leaders(known).values())
            meant = led[strike.choice % len(led)] if led else meant
        candidates = sorted(self._brokers, key=lambda number: (number - meant) % len(self._brokers))
        unhurt = [number for number in candidates if not self._is_struck(self._brokers[number])]
        return (unhurt or candidates)[0]

    def _kill_two(self, first: int) -> tuple[set[int], Callable[[], None]]:
        """Kill a broker, and then the new leader of a partition that it led."""
        known = self._metadata()
        led = [key for key, leader in _leaders(known).items() if leader == first] if known else []
        killed = [self._brokers[first]]
        killed[0].kill()
        deadline = time.monotonic() + ELECTION_S
        while led and len(killed) == 1 and time.monotonic() < deadline:
            now = self._metadata()
            successor = _leaders(now).get(led[0], first) if now else first
            if successor != first:
                killed.append(self._brokers[successor])
                killed[1].kill()

        def start() -> None:
            for broker in killed:
                broker.start(wait=False)

        return {number for number, broker in self._brokers.items() if broker in killed}, start

    def _kill_all(self, first: int) -> Callable[[], None]:
        """Kill all brokers. They come back in any order: the first must not lead where another has more records."""
        brokers = list(self._brokers.values())
        for broker in brokers:
            broker.kill()
        turn = first % len(brokers)

        def start() -> None:
            for broker in (*brokers[turn:], *brokers[:turn]):
                broker.start(wait=False)
                time.sleep(BETWEEN_STARTS_S)

        return start

    def _fill(self, broker: ClusterBroker) -> Callable[[], None]:
        disk = broker.disk
        assert disk is not None, "a fault for brokers with disks of their own"
        disk.fill()

        def free() -> None:
            disk.free()
            if not broker.is_alive():  # all its log directories have failed, which ends it, as it does Kafka
                broker.kill()
                broker.start(wait=False)

        return free

    def _roll(self) -> None:
        for broker in self._brokers.values():
            broker.restart()
            self._in_sync_within(IN_SYNC_S)

    def _severed(self, fault: ClusterFault, number: int) -> Iterator[tuple[str, str]]:
        """The directions that are cut, as (sender, receiver)."""
        own = self._brokers[number].at
        others = [broker.at for broker in self._brokers.values() if broker.at != own]
        if fault in (ClusterFault.MUTE, ClusterFault.DEAF):
            yield from ((own, other) if fault is ClusterFault.MUTE else (other, own) for other in others)
            return
        far = {
            ClusterFault.CUT_FROM_BROKERS: others,
            ClusterFault.CUT_FROM_ZOOKEEPER: [ZOOKEEPER],
            ClusterFault.CUT_FROM_CLIENTS: [CLIENTS],
            ClusterFault.CUT_FROM_CLUSTER: [*others, ZOOKEEPER],
            ClusterFault.CUT_FROM_ALL: [*others, ZOOKEEPER, CLIENTS],
        }[fault]
        for other in far:
            yield own, other
            yield other, own

    def _cut(self, pairs: Iterable[tuple[str, str]]) -> Callable[[], None]:
        network = self._network
        assert network is not None, "a fault for brokers in a network"
        cut = list(pairs)
        for sender, receiver in cut:
            network.cut(sender, receiver)

        def mend() -> None:
            for sender, receiver in cut:
                network.mend(sender, receiver)

        return mend

    # -- what the cluster says of itself -----------------------------------------------------------------------------

    def _metadata(self) -> ClusterMetadata | None:
        """The metadata of any broker that answers, else the last known."""
        self._known = self._asked() or self._known
        return self._known

    def _asked(self) -> ClusterMetadata | None:
        """What some broker says; None if none answers."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 2000, "log_level": 0})
        with suppress(KafkaException):
            return self._admin.list_topics(timeout=4)
        return None

    def _in_sync_within(self, seconds: float) -> bool:
        """Whether all replicas of all partitions are in sync before so much time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            now = self._asked()
            if now is not None and not self._lagging(now):
                return True
            time.sleep(0.2)
        return False

    def _lagging(self, known: ClusterMetadata) -> list[str]:
        """Partitions that have not all their replicas in sync."""
        return [
            f"{name}-{number} (leader {partition.leader}, in sync {partition.isrs})"
            for name, topic in known.topics.items()
            for number, partition in topic.partitions.items()
            if len(partition.isrs) < len(self._brokers) or partition.leader < 0
        ]


def _leaders(known: ClusterMetadata) -> dict[tuple[str, int], int]:
    """Who leads each partition, internal topics left out, of those that somebody leads."""
    return {
        (name, number): partition.leader
        for name, topic in sorted(known.topics.items())
        for number, partition in sorted(topic.partitions.items())
        if partition.leader > 0 and not name.startswith("__")
    }
