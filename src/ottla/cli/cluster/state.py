"""What a cluster looks like at one moment, and what has changed since another: for `ottla cluster watch`. No I/O."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from ottla.admin import Machine
from ottla.admin.operations.machines import Place, machines_of, on_one_machine
from ottla.cli.terminal.output import plural
from ottla.client.partition import Partition

NAMED_AT_ONCE: Final = 4
"""More partitions than that, to which the same has happened, are counted."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """One broker: where it is, or was when it was last seen, and whether it is up."""

    broker: int
    host: str | None
    port: int | None
    rack: str | None
    is_up: bool


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition: its leader (None if it has none), its replicas, and its in-sync replicas.

    `behind` is the number of records each follower lacks, for the followers that could be queried.
    """

    partition: Partition
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    behind: Mapping[int, int]

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync) < len(self.replicas)

    @property
    def lag(self) -> int | None:
        """By how many records the last of its followers is behind; None if none could be asked."""
        return max(self.behind.values(), default=None)


@dataclass(frozen=True)
class ClusterState:
    """The cluster at one moment, as one of its brokers reports it. `controller` is the active one.

    `controllers` are the hosts of all, by id; None where a host is not known, or is that of the broker.
    """

    controller: int | None
    brokers: Mapping[int, BrokerState]
    partitions: Mapping[Partition, PartitionState]
    controllers: Mapping[int, str | None] = field(default_factory=dict)
    cluster_id: str | None = None

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """The machines whose names are known."""
        places = {
            number: Place(broker.host, broker.rack)
            for number, broker in self.brokers.items()
            if broker.host is not None
        }
        down = self.brokers.keys() - set(self.up)
        return machines_of(places, down, self.controllers, (part.leader for part in self.partitions.values()))

    @cached_property
    def on_one_machine(self) -> Mapping[Partition, list[tuple[int, ...]]]:
        """The replicas that share a machine, of the partitions that have such."""
        return on_one_machine(self.machines, {name: part.replicas for name, part in self.partitions.items()})

    @property
    def up(self) -> list[int]:
        return [number for number, broker in sorted(self.brokers.items()) if broker.is_up]

    @property
    def under_replicated(self) -> int:
        return sum(part.is_under_replicated for part in self.partitions.values())

    @property
    def without_leader(self) -> int:
        return sum(part.leader is None for part in self.partitions.values())

    def facts(self) -> dict[str, object]:
        """What there is to say of the cluster as a whole."""
        lags = [part.lag for part in self.partitions.values() if part.lag is not None]
        return {
            "controller": self.controller,
            "brokers_up": len(self.up),
            "brokers_down": len(self.brokers) - len(self.up),
            "partitions": len(self.partitions),
            "without_leader": self.without_leader,
            "under_replicated": self.under_replicated,
            "machines": len(self.machines),
            "on_one_machine": len(self.on_one_machine),
            "lag": max(lags, default=None),
        }

    def summary(self) -> str:
        """The same in a sentence."""
        down = [number for number, broker in sorted(self.brokers.items()) if not broker.is_up]
        said = [f"{plural(len(self.up), 'broker')} up ({_numbers(self.up)})"]
        if down:
            said.append(f"{len(down)} down ({_numbers(down)})")
        said.append("no controller" if self.controller is None else f"controller {self.controller}")
        said.append(f"{plural(len(self.partitions), 'partition')}, {self.under_replicated:,} under-replicated")
        if self.without_leader:
            said.append(f"{self.without_leader:,} without leader")
        if self.on_one_machine:
            said.append(f"{len(self.on_one_machine):,} with several replicas on one machine")
        return "; ".join(said)

    def broker_rows(self) -> list[dict[str, object]]:
        """One row a broker: where it is, and its part in the partitions."""
        leads: dict[int, int] = defaultdict(int)
        holds: dict[int, int] = defaultdict(int)
        out_of_sync: dict[int, int] = defaultdict(int)
        for part in self.partitions.values():
            if part.leader is not None:
                leads[part.leader] += 1
            for replica in part.replicas:
                holds[replica] += 1
                out_of_sync[replica] += replica not in part.in_sync
        return [
            {
                "broker": number,
                "state": "up" if broker.is_up else "down",
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "controller": number == self.controller,
                "leads": leads[number],
                "replicas": holds[number],
                "out_of_sync": out_of_sync[number],
            }
            for number, broker in sorted(self.brokers.items())
        ]

    def machine_rows(self) -> list[dict[str, object]]:
        """One row a machine: what runs on it, and the partitions that it leads."""
        return machine_rows(self.machines, self.controller)

    def partition_rows(self) -> list[dict[str, object]]:
        """One row a partition."""
        return [
            {
                "topic": part.partition.topic,
                "partition": part.partition.partition,
                "leader": part.leader,
                "replicas": list(part.replicas),
                "in_sync": list(part.in_sync),
                "under_replicated": part.is_under_replicated,
                "behind": {str(replica): records for replica, records in sorted(part.behind.items())},
                "on_one_machine": [list(shared) for shared in self.on_one_machine.get(part.partition, ())],
            }
            for _, part in sorted(self.partitions.items())
        ]


