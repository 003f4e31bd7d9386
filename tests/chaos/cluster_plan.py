"""PURE: what breaks in a cluster, when and for how long, all from a seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from tests.chaos.plan import Fault, Strike


class ClusterFault(Enum):
    """What can break. Everything is done to one broker, the `victim`, unless it says otherwise."""

    KILL = "kill"
    """SIGKILL, and a start after a while."""
    KILL_TWO = "kill two"
    """The same, and its successor as soon as there is one."""
    KILL_ALL = "kill all"
    """All brokers at once, as when the power fails; they come back one after the other."""
    PAUSE = "pause"
    """SIGSTOP, SIGCONT after a while: it still believes that it leads."""
    CUT_FROM_BROKERS = "cut from brokers"
    CUT_FROM_ZOOKEEPER = "cut from zookeeper"
    CUT_FROM_CLIENTS = "cut from clients"
    CUT_FROM_CLUSTER = "cut from cluster"
    """From the other brokers and ZooKeeper: clients go on talking to it."""
    CUT_FROM_ALL = "cut from all"
    MUTE = "mute"
    """The other brokers do not get what it sends, though it gets what they send."""
    DEAF = "deaf"
    """The other way round."""
    SPLIT = "split"
    """No broker reaches another one; ZooKeeper and clients reach all."""
    KILL_ZOOKEEPER = "kill zookeeper"
    FILL_DISK = "fill disk"
    JUMP_CLOCK = "jump clock"
    """Its time of day goes forward or back, and back again."""
    ROLLING_RESTART = "rolling restart"
    """All of them, one after the other, by controlled shutdown."""
    CUT_CONTROLLER = "cut controller"
    """What goes to controllers or comes from them is lost between it and the others, while replicas follow on."""
    MUTE_CONTROLLER = "mute controller"
    """The same for what it sends."""
    DEAF_CONTROLLER = "deaf controller"
    """The same for what it is sent."""
    CHANGE_VOTERS = "change voters"
    """It is removed from the voters, and added again."""


OF_ZOOKEEPER: Final = (ClusterFault.CUT_FROM_ZOOKEEPER, ClusterFault.KILL_ZOOKEEPER)
"""For clusters whose metadata is there."""
OF_CONTROLLERS: Final = (ClusterFault.CUT_CONTROLLER, ClusterFault.MUTE_CONTROLLER, ClusterFault.DEAF_CONTROLLER)
"""For clusters with controllers of their own, as is CHANGE_VOTERS."""


ON_LOOPBACK: Final = (
    ClusterFault.KILL,
    ClusterFault.KILL_TWO,
    ClusterFault.KILL_ALL,
    ClusterFault.PAUSE,
    ClusterFault.KILL_ZOOKEEPER,
    ClusterFault.JUMP_CLOCK,
    ClusterFault.ROLLING_RESTART,
    ClusterFault.CHANGE_VOTERS,
)
"""What needs neither a network nor a disk of a broker's own."""
OF_WORKERS: Final = (Fault.KILL_WORKER, Fault.FREEZE_WORKER)


class Victim(Enum):
    """Which broker it is."""

    LEADER = "leader"
    """The leader of one of the partitions in use."""
    CONTROLLER = "controller"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class ClusterStrike(Strike):
    """One fault of a cluster (`fault` is a `ClusterFault`), or of one of its workers."""

    victim: Victim
    choice: int
    """Which partition's leader, or which broker."""
    runs_on: bool
    """It is over only when the next one is."""
    jump_ms: int


WEIGHTS: Final[Mapping[Enum, int]] = {
    ClusterFault.KILL: 5,
    ClusterFault.KILL_TWO: 2,
    ClusterFault.KILL_ALL: 1,
    ClusterFault.PAUSE: 4,
    ClusterFault.CUT_FROM_BROKERS: 2,
    ClusterFault.CUT_FROM_ZOOKEEPER: 2,
    ClusterFault.CUT_FROM_CLIENTS: 1,
    ClusterFault.CUT_FROM_CLUSTER: 3,
    ClusterFault.CUT_FROM_ALL: 2,
    ClusterFault.MUTE: 2,
    ClusterFault.DEAF: 2,
    ClusterFault.SPLIT: 1,
    ClusterFault.KILL_ZOOKEEPER: 2,
    ClusterFault.FILL_DISK: 2,
    ClusterFault.JUMP_CLOCK: 2,
    ClusterFault.ROLLING_RESTART: 1,
    ClusterFault.CUT_CONTROLLER: 2,
    ClusterFault.MUTE_CONTROLLER: 2,
    ClusterFault.DEAF_CONTROLLER: 2,
    ClusterFault.CHANGE_VOTERS: 2,
    Fault.KILL_WORKER: 3,
    Fault.FREEZE_WORKER: 2,
}
JUMPS_MS: Final = (-60_000, -5_000, -700, 700, 5_000, 60_000)
SECONDS: Final = (0.3, 1.5, 4.0, 8.0)
"""Shorter and longer than a session with ZooKeeper, and than the lag that is allowed to a replica in sync."""


def cluster_strikes(places: int, faults: Sequence[Enum], random: Random) -> Iterator[ClusterStrike]:
    """Endless faults of the given kinds, of a cluster and of the workers in so many places."""
    weights = [WEIGHTS[fault] for fault in faults]
    while faults:
        yield ClusterStrike(
            gap_seconds=round(random.uniform(0.3, 4.0), 3),
            fault=random.choices(faults, weights)[0],
            seconds=round(random.choice(SECONDS) * random.uniform(0.7, 1.3), 3),
            place=random.randrange(places),
            delay_seconds=round(random.choice((0.003, 0.02, 0.2)) * random.random(), 5),
            victim=random.choice((Victim.LEADER, Victim.LEADER, Victim.CONTROLLER, Victim.ANY)),
            choice=random.randrange(1 << 16),
            runs_on=random.random() < 0.25,
            jump_ms=random.choice(JUMPS_MS),
        )
