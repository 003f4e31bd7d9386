"""`ottla cluster watch`: brokers, controller, leaders, in-sync replicas and lag, as they change."""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click
from confluent_kafka import KafkaException

from ottla.cli.client import Connection, connection_options, known_topics
from ottla.cli.cluster_state import BrokerState, ClusterState, PartitionState, changes
from ottla.cli.exits import CommandFailed
from ottla.cli.output import Column, cell, note, on_terminal, print_json, print_rows
from ottla.cli.partition import Partition
from ottla.cli.requests import Address, Requests
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ClusterMetadata

ANY_REPLICA: Final = -2
"""As whom a tool asks a broker where its own log ends, whoever leads."""
LATEST: Final = -1
LAG_TIMEOUT_S: Final = 1.0
RACKS_TIMEOUT_S: Final = 1.0
"""A broker that hangs must not stop the picture."""
PARTITION_COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", figures=True),
    Column("leader", "LEADER", figures=True),
    Column("replicas", "REPLICAS"),
    Column("in_sync", "IN SYNC"),
    Column("behind", "BEHIND"),
)


@click.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option("--once", is_flag=True, help="Show how things are, and end.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per look.")
@connection_options
def watch(connection: Connection, topics: tuple[str, ...], once: bool, every_s: float, as_json: bool) -> None:
    """Watch the cluster until Ctrl-C: who is up, leads and is in sync, and how far followers are behind.

    On a terminal, a picture that changes in place. When piped, what happens, a line each with its time; with --once a
    line per partition, with --json the whole state.
    """
    with Requests(replace(connection, timeout_s=min(LAG_TIMEOUT_S, connection.timeout_s))) as requests:
        look = ClusterLook(connection, requests, topics)
        if once:
            _show(look.take(), as_json=as_json)
        elif as_json:
            _print_states(look, every_s)
        elif on_terminal():
            _draw(look, every_s)
        else:
            _print_changes(look, every_s)


class ClusterLook:
    """Looks at a cluster again and again, and remembers the brokers that it has seen."""

    def __init__(self, connection: Connection, requests: Requests, topics: tuple[str, ...]) -> None:
        """`topics` are those to look at; all, if there are none."""
        self._connection = connection
        self._requests = requests
        self._topics = topics
        self._seen: dict[int, BrokerState] = {}
        self._racks: dict[int, str | None] = {}

    def take(self) -> ClusterState:
        """How things are now. Raises `CommandFailed`."""
        admin = self._connection.admin()
        metadata = self._connection.metadata(admin)
        found = known_topics(metadata, self._topics) if self._topics else list(metadata.topics.values())
        up = metadata.brokers
        if any(number not in self._seen or not self._seen[number].is_up for number in up):
            self._racks.update(self._racks_now(admin))
        replicas = {number for topic in found for part in topic.partitions.values() for number in part.replicas}
        for number in (replicas | self._seen.keys()) - up.keys():
            known = self._seen.get(number, BrokerState(number, None, None, None, is_up=False))
            self._seen[number] = replace(known, is_up=False)
        for number, broker in up.items():
            self._seen[number] = BrokerState(number, broker.host, broker.port, self._racks.get(number), is_up=True)
        controller = metadata.controller_id if metadata.controller_id in up else None
        return ClusterState(controller, dict(self._seen), self._partitions(metadata, found))

    def _racks_now(self, admin: "AdminClient") -> dict[int, str | None]:
        """Which are in no metadata of the client library. It asks the controller for them, so not with every look."""
        try:
            described = self._connection.wait(admin.describe_cluster(request_timeout=RACKS_TIMEOUT_S))
        except (KafkaException, CommandFailed):
            return {}
        return {node.id: node.rack for node in described.nodes}

    def _partitions(self, metadata: "ClusterMetadata", topics: Iterable[Any]) -> dict[Partition, PartitionState]:
        parts = {
            Partition(str(topic.topic), number): part for topic in topics for number, part in topic.partitions.items()
        }
        held: dict[int, list[Partition]] = {}
        for partition, part in parts.items():
            for replica in part.replicas:
                held.setdefault(replica, []).append(partition)
        ends = {
            number: self._ends(Address(str(broker.host), int(broker.port)), held[number])
            for number, broker in metadata.brokers.items()
            if number in held
        }
        states: dict[Partition, PartitionState] = {}
        for partition, part in sorted(parts.items()):
            end = ends.get(part.leader, {}).get(partition)
            behind = {
                replica: max(end - ends[replica][partition], 0)  # the follower was asked after its leader, perhaps
                for replica in part.replicas
                if end is not None and replica != part.leader and partition in ends.get(replica, {})
            }
            leader = part.leader if part.leader >= 0 else None
            states[partition] = PartitionState(partition, leader, tuple(part.replicas), tuple(part.isrs), behind)
        return states

    def _ends(self, address: Address, partitions: list[Partition]) -> dict[Partition, int]:
        """Where a broker's own logs end; empty if it cannot be asked."""
        topics: dict[str, ListOffsetsTopic] = {}
        for topic, partition in partitions:
            wanted = topics.setdefault(topic, ListOffsetsTopic(name=topic, partitions=[]))
            wanted.partitions.append(ListOffsetsPartition(partition_index=partition, timestamp=LATEST))
        try:
            answer = self._requests.ask(
                ListOffsetsRequest(replica_id=ANY_REPLICA, topics=list(topics.values())), to=address
            )
        except CommandFailed:
            return {}
        return {
            Partition(topic.name, found.partition_index): found.offset
            for topic in answer.topics
            for found in topic.partitions
            if not found.error_code
        }