def machine_rows(machines: Iterable[Machine], active: int | None) -> list[dict[str, object]]:
    """One row a machine; `active` is the active controller."""
    return [
        {
            "machine": machine.name,
            "state": "down" if not machine.is_up else "up" if not machine.down else "in part",
            "rack": machine.rack,
            "brokers": list(machine.brokers),
            "down": list(machine.down),
            "controllers": list(machine.controllers),
            "active_controller": active in machine.controllers,
            "leads": machine.leads,
        }
        for machine in machines
    ]


def changes(before: ClusterState, now: ClusterState) -> Iterator[str]:
    """The changes between two states, a sentence each: brokers, the controller, then partitions."""
    for number, broker in sorted(now.brokers.items()):
        known = before.brokers.get(number)
        if broker.is_up and not (known is not None and known.is_up):
            yield f"broker {number} is up"
        elif not broker.is_up and known is not None and known.is_up:
            yield f"broker {number} is down"
    if now.controller != before.controller:
        if now.controller is None:
            yield f"{_node(now, before.controller)} is no longer the controller, and no other is"
        else:
            yield f"{_node(now, now.controller)} is the controller"
    yield from _topics(before, now)
    yield from _partitions(before, now)


def _node(state: ClusterState, number: int | None) -> str:
    """A controller need not be a broker."""
    return f"broker {number}" if number in state.brokers else f"node {number}"


def _topics(before: ClusterState, now: ClusterState) -> Iterator[str]:
    def sizes(state: ClusterState) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for partition in state.partitions:
            found[partition.topic] += 1
        return found

    were, are = sizes(before), sizes(now)
    for topic in sorted(are.keys() | were.keys()):
        if topic not in were:
            yield f"topic {topic} has been created with {plural(are[topic], 'partition')}"
        elif topic not in are:
            yield f"topic {topic} has been deleted"
        elif are[topic] != were[topic]:
            yield f"topic {topic} has {plural(are[topic], 'partition')} now"


def _partitions(before: ClusterState, now: ClusterState) -> Iterator[str]:
    moved: dict[tuple[int | None, int | None], list[Partition]] = defaultdict(list)
    left: dict[int, list[Partition]] = defaultdict(list)
    back: dict[int, list[Partition]] = defaultdict(list)
    replicas: list[str] = []
    for partition, part in sorted(now.partitions.items()):
        known = before.partitions.get(partition)
        if known is None:
            continue
        if part.leader != known.leader:
            moved[known.leader, part.leader].append(partition)
        if set(part.replicas) != set(known.replicas):
            replicas.append(f"{partition} is on {_numbers(part.replicas)}, and was on {_numbers(known.replicas)}")
        for replica in part.replicas:
            was, is_now = replica in known.in_sync, replica in part.in_sync
            if was and not is_now:
                left[replica].append(partition)
            elif is_now and not was:
                back[replica].append(partition)
    for (old, new), partitions in moved.items():
        if new is None:
            yield f"{_named(partitions)}: no leader; it was broker {old}"
        elif old is None:
            yield f"broker {new} leads {_named(partitions)}, which had no leader"
        else:
            yield f"broker {new} leads {_named(partitions)} instead of broker {old}"
    for replica, partitions in sorted(left.items()):
        yield f"broker {replica} is out of sync in {_named(partitions)}"
    for replica, partitions in sorted(back.items()):
        yield f"broker {replica} is in sync in {_named(partitions)}"
    yield from replicas


def _named(partitions: list[Partition]) -> str:
    if len(partitions) > NAMED_AT_ONCE:
        return plural(len(partitions), "partition")
    return ", ".join(map(str, partitions))


def _numbers(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"
