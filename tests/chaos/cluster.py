"""Three nodes, and ZooKeeper where it is used, each on a host of its own, as a run's target: struck and healed."""

import math
import shutil
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
from tests.chaos.cluster_broken import LOSE_CACHE, ClusterBreakage
from tests.chaos.cluster_disk import remove_leftover_disks
from tests.chaos.cluster_network import Network
from tests.chaos.cluster_nodes import CLIENTS, CONTROLLER_PORT, REPLICAS, ZOOKEEPER, Makeup, Node, nodes_of
from tests.chaos.cluster_plan import OF_CONTROLLERS, ClusterFault, ClusterStrike, Victim, cluster_strikes
from tests.chaos.cluster_quorum import Quorum
from tests.chaos.cluster_replicas import differences, metadata_differences
from tests.chaos.plan import Strike
from tests.chaos.target import MOST_IN_FLIGHT, traceback_in
from tests.support.broker_process import BrokerFailedError, BrokerProcess
from tests.support.zookeeper import ZooKeeperServer

IN_SYNC_S: Final = 60.0
"""Within which all replicas have to be in sync again, after the last fault."""
IN_SYNC_BEFORE_S: Final = 10.0
"""How long faults that hurt several brokers wait for that: else there would be no successor to hurt."""
ENDS_S: Final = 60.0
"""Within which a broker has ended that cannot write."""
FULL: Final = "No space left on device"
BETWEEN_STARTS_S: Final = 1.5
ELECTION_S: Final = 15.0
_NEED_PEACE: Final = (
    ClusterFault.KILL_TWO,
    ClusterFault.KILL_ALL,
    ClusterFault.ROLLING_RESTART,
    ClusterFault.CHANGE_VOTERS,
)
"""Faults that begin when nothing else lasts, and do not run on: two brokers, or all, have to be fit for them."""
_ONE_WAY: Final = (
    ClusterFault.MUTE,
    ClusterFault.DEAF,
    ClusterFault.MUTE_CONTROLLER,
    ClusterFault.DEAF_CONTROLLER,
)


