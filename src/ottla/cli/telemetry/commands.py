"""`ottla telemetry`: which metrics clients are asked for (KIP-714), which clients send some, and what."""

import click

from ottla.admin import NotFound, Subscription, TelemetryClient
from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.terminal import exits, suggest
from ottla.cli.terminal.choices import DURATION
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import (
    Row,
    columns_of,
    json_option,
    note,
    on_terminal,
    print_facts,
    print_json,
    print_rows,
)
from ottla.cli.terminal.times import format_instant
from ottla.ids import uuid_to_text
from ottla.metrics.otlp import MalformedTelemetry, decode_metrics


@click.group(cls=Verbs)
def command() -> None:
    """Ask clients for their metrics, and show what they send."""


@command.command()
@click.argument("name")
@click.option(
    "--metric",
    "metrics",
    metavar="PREFIX",
    multiple=True,
    required=True,
    help="Metrics whose names begin so; `*` for all. Repeatable.",
)
@click.option(
    "--every",
    metavar="DURATION",
    callback=DURATION,
    help="How often clients send them: 100 ms to an hour; by default 5m.",
)
@click.option(
    "--match",
    "matches",
    metavar="NAME=EXPRESSION",
    multiple=True,
    help="Only clients whose client_id, client_software_name, ... matches. Repeatable.",
)
@connection_options
def subscribe(
    connection: Connection, name: str, metrics: tuple[str, ...], every: int | None, matches: tuple[str, ...]
) -> int:
    """Have clients send metrics, under the NAME of a subscription; one that is there already is replaced."""
    with connection.broker_admin() as admin:
        admin.alter_subscription(Subscription(name, metrics, every, matches))
    note(
        f"subscription {name!r} holds; clients notice at their next turn, by default within five minutes,"
        " or after they reconnect if it is the first subscription"
    )
    return exits.OK


@command.command()
@click.argument("name")
@connection_options
def unsubscribe(connection: Connection, name: str) -> int:
    """End a subscription."""
    with connection.broker_admin() as admin:
        try:
            admin.delete_subscription(name)
        except NotFound as absent:
            hint = suggest.did_you_mean(name, [each.name for each in admin.list_subscriptions()])
            raise CommandFailed(f"{absent}{hint}") from None
    note(f"subscription {name!r} has ended")
    return exits.OK


@command.command()
@json_option
@connection_options
def subscriptions(connection: Connection, as_json: bool) -> None:
    """List the subscriptions."""
    with connection.broker_admin() as admin:
        rows: list[Row] = [
            {
                "name": each.name,
                "metrics": ",".join(each.metrics),
                "interval_ms": None if each.interval_ms is None else str(each.interval_ms),
                "match": ",".join(each.match),
            }
            for each in admin.list_subscriptions()
        ]
    columns = columns_of("name metrics~ interval_ms=EVERY_MS# match~")
    print_rows(rows, columns, as_json=as_json, empty="there are no subscriptions; clients are asked for nothing")


@command.command()
@json_option
@connection_options
def clients(connection: Connection, as_json: bool) -> None:
    """List the clients that have sent metrics, the last one first."""
    with connection.broker_admin() as admin:
        rows = [_client_row(client) for client in admin.list_telemetry_clients()]
    columns = columns_of("instance client_id software address sent bytes#")
    empty = "no client has sent metrics; `ottla telemetry subscribe` asks for some"
    print_rows(rows, columns, as_json=as_json, empty=empty)


@command.command()
@click.argument("instance")
@json_option
@connection_options
def show(connection: Connection, instance: str, as_json: bool) -> None:
    """Show the metrics that a client has sent last: INSTANCE is its id, as `clients` lists it."""
    with connection.broker_admin() as admin:
        known = {uuid_to_text(client.instance): client for client in admin.list_telemetry_clients()}
        if instance not in known:
            hint = suggest.did_you_mean(instance, known) or "; `ottla telemetry clients` shows those that have"
            raise CommandFailed(f"no client {instance!r} has sent metrics{hint}")
        newest = next(iter(admin.list_telemetry_clients(known[instance].instance)), None)
    if newest is None:
        raise CommandFailed(f"what {instance!r} had sent is gone: a broker keeps only so much")
    try:
        metrics = decode_metrics(newest.metrics or b"")
    except MalformedTelemetry as malformed:
        raise CommandFailed(f"what {instance!r} has sent cannot be shown: {malformed}") from malformed
    rows: list[Row] = [
        {
            "metric": metric.name,
            "kind": metric.kind,
            "value": metric.value,
            "labels": metric.attributes if as_json else _labels(metric.attributes),
        }
        for metric in metrics
    ]
    if as_json:
        print_json({**_client_row(newest), "metrics": rows})
        return
    if on_terminal():
        print_facts(list(_client_row(newest).items()))
    columns = columns_of("metric kind value# labels~")
    print_rows(rows, columns, empty="the client has sent no metrics")


def _client_row(client: TelemetryClient) -> Row:
    return {
        "instance": uuid_to_text(client.instance),
        "client_id": client.client_id,
        "software": " ".join(filter(None, (client.software_name, client.software_version))),
        "address": f"{client.host}:{client.port}",
        "sent": format_instant(client.pushed_at_ms),
        "bytes": client.size_bytes,
    }


def _labels(attributes: dict[str, str]) -> str:
    return ", ".join(f"{key}={attributes[key]}" for key in sorted(attributes))
