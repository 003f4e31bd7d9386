"""`ottla cluster info`: what the cluster is made of."""

from itertools import islice
from typing import Final

import click

from ottla.admin.operations.machines import is_shared, together
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.cluster.state import NAMED_AT_ONCE
from ottla.cli.cluster.watch import ClusterLook
from ottla.cli.terminal.output import columns_of, json_option, note, on_terminal, print_facts, print_json, print_rows

SHOWN: Final = ("partitions", "without_leader", "under_replicated", "machines", "on_one_machine")
BROKER_COLUMNS: Final = columns_of("broker host port rack controller leads# replicas# state")
MACHINE_COLUMNS: Final = columns_of("machine state rack brokers down controllers active_controller leads#")


@click.command()
@json_option
@connection_options
def info(connection: Connection, as_json: bool) -> None:
    """Show the cluster's id, its machines and brokers, and the health of its partitions."""
    with ClusterLook(connection, with_lags=False) as look:
        state = look.take()
    known = state.facts()
    facts: dict[str, object] = {
        "cluster_id": state.cluster_id,
        "controller": state.controller,
        "topics": len({partition.topic for partition in state.partitions}),
        **{name: known[name] for name in SHOWN},
    }
    if as_json:
        print_json({**facts, "by_machine": state.machine_rows(), "brokers": state.broker_rows()})
        return
    if on_terminal():
        print_facts(facts.items())
        for partition, shared in islice(state.on_one_machine.items(), NAMED_AT_ONCE):
            note(f"{partition} has several replicas on one machine: {together(shared)}")
        if is_shared(state.machines):
            print_rows(state.machine_rows(), MACHINE_COLUMNS)
    print_rows(state.broker_rows(), BROKER_COLUMNS)
