"""PURE: what the workers are asked for and when what breaks, all from a seed.

The same seed asks for the same in the same order. How the answers interleave is up to the machine, so a seed makes a
failure likely to come again, not certain; the history is what is certain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Final, TypeAlias

Task: TypeAlias = dict[str, Any]
"""What a worker is asked for: an invocation of the history, without `who` and `state`."""

VALUES_OF_A_WORKER: Final = 10_000_000
FEED_PAUSE_S: Final = 0.03
"""Between two sends to the relays, which would not keep up on a slow machine."""


class Role(Enum):
    """What a worker does for the whole run."""

    ASSIGN = "assign"
    """Transactions, from partitions of its own choice."""
    SUBSCRIBE = "subscribe"
    """Transactions, as a member of a group."""
    PLAIN = "plain"
    """Sends and polls outside transactions, from partitions of its own choice."""
    PLAIN_SUBSCRIBE = "plain subscribe"
    """The same, as a member of a group."""
    FEED = "feed"
    """Sends to the input of the relays."""
    RELAY = "relay"
    """Relays, as a member of a group."""

    @property
    def subscribes(self) -> bool:
        """Whether a group gives it its partitions."""
        return self in (Role.SUBSCRIBE, Role.PLAIN_SUBSCRIBE, Role.RELAY)

    @property
    def has_transactions(self) -> bool:
        """Whether it needs a transactional producer."""
        return self in (Role.ASSIGN, Role.SUBSCRIBE, Role.RELAY)


@dataclass(frozen=True, slots=True)
class Place:
    """One of a run's workers; the processes in it come and go."""

    name: str
    client: str
    """`python` or `java`."""
    role: Role


def tasks(place: Place, number: int, keys: Sequence[str], random: Random) -> Iterator[Task]:
    """Endless tasks for the place with that number; the first one of a new process has to be `first_task`."""
    values = iter(range(number * VALUES_OF_A_WORKER + 1, (number + 1) * VALUES_OF_A_WORKER))
    while True:
        if place.role is Role.FEED:
            sends = [["send", random.choice(keys), next(values)] for _ in range(random.randint(1, 10))]
            yield {"what": "send", "steps": [["wait", FEED_PAUSE_S], *sends]}
        elif place.role is Role.RELAY:
            yield {"what": "relay", "seconds": _pause(random)}
        elif not place.role.subscribes and random.random() < 0.08:
            chosen = sorted(random.sample(keys, random.randint(1, len(keys))))
            yield {"what": "assign", "keys": chosen, "from_start": random.random() < 0.15}
        else:
            yield _work(place.role, keys, values, random)


def first_task(place: Place, keys: Sequence[str]) -> Task | None:
    """What a new process in the place has to do before all else."""
    if place.role.subscribes:
        return {"what": "subscribe", "keys": sorted({key.rpartition("-")[0] for key in keys})}
    if place.role is Role.FEED:
        return None
    return {"what": "assign", "keys": sorted(keys), "from_start": True}


def _work(role: Role, keys: Sequence[str], values: Iterator[int], random: Random) -> Task:
    steps: list[list[Any]] = []
    if role.has_transactions:
        steps += [
            ["send", random.choice(keys), next(values)] if random.random() < 0.65 else ["poll"]
            for _ in range(random.randint(1, 5))
        ]
        if pause := _pause(random):
            steps.insert(random.randrange(len(steps) + 1), ["wait", pause])
        return {"what": "txn", "steps": steps}
    if random.random() < 0.5:
        return {"what": "poll", "steps": [["poll"]]}
    return {
        "what": "send",
        "steps": [["send", random.choice(keys), next(values)] for _ in range(random.randint(1, 4))],
    }


def _pause(random: Random) -> float:
    """Some transactions take their time, so that more can happen in the middle of them."""
    return round(random.uniform(0.02, 0.4), 3) if random.random() < 0.1 else 0.0


class Fault(Enum):
    """What can break."""

    KILL_BROKER = "kill broker"
    """SIGKILL, and start again."""
    PAUSE_BROKER = "pause broker"
    """SIGSTOP, SIGCONT after a while."""
    RESTART_BROKER = "restart broker"
    KILL_WORKER = "kill worker"
    """SIGKILL in the middle of a transaction; another process takes its place, and its transactional id."""
    FREEZE_WORKER = "freeze worker"
    """SIGSTOP in the middle of a transaction; its place is taken, and then it wakes up."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault."""

    gap_seconds: float
    """How long after the last one is over, for a broker that starts within three seconds; longer for slower ones."""
    fault: Enum
    """A `Fault`, or a `ClusterFault`."""
    seconds: float
    """How long it lasts."""
    place: int
    """Which of the places, for faults of workers."""
    delay_seconds: float
    """How far into a worker's task."""


WEIGHTS: Final = {
    Fault.KILL_BROKER: 4,
    Fault.PAUSE_BROKER: 3,
    Fault.RESTART_BROKER: 1,
    Fault.KILL_WORKER: 5,
    Fault.FREEZE_WORKER: 3,
}


def strikes(places: int, faults: Sequence[Fault], random: Random) -> Iterator[Strike]:
    """Endless faults of the given kinds."""
    weights = [WEIGHTS[fault] for fault in faults]
    while faults:
        fault = random.choices(faults, weights)[0]
        yield Strike(
            gap_seconds=round(random.uniform(0.3, 3.0), 3),
            fault=fault,
            seconds=round(random.choice((0.2, 1.0, 2.5, 4.0)) * random.uniform(0.7, 1.3), 3),
            place=random.randrange(places),
            delay_seconds=round(random.choice((0.003, 0.02, 0.2)) * random.random(), 5),
        )
