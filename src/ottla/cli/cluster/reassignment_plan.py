"""Plans replica moves when brokers are added or removed: as few moves as possible, spread over racks. Pure.

    drain 3     1 2 3    every replica on 3 goes to the broker with the fewest replicas, in a rack without one if
    possible
    add 4       1 2 3    4 takes its share of each topic's replicas, and of its first replicas (the preferred leaders)
                4 2 3

A plan is what Kafka's tools read and write:
`{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}`
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.cli.terminal.exits import CommandFailed
from ottla.client.partition import Partition

PLAN_VERSION: Final = 1
ANYWHERE: Final = "any"
ROUNDING: Final = 1e-9

Replicas = tuple[int, ...]
Assignments = Mapping[Partition, Replicas]
"""The brokers that hold each partition; the first is the preferred leader."""
Racks = Mapping[int, str | None]
"""The rack of each broker that is alive."""


class Move(NamedTuple):
    """One partition that is to get other replicas."""

    partition: Partition
    before: Replicas
    replicas: Replicas
    log_dirs: tuple[str, ...] = ()
    """The directory of each replica, or `any`; empty to let the brokers choose."""

    @property
    def places(self) -> dict[int, str]:
        """The brokers whose log directory is given."""
        named = zip(self.replicas, self.log_dirs, strict=True) if self.log_dirs else ()
        return {broker: directory for broker, directory in named if directory != ANYWHERE}

    @property
    def added(self) -> Replicas:
        """The brokers that have to copy it."""
        return tuple(broker for broker in self.replicas if broker not in self.before)


def plan_draining(assignments: Assignments, racks: Racks, gone: Collection[int]) -> list[Move]:
    """Have others hold what the brokers `gone` do. Raises CommandFailed if too few are left."""
    left = {broker: rack for broker, rack in racks.items() if broker not in gone}
    load = _Load(assignments)
    moves: list[Move] = []
    for partition, before in assignments.items():
        if not any(broker in gone for broker in before):
            continue
        if len(before) > len(left):
            raise CommandFailed(
                f"{partition} has {len(before)} replicas, and only {len(left)} brokers would be left: start another, "
                "or give the topic fewer replicas first"
            )
        replicas = list(before)
        for place, broker in enumerate(before):
            if broker in gone:
                replicas[place] = _successor(replicas, place, left, load)
                load.replace(broker, replicas[place], place)
        moves.append(Move(partition, before, tuple(replicas)))
    return moves


def _successor(replicas: Sequence[int], place: int, left: Racks, load: "_Load") -> int:
    others = [broker for at, broker in enumerate(replicas) if at != place]
    used = {left.get(broker) for broker in others if broker in left}

    def cost(broker: int) -> tuple[bool, int, int, int]:
        rack = left[broker]
        crowded = rack is not None and rack in used
        return crowded, load.first[broker] if place == 0 else 0, load.held[broker], broker

    return min((broker for broker in left if broker not in others), key=cost)


def plan_adding(assignments: Assignments, racks: Racks, added: Collection[int]) -> list[Move]:
    """Have the brokers `added` hold their share of every topic's replicas, taken from those that hold most.

    No partition comes to lie in fewer racks than before.
    """
    by_topic: dict[str, dict[Partition, Replicas]] = {}
    for partition, replicas in assignments.items():
        by_topic.setdefault(partition.topic, {})[partition] = replicas
    moves: list[Move] = []
    owed = _Owed()
    cluster = _Load(assignments)
    for topic in sorted(by_topic):
        now = by_topic[topic]
        placing = _Topic(now, racks, cluster)
        for broker in sorted(added):
            for first, count in owed.by(broker, now, len(racks)):
                placing.give(broker, count, first=first)
        moves += placing.moves()
    return moves


class _Owed:
    """How many replicas of a topic a new broker gets; what is left of a share counts for the next topic."""

    def __init__(self) -> None:
        self._rests: dict[tuple[int, bool], float] = {}

    def by(self, broker: int, partitions: Mapping[Partition, Replicas], brokers: int) -> list[tuple[bool, int]]:
        """The numbers of first replicas (True) and of others that the broker should have, less what it has."""
        has_first = sum(replicas[0] == broker for replicas in partitions.values())
        has_others = sum(broker in replicas[1:] for replicas in partitions.values())
        others = sum(len(replicas) - 1 for replicas in partitions.values())
        owed: list[tuple[bool, int]] = []
        for first, share, has in (
            (True, len(partitions) / brokers, has_first),
            (False, others / brokers, has_others),
        ):
            due = self._rests.get((broker, first), 0.0) + share - has
            count = max(0, int(due + ROUNDING))
            self._rests[broker, first] = due - count
            owed.append((first, count))
        return owed


class _Topic:
    """The replicas of one topic while some of them are given to others."""

    def __init__(self, before: Mapping[Partition, Replicas], racks: Racks, cluster: "_Load") -> None:
        self._cluster = cluster
        self._before = before
        self._now = {partition: list(replicas) for partition, replicas in before.items()}
        self._racks = racks
        self._load = _Load(before)

    def give(self, broker: int, count: int, *, first: bool) -> None:
        """Up to so many replicas, each from the broker that has most of them and can spare one."""
        candidates: dict[int, list[tuple[Partition, int]]] = {}
        for partition, replicas in self._now.items():
            for place, holder in enumerate(replicas):
                if (place == 0) == first:
                    candidates.setdefault(holder, []).append((partition, place))
        for queue in candidates.values():
            queue.reverse()
        here = self._load.first if first else self._load.others
        everywhere = self._cluster.first if first else self._cluster.others
        while count and candidates:
            donor = max(candidates, key=lambda holder: (here[holder], everywhere[holder], -holder))
            if here[donor] <= here[broker] + 1 and everywhere[donor] <= everywhere[broker] + 1:
                return  # another move would only overload another broker
            partition, place = candidates[donor].pop()
            if not candidates[donor]:
                del candidates[donor]
            if self._may_replace(partition, place, broker):
                self._now[partition][place] = broker
                self._load.replace(donor, broker, place)
                self._cluster.replace(donor, broker, place)
                count -= 1

    def _may_replace(self, partition: Partition, place: int, broker: int) -> bool:
        replicas = self._now[partition]
        if broker in replicas or self._before[partition][place] != replicas[place]:
            return False
        after = [*replicas[:place], broker, *replicas[place + 1 :]]
        return self._spread(after) >= self._spread(replicas)

    def _spread(self, replicas: Iterable[int]) -> int:
        """In how many racks they are; a broker whose rack is not known is one of its own."""
        return len({self._racks.get(broker) or broker for broker in replicas})

    def moves(self) -> list[Move]:
        return [
            Move(partition, before, tuple(self._now[partition]))
            for partition, before in self._before.items()
            if tuple(self._now[partition]) != before
        ]


class _Load:
    """How many replicas each broker holds: first ones, others, and both."""

    def __init__(self, assignments: Assignments) -> None:
        self.first: Counter[int] = Counter()
        self.others: Counter[int] = Counter()
        for replicas in assignments.values():
            self.first[replicas[0]] += 1
            self.others.update(replicas[1:])

    @property
    def held(self) -> Counter[int]:
        return self.first + self.others

    def replace(self, donor: int, taker: int, place: int) -> None:
        counted = self.others if place else self.first
        counted[donor] -= 1
        counted[taker] += 1


# -- files -----------------------------------------------------------------------------------------------------------


def parse_plan(text: str, assignments: Assignments) -> list[Move]:
    """Read a plan for partitions that are held as these are now.

    Raises ValueError with a sentence about what is wrong, KeyError with a partition that is not there.
    """
    try:
        plan = json.loads(text)
    except ValueError as problem:
        raise ValueError(f"it is no JSON: {problem}") from None
    if not isinstance(plan, dict) or not isinstance(plan.get("partitions"), list):
        raise ValueError('it is no plan: that is {"version": 1, "partitions": [...]}')
    if plan.get("version", PLAN_VERSION) != PLAN_VERSION:
        raise ValueError(f"it is of version {plan['version']}, and only version {PLAN_VERSION} is known")
    found: dict[Partition, Move] = {}
    for number, entry in enumerate(plan["partitions"], start=1):
        planned = _planned(number, entry)
        if planned.partition in found:
            raise ValueError(f"it names {planned.partition} twice")
        found[planned.partition] = planned._replace(before=assignments[planned.partition])
    return list(found.values())


def _planned(number: int, entry: object) -> Move:
    if not isinstance(entry, dict):
        raise ValueError(f"entry {number} is no object")
    topic, partition, replicas = entry.get("topic"), entry.get("partition"), entry.get("replicas")
    if not isinstance(topic, str) or not isinstance(partition, int):
        raise ValueError(f"entry {number} names no topic and partition")
    if not isinstance(replicas, list) or not replicas or not all(isinstance(broker, int) for broker in replicas):
        raise ValueError(f"entry {number} ({topic}-{partition}) has no list of brokers as its replicas")
    if len(set(replicas)) < len(replicas):
        raise ValueError(f"entry {number} ({topic}-{partition}) names a broker twice: {replicas}")
    log_dirs = entry.get("log_dirs", [])
    if not isinstance(log_dirs, list) or len(log_dirs) not in (0, len(replicas)):
        raise ValueError(f"entry {number} ({topic}-{partition}) does not have one log directory for each replica")
    return Move(Partition(topic, partition), (), tuple(replicas), tuple(map(str, log_dirs)))


def plan_document(moves: Iterable[Move]) -> dict[str, object]:
    """A plan as Kafka's tools read it, with what is there `before` besides."""
    return {
        "version": PLAN_VERSION,
        "partitions": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "replicas": list(move.replicas),
                **({"log_dirs": list(move.log_dirs)} if move.log_dirs else {}),
                "before": list(move.before),
            }
            for move in moves
        ],
    }
