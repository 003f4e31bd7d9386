"""`ottla cluster watch`: brokers, controller, leaders, in-sync replicas and lag, as they change."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final, Self

import click

from ottla.admin import ClientError, Cluster
from ottla.admin.operations.machines import together
from ottla.cli.brokers.client import Connection, connection_options, unknown_topic
from ottla.cli.cluster.state import BrokerState, ClusterState, PartitionState, changes
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import cell, columns_of, note, on_terminal, print_json, print_rows
from ottla.client.partition import Partition

LAG_TIMEOUT_S: Final = 1.0
"""A broker that hangs must not stop the picture."""
PARTITION_COLUMNS: Final = columns_of("topic partition# leader# replicas in_sync behind on_one_machine")


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
    """Watch the cluster until Ctrl-C: live brokers, leaders, in-sync replicas, and the lag of followers.

    On a terminal, a picture that changes in place. When piped, one line with a time for each change; with --once one
    line per partition, with --json the whole state.
    """
    with ClusterLook(connection, topics) as look:
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

    def __init__(self, connection: Connection, topics: tuple[str, ...] = (), *, with_lags: bool = True) -> None:
        """`topics` are those to look at; all, if there are none. `with_lags`: ask brokers where their logs end."""
        self._with_lags = with_lags
        self._admin = connection.broker_admin()
        self._lags = replace(connection, timeout_s=min(LAG_TIMEOUT_S, connection.timeout_s)).broker_admin()
        self._topics = topics
        self._seen: dict[int, BrokerState] = {}
        self._controllers: Mapping[int, str | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()
        self._lags.close()

    def take(self) -> ClusterState:
        """How things are now. Raises `CommandFailed`, `ClientError`."""
        cluster = self._admin.describe_cluster(self._topics or None)
        for name in set(self._topics) - {partition.topic for partition in cluster.partitions}:
            known = {partition.topic for partition in self._admin.describe_cluster().partitions}
            if name not in known:
                raise CommandFailed(unknown_topic(name, known))
        controllers = self._lags.describe_controllers(cluster)
        self._controllers = controllers.hosts or self._controllers  # while none is active, those that were
        for number, broker in self._admin.describe_fenced_brokers().items():
            self._seen[number] = BrokerState(number, *broker.address, broker.rack, is_up=False)
        replicas = {number for state in cluster.partitions.values() for number in state.replicas}
        for number in (replicas | self._seen.keys()) - cluster.brokers.keys():
            seen = self._seen.get(number, BrokerState(number, None, None, None, is_up=False))
            self._seen[number] = replace(seen, is_up=False)
        for number, broker in cluster.brokers.items():
            self._seen[number] = BrokerState(number, *broker.address, broker.rack, is_up=True)
        return ClusterState(
            controllers.active, dict(self._seen), self._partitions(cluster), self._controllers, cluster.cluster_id
        )

    def _partitions(self, cluster: Cluster) -> dict[Partition, PartitionState]:
        held: dict[int, list[Partition]] = {}
        for partition, state in cluster.partitions.items() if self._with_lags else ():
            for replica in state.replicas:
                held.setdefault(replica, []).append(partition)
        ends = self._lags.list_log_ends(cluster, held)
        states: dict[Partition, PartitionState] = {}
        for partition, state in cluster.partitions.items():
            end = None if state.leader is None else ends.get(state.leader, {}).get(partition)
            behind = {
                replica: max(end - ends[replica][partition], 0)  # the follower was asked after its leader, perhaps
                for replica in state.replicas
                if end is not None and replica != state.leader and partition in ends.get(replica, {})
            }
            states[partition] = PartitionState(partition, state.leader, state.replicas, state.in_sync, behind)
        return states


def _show(state: ClusterState, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(state))
    elif on_terminal():
        from ottla.cli.cluster.screen import Screen

        with Screen() as screen:
            screen.draw(state)
    else:
        rows = [
            {
                **row,
                "behind": ",".join(f"{replica}:{records}" for replica, records in _behind(row)),
                "on_one_machine": together(state.on_one_machine.get(partition, ())),
            }
            for partition, row in zip(sorted(state.partitions), state.partition_rows(), strict=True)
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
        "by_machine": state.machine_rows(),
        "brokers": state.broker_rows(),
        "by_partition": state.partition_rows(),
    }


def _looks(look: ClusterLook, every_s: float) -> Iterator[ClusterState | CommandFailed | ClientError]:
    """One after the other. Trouble at the first one is raised, later trouble may pass."""
    yield look.take()
    while True:
        time.sleep(every_s)
        taken: ClusterState | CommandFailed | ClientError
        try:
            taken = look.take()
        except (CommandFailed, ClientError) as failure:
            taken = failure
        yield taken


def _print_states(look: ClusterLook, every_s: float) -> None:
    for taken in _looks(look, every_s):
        if isinstance(taken, CommandFailed | ClientError):
            note(str(taken))
        else:
            click.echo(json.dumps(_as_json(taken)))


def _print_changes(look: ClusterLook, every_s: float) -> None:
    before: ClusterState | None = None
    trouble = ""
    for taken in _looks(look, every_s):
        if isinstance(taken, CommandFailed | ClientError):
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
    from ottla.cli.cluster.screen import Screen  # its library takes longer to load than the other commands run

    before: ClusterState | None = None
    looks = _looks(look, every_s)
    first = next(looks)
    with Screen() as screen:
        for taken in chain((first,), looks):
            if isinstance(taken, CommandFailed | ClientError):
                screen.trouble(str(taken))
                continue
            if before is not None:
                for change in changes(before, taken):
                    screen.say(time.strftime("%H:%M:%S"), change)
            screen.draw(taken)
            before = taken