class Cluster:
    """See `Target`. Inside `with`, nothing runs until `start`; what has been started is gone afterwards."""

    replicas = REPLICAS

    def __init__(
        self,
        directory: Path,
        makeup: Makeup,
        *,
        network: Network | None,
        breakage: ClusterBreakage = ClusterBreakage.NONE,
        properties: Mapping[str, str],
    ) -> None:
        """`network` is one of `hosts`, or None for the loopback interface. This thread has to be on CLIENTS.
        `properties` of the brokers are over those of `cluster_nodes`."""
        broken = "" if breakage is ClusterBreakage.NONE else f", with {breakage.value}"
        self.name = f"{self.replicas} brokers, {makeup.value}{broken}"
        self.in_flight = 1 if makeup.genuine else MOST_IN_FLIGHT
        self._loses_nothing = breakage not in LOSE_CACHE  # when its brokers are killed at the end
        self._network = network
        self._zookeeper = _zookeeper(directory, network) if makeup is Makeup.ZOOKEEPER else None
        places, self._brokers = nodes_of(
            makeup,
            directory,
            None if self._zookeeper is None else self._zookeeper.connect,
            network=network,
            breakage=breakage,
            properties=properties,
        )
        self._quorum = None if makeup is Makeup.ZOOKEEPER else Quorum(places)
        self._stack = ExitStack()
        self._admin: AdminClient | None = None
        self._known: ClusterMetadata | None = None
        self._running_on: list[tuple[set[int], Callable[[], None]]] = []
        self._complaints: list[str] = []
        self._filled: dict[Node, float] = {}
        """The brokers whose disks were full, and when each was last."""

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
        for process in self._processes():
            process.kill()
        self._stack.close()

    @staticmethod
    def hosts() -> tuple[str, ...]:
        """What a network for it has to have."""
        return CLIENTS, ZOOKEEPER, *(f"broker-{number}" for number in range(1, REPLICAS + 1))

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self._brokers.values())

    def start(self) -> float:
        if self._zookeeper is not None:
            self._zookeeper.start()
        for broker in self._brokers.values():
            broker.start(wait=False)
        for broker in self._brokers.values():
            broker.wait_until_ready()
        return 0.0

    def strikes(self, places: int, faults: Sequence[Enum], random: Random) -> Iterator[Strike]:
        return cluster_strikes(places, faults, random)

    def _processes(self) -> list[BrokerProcess]:
        return [*self._brokers.values(), *([] if self._zookeeper is None else [self._zookeeper])]

    # -- faults ------------------------------------------------------------------------------------------------------

    def strike(self, strike: Strike) -> str:
        assert isinstance(strike, ClusterStrike)
        for broker in self._brokers.values():
            if not broker.is_alive() and not self._is_struck(broker) and not self._revived(broker):
                raise BrokerFailedError(f"{broker.name} died by itself; the end of its log:\n{broker.log_tail()}")
        if len(self._running_on) > 1 or strike.fault in _NEED_PEACE:
            self._end_all()
        is_peace = strike.fault not in _NEED_PEACE or self._in_sync_within(IN_SYNC_BEFORE_S)
        if strike.fault is ClusterFault.CHANGE_VOTERS and not is_peace:
            return "nobody: two voters might not be a majority that answers"
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
            complaints += traceback_in(broker, excused=FULL if broker in self._filled else None)
        return complaints

    def anomalies(self) -> list[Anomaly]:
        same_end = self._loses_nothing and self._in_sync_within(IN_SYNC_BEFORE_S)
        committed = None if self._quorum is None else self._quorum.high_watermark(sorted(self._brokers))
        for broker in self._brokers.values():
            broker.kill()
        log_dirs = {number: broker.log_dir for number, broker in self._brokers.items()}
        found = differences(log_dirs, same_end=same_end)
        if committed is not None:
            found += metadata_differences(log_dirs, committed)
        return [Anomaly(Kind.REPLICAS_DIFFER, text) for text in found]

    def _end_all(self) -> None:
        while self._running_on:
            _, end = self._running_on.pop(0)
            end()
        for broker in self._brokers.values():
            try:
                broker.wait_until_ready()
            except BrokerFailedError:
                if not self._revived(broker):
                    raise
                broker.wait_until_ready()

    def _begin(self, strike: ClusterStrike) -> tuple[set[int], Callable[[], None]]:
        """Strike a broker that no other strike affects. Returns the brokers affected, and a function that undoes it."""
        fault = strike.fault
        if fault is ClusterFault.KILL_ZOOKEEPER:
            return set(), self._kill_zookeeper()
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
            clock = broker.clock
            assert clock is not None, "a fault for brokers whose clock can be moved"
            clock.move(strike.jump_ms)
            return {number}, lambda: clock.move(0)
        if fault is ClusterFault.CHANGE_VOTERS:
            return {number}, self._without_vote(number)
        assert isinstance(fault, ClusterFault)
        port = CONTROLLER_PORT if fault in OF_CONTROLLERS else None
        return {number}, self._cut(self._severed(fault, number), port)

    def _is_struck(self, broker: Node) -> bool:
        return any(self._brokers[number] is broker for victims, _ in self._running_on for number in victims)

    def _victim(self, strike: ClusterStrike) -> int:
        """The one that is meant, or the next one to which nothing is being done yet."""
        meant = 1 + strike.choice % len(self._brokers)
        known = self._metadata()
        if known is not None and strike.victim is Victim.CONTROLLER:
            meant = self._controller(known)
        elif known is not None and strike.victim is Victim.LEADER:
            led = list(_leaders(known).values())
            meant = led[strike.choice % len(led)] if led else meant
        fit = [number for number, broker in self._brokers.items() if _can_be(strike.fault, broker)]
        candidates = sorted(fit, key=lambda number: (number - meant) % len(self._brokers))
        unhurt = [number for number in candidates if not self._is_struck(self._brokers[number])]
        return (unhurt or candidates)[0]

    def _controller(self, known: ClusterMetadata) -> int:
        """The active controller; brokers of a quorum name any broker to their clients."""
        if self._quorum is None:
            return int(known.controller_id)
        return self._quorum.leader(self._unhurt()) or int(known.controller_id)

    def _unhurt(self) -> list[int]:
        """The brokers, those first to which nothing is being done."""
        return sorted(self._brokers, key=lambda number: (self._is_struck(self._brokers[number]), number))

    def _kill_zookeeper(self) -> Callable[[], None]:
        assert self._zookeeper is not None, "a fault for clusters on ZooKeeper"
        if not self._zookeeper.is_alive():
            return lambda: None
        self._zookeeper.kill()
        return self._zookeeper.start

    def _without_vote(self, number: int) -> Callable[[], None]:
        """Remove a node from the voters; it goes on as an observer, and as a broker."""
        quorum = self._quorum
        assert quorum is not None, "a fault for clusters with controllers of their own"
        if problem := quorum.remove(number, self._unhurt()):
            self._complaints.append(f"voter {number} could not be removed: {problem}")

        def add() -> None:
            if refusal := quorum.add(number, self._unhurt()):
                self._complaints.append(f"voter {number} could not be added again: {refusal}")

        return add

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

    def _fill(self, broker: Node) -> Callable[[], None]:
        disk = broker.disk
        assert disk is not None, "a fault for brokers with disks of their own"
        disk.fill()

        def free() -> None:
            disk.free()
            self._filled[broker] = time.monotonic()
            self._revived(broker)

        return free

    def _revived(self, broker: Node) -> bool:
        """Start a broker that has ended; False if its disk was not full.

        When all its log directories have failed it ends, as Kafka does, and so does a controller that has used up the
        room that it had reserved, or has none because its page cache is this harness's (`lost_cache`).
        """
        if broker.is_alive() or time.monotonic() - self._filled.get(broker, -math.inf) > ENDS_S:
            return False
        broker.kill()
        broker.start(wait=False)
        return True

    def _roll(self) -> None:
        for broker in self._brokers.values():
            broker.restart()
            self._in_sync_within(IN_SYNC_S)

    def _severed(self, fault: ClusterFault, number: int) -> Iterator[tuple[str, str]]:
        """The directions that are cut, as (sender, receiver)."""
        own = self._brokers[number].at
        others = [broker.at for broker in self._brokers.values() if broker.at != own]
        if fault in _ONE_WAY:
            sends = fault in (ClusterFault.MUTE, ClusterFault.MUTE_CONTROLLER)
            yield from ((own, other) if sends else (other, own) for other in others)
            return
        keeper = [] if self._zookeeper is None else [ZOOKEEPER]
        far = {
            ClusterFault.CUT_FROM_BROKERS: others,
            ClusterFault.CUT_FROM_ZOOKEEPER: [ZOOKEEPER],
            ClusterFault.CUT_FROM_CLIENTS: [CLIENTS],
            ClusterFault.CUT_FROM_CLUSTER: [*others, *keeper],
            ClusterFault.CUT_FROM_ALL: [*others, *keeper, CLIENTS],
            ClusterFault.CUT_CONTROLLER: others,
        }[fault]
        for other in far:
            yield own, other
            yield other, own

    def _cut(self, pairs: Iterable[tuple[str, str]], port: int | None = None) -> Callable[[], None]:
        """Cut directions: all that goes there, or what goes to and comes from the `port` of controllers."""
        network = self._network
        assert network is not None, "a fault for brokers in a network"
        cut = list(pairs)
        for sender, receiver in cut:
            network.cut(sender, receiver, port)

        def mend() -> None:
            for sender, receiver in cut:
                network.mend(sender, receiver, port)

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
            for broker in self._filled:
                self._revived(broker)
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


def _zookeeper(directory: Path, network: Network | None) -> ZooKeeperServer:
    return ZooKeeperServer(
        directory / ZOOKEEPER,
        port=None if network is None else 2181,
        host="127.0.0.1" if network is None else network.address(ZOOKEEPER),
        prefix=() if network is None else network.prefix(ZOOKEEPER),
    )


def _can_be(fault: Enum, broker: Node) -> bool:
    """Whether a fault can be done to this broker."""
    return fault is not ClusterFault.JUMP_CLOCK or broker.clock is not None


def _leaders(known: ClusterMetadata) -> dict[tuple[str, int], int]:
    """Who leads each partition, internal topics left out, of those that somebody leads."""
    return {
        (name, number): partition.leader
        for name, topic in sorted(known.topics.items())
        for number, partition in sorted(topic.partitions.items())
        if partition.leader > 0 and not name.startswith("__")
    }
