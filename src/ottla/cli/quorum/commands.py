"""`ottla quorum`: the quorum of controllers of a cluster with KRaft, such as genuine Kafka 4's."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

import click
from confluent_kafka.admin import ConfigResource

from ottla.admin import Address, Admin, Quorum, QuorumListener, QuorumReplica, UnsupportedRequest
from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.brokers.settings import describe_settings
from ottla.cli.quorum.recover import recover
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import (
    Row,
    columns_of,
    confirm,
    json_option,
    note,
    on_terminal,
    print_facts,
    print_json,
    print_rows,
    yes_option,
)
from ottla.cli.terminal.times import format_instant
from ottla.client.addresses import parse_addresses
from ottla.ids import uuid_from_text, uuid_to_text

REPLICA_COLUMNS: Final = columns_of(
    "node# role lag# log_end_offset=END# last_fetch caught_up directory_id=DIRECTORY listeners~"
)


@click.group(cls=Verbs)
def command() -> None:
    """Look at the quorum of controllers of a cluster with KRaft (Kafka 4), add and remove voters.

    --bootstrap names brokers or, so that the quorum shows while no broker runs, all of its controllers.
    """


command.add_command(recover)


@command.command()
@json_option
@connection_options
def status(connection: Connection, as_json: bool) -> None:
    """Show leader, epoch and high watermark of the quorum, its voters, and the observers, brokers among them.

    The lag is in records of metadata that a node lacks. CAUGHT_UP is when the node last had all of them. A remark is
    there while the cluster moves from ZooKeeper: what the move waits for, or what is left to do.
    """
    with connection.broker_admin() as admin:
        quorum = _described(connection, admin)
    facts: dict[str, object] = {
        "leader": None if quorum.leader < 0 else quorum.leader,
        "epoch": quorum.epoch,
        "high_watermark": quorum.high_watermark,
        "max_voter_lag": max((voter.lag for voter in quorum.voters), default=0),
    }
    if quorum.remark:
        facts["remark"] = quorum.remark
    rows = [
        _row(replica, "leader" if replica.node_id == quorum.leader and role == "voter" else role)
        for role, replicas in (("voter", quorum.voters), ("observer", quorum.observers))
        for replica in replicas
    ]
    if as_json:
        print_json({**facts, "replicas": rows})
        return
    if on_terminal():
        print_facts(facts.items())
    elif quorum.remark:
        note(f"this cluster {quorum.remark}")
    print_rows(rows, REPLICA_COLUMNS)


@command.command()
@click.argument("node", type=click.IntRange(0))
@click.option(
    "--listener",
    "listeners",
    metavar="NAME://HOST:PORT",
    multiple=True,
    required=True,
    help="Where the other controllers reach it, as in its advertised.listeners; repeatable.",
)
@click.option("--directory-id", metavar="ID", help="Of its metadata log, if the quorum does not show it yet.")
@connection_options
def add(connection: Connection, node: int, listeners: tuple[str, ...], directory_id: str | None) -> None:
    """Make controller NODE, which runs and follows the metadata log, a voter (KIP-853)."""
    reachable = [_listener(text) for text in listeners]
    with connection.broker_admin() as admin:
        quorum = _described(connection, admin)
        if any(voter.node_id == node for voter in quorum.voters):
            raise CommandFailed(f"controller {node} is a voter already")
        directory = _directory(node, directory_id, quorum.observers, "observer")
        admin.add_voter(node, directory, reachable, _addresses(connection))
    note(f"controller {node} is a voter now")


@command.command()
@click.argument("node", type=click.IntRange(0))
@click.option("--directory-id", metavar="ID", help="Of its metadata log, if the voters name the node twice.")
@yes_option
@connection_options
def remove(connection: Connection, node: int, directory_id: str | None, yes: bool) -> None:
    """Take the vote of controller NODE away (KIP-853). It follows the metadata log until it is stopped."""
    with connection.broker_admin() as admin:
        quorum = _described(connection, admin)
        directory = _directory(node, directory_id, quorum.voters, "voter")
        left = len(quorum.voters) - 1
        confirm(f"Remove controller {node} from the quorum? {left} of {left + 1} voters are left.", yes=yes)
        admin.remove_voter(node, directory, _addresses(connection))
    note(f"controller {node} no longer votes; it follows the metadata log until it is stopped")


def _described(connection: Connection, admin: Admin) -> Quorum:
    """The quorum. Raises CommandFailed for a cluster without one, ClientError."""
    try:
        return admin.describe_quorum(_addresses(connection))
    except UnsupportedRequest:
        raise CommandFailed(_instead(connection)) from None


def _addresses(connection: Connection) -> list[Address]:
    """Where the command was pointed: brokers, or controllers, one of which may lead."""
    return parse_addresses(str(connection.properties.get("bootstrap.servers", connection.bootstrap)))


def _instead(connection: Connection) -> str:
    """The sentence about a cluster that has no quorum."""
    client = connection.admin()
    brokers = sorted(connection.metadata(client).brokers)
    try:
        settings = describe_settings(connection, client, ConfigResource.Type.BROKER, str(brokers[0]))
        zookeeper = settings["zookeeper.connect"].value if "zookeeper.connect" in settings else None
    except CommandFailed:  # this user may not see settings
        where = "its metadata is in ZooKeeper, or with its only broker"
    else:
        where = f"broker {brokers[0]} keeps its metadata itself, in its log directory"
        if zookeeper:
            where = f"its metadata is in ZooKeeper at {zookeeper}"
    return f"this cluster has no quorum of controllers: {where}; `ottla cluster info` names the controller"


def _row(replica: QuorumReplica, role: str) -> Row:
    return {
        "node": replica.node_id,
        "role": role,
        "lag": replica.lag,
        "log_end_offset": replica.log_end_offset,
        "last_fetch": _instant(replica.last_fetch_ms),
        "caught_up": _instant(replica.caught_up_ms),
        "directory_id": None if replica.directory_id is None else uuid_to_text(replica.directory_id),
        "listeners": [str(listener) for listener in replica.listeners],
    }


def _instant(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None else format_instant(timestamp_ms)


def _listener(text: str) -> QuorumListener:
    name, separator, place = text.partition("://")
    host, _, port = place.rpartition(":")
    if not (name and separator and host and port.isdecimal() and 0 < int(port) < 65536):
        raise click.UsageError(f"a listener is given as NAME://HOST:PORT, such as CONTROLLER://c3:9093, not {text!r}")
    return QuorumListener(name, Address(host.strip("[]"), int(port)))


def _directory(node: int, given: str | None, replicas: Iterable[QuorumReplica], role: str) -> UUID:
    """The id of the directory that is meant: the one that is given, else the node's only one. Raises CommandFailed."""
    if given is not None:
        return _parsed(given)
    found = {replica.directory_id for replica in replicas if replica.node_id == node}
    if not found:
        nodes = ", ".join(str(replica.node_id) for replica in replicas) or "none"
        raise CommandFailed(f"node {node} is no {role} of the quorum; there are: {nodes}")
    known = sorted(uuid_to_text(each) for each in found if each is not None)
    if len(known) != 1:
        there = f": one of {', '.join(known)}" if known else ", which is in its meta.properties"
        raise CommandFailed(f"name the directory of node {node} with --directory-id{there}")
    return _parsed(known[0])


def _parsed(text: str) -> UUID:
    try:
        return uuid_from_text(text)
    except ValueError:
        raise click.UsageError(
            f"a directory id is 22 letters and digits, as in meta.properties, not {text!r}"
        ) from None
