"""`ottla cluster`: what the cluster is made of."""

import click

from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.cluster.demo import demo
from ottla.cli.cluster.elect import elect
from ottla.cli.cluster.features import features
from ottla.cli.cluster.reassign import reassign
from ottla.cli.cluster.start import start
from ottla.cli.cluster.watch import watch
from ottla.cli.terminal.output import Row, columns_of, json_option, on_terminal, print_facts, print_json, print_rows


@click.group(cls=Verbs)
def command() -> None:
    """Look at the cluster and watch it, change features, elect leaders, move partitions, start one on this machine."""


command.add_command(demo)
command.add_command(elect)
command.add_command(features)
command.add_command(reassign)
command.add_command(start)
command.add_command(watch)


@command.command()
@json_option
@connection_options
def info(connection: Connection, as_json: bool) -> None:
    """Show the cluster's id, its brokers, and the health of its partitions."""
    admin = connection.admin()
    metadata = connection.metadata(admin)
    answer = admin.describe_cluster(request_timeout=connection.timeout_s)
    described = connection.wait(answer, "the cluster cannot be described")
    controller = described.controller.id if described.controller is not None else None
    partitions = [partition for topic in metadata.topics.values() for partition in topic.partitions.values()]
    brokers: list[Row] = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "controller": node.id == controller,
            "leads": sum(partition.leader == node.id for partition in partitions),
            "replicas": sum(node.id in partition.replicas for partition in partitions),
        }
        for node in sorted(described.nodes, key=lambda node: int(node.id))
    ]
    facts: dict[str, object] = {
        "cluster_id": described.cluster_id,
        "controller": controller,
        "topics": len(metadata.topics),
        "partitions": len(partitions),
        "without_leader": sum(partition.leader < 0 for partition in partitions),
        "under_replicated": sum(len(partition.isrs) < len(partition.replicas) for partition in partitions),
    }
    if as_json:
        print_json({**facts, "brokers": brokers})
        return
    if on_terminal():
        print_facts(facts.items())
    print_rows(
        brokers,
        columns_of("broker host port rack controller leads# replicas#"),
    )