def _show(state: ClusterState, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(state))
    elif on_terminal():
        from ottla.cli.cluster_screen import Screen

        with Screen() as screen:
            screen.draw(state)
    else:
        rows = [
            {**row, "behind": ",".join(f"{replica}:{records}" for replica, records in _behind(row))}
            for row in state.partition_rows()
        ]
        print_rows(rows, PARTITION_COLUMNS)


def _behind(row: dict[str, object]) -> Iterable[tuple[str, int]]:
    found = row["behind"]
    assert isinstance(found, dict)
    return found.items()


def _as_json(state: ClusterState) -> dict[str, object]:
    return {
        "time": round(time.time(), 3),
        **state.facts(),
        "brokers": state.broker_rows(),
        "by_partition": state.partition_rows(),
    }


def _looks(look: ClusterLook, every_s: float) -> Iterator[ClusterState | CommandFailed]:
    """One after the other. Trouble at the first one is raised, later trouble may pass."""
    yield look.take()
    while True:
        time.sleep(every_s)
        taken: ClusterState | CommandFailed
        try:
            taken = look.take()
        except CommandFailed as failure:
            taken = failure
        yield taken


def _print_states(look: ClusterLook, every_s: float) -> None:
    for taken in _looks(look, every_s):
        if isinstance(taken, CommandFailed):
            note(str(taken))
        else:
            click.echo(json.dumps(_as_json(taken)))


def _print_changes(look: ClusterLook, every_s: float) -> None:
    before: ClusterState | None = None
    trouble = ""
    for taken in _looks(look, every_s):
        if isinstance(taken, CommandFailed):
            if str(taken) != trouble:
                trouble = str(taken)
                _say(trouble)
            continue
        if before is None or trouble:
            _say(taken.summary())
        if before is not None:
            for change in changes(before, taken):
                _say(change)
        before, trouble = taken, ""


def _say(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')}\t{cell(text)}")


def _draw(look: ClusterLook, every_s: float) -> None:
    from ottla.cli.cluster_screen import Screen  # its library takes longer to load than the other commands run

    before: ClusterState | None = None
    looks = _looks(look, every_s)
    first = next(looks)
    with Screen() as screen:
        for taken in chain((first,), looks):
            if isinstance(taken, CommandFailed):
                screen.trouble(str(taken))
                continue
            if before is not None:
                for change in changes(before, taken):
                    screen.say(time.strftime("%H:%M:%S"), change)
            screen.draw(taken)
            before = taken
