"""`ottla txn`: list, describe and abort transactions, and find hanging ones, which no coordinator will end."""

import time
from typing import Any, Final

import click

from ottla.admin import Admin, NotFound, Transaction
from ottla.admin.operations.transactions import STATES
from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options, known_topics, partitions_of
from ottla.cli.terminal import suggest
from ottla.cli.terminal.choices import DURATION, one_of
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import (
    columns_of,
    confirm,
    json_option,
    note,
    on_terminal,
    plural,
    print_described,
    print_json,
    print_rows,
    yes_option,
)
from ottla.cli.terminal.times import format_instant
from ottla.client.partition import Partition
from ottla.pipeline.task_names import TaskNames

LONGEST_TIMEOUT: Final = "15m"
"""Kafka's default of `transaction.max.timeout.ms`."""


@click.group(cls=Verbs)
def command() -> None:
    """List, describe and abort transactions."""


# --- list ------------------------------------------------------------------------------------------------------


@command.command(name="list")
@click.option("--state", "states", metavar="STATE", multiple=True, help="Only in this state: Ongoing, Empty, ...")
@click.option(
    "--longer-than",
    metavar="DURATION",
    callback=DURATION,
    help="Only transactions that have been open for longer (90s, 1h).",
)
@click.option("--all", "show_all", is_flag=True, help="Also the ids of Spark's tasks that have no open transaction.")
@json_option
@connection_options
def list_transactions(
    connection: Connection, states: tuple[str, ...], longer_than: int | None, show_all: bool, as_json: bool
) -> None:
    """List transactional ids and what their producers are doing."""
    with connection.broker_admin() as admin:
        known = admin.list_transactions(
            states=[one_of(state, STATES, "state") for state in states],
            longer_than_ms=-1 if longer_than is None else longer_than,
        )
    tasks = TaskNames()
    rows = [
        {**_facts(each), "partitions": len(each.partitions), "task": tasks.task_of(each.transactional_id)}
        for each in known
    ]
    hides = not (show_all or states or as_json)
    shown = [row for row, each in zip(rows, known, strict=True) if each.is_open or row["task"] is None or not hides]
    if len(shown) < len(rows):
        note(f"{plural(len(rows) - len(shown), 'id')} of Spark's tasks not shown; --all shows them")
    has_tasks = any(row["task"] for row in shown)
    columns = columns_of(
        "transactional_id~ producer_id=PRODUCER epoch state since partitions#", "task" if has_tasks else ""
    )
    print_rows(shown, columns, as_json=as_json, empty="there are no such transactions")


def _facts(known: Transaction) -> dict[str, Any]:
    return {
        "transactional_id": known.transactional_id,
        "producer_id": known.producer_id,
        "epoch": known.epoch,
        "state": known.state,
        "since": format_instant(known.started_ms) if known.is_open else None,
        "timeout_ms": known.timeout_ms,
        "coordinator": known.coordinator,
    }


# --- describe --------------------------------------------------------------------------------------------------


@command.command()
@click.argument("transactional_ids", metavar="TRANSACTIONAL_ID...", nargs=-1, required=True)
@json_option
@connection_options
def describe(connection: Connection, transactional_ids: tuple[str, ...], as_json: bool) -> None:
    """Show a transaction: whose it is, since when, and which partitions it holds back."""
    described: list[dict[str, Any]] = []
    with connection.broker_admin() as admin:
        for transactional_id in transactional_ids:
            known = _known(admin, transactional_id)
            described.append({**_facts(known), "partitions": _held_back(admin, known)})
    if as_json:
        print_json(described)
        return
    for entry in described:
        _print(entry)


def _known(admin: Admin, transactional_id: str) -> Transaction:
    try:
        return admin.describe_transaction(transactional_id)
    except NotFound as absent:
        others = [each.transactional_id for each in admin.list_transactions()]
        hint = suggest.did_you_mean(transactional_id, others)
        raise CommandFailed(f"{absent}{hint or '; `ottla txn list` shows those that do'}") from None


def _held_back(admin: Admin, known: Transaction) -> list[dict[str, Any]]:
    """What readers of committed records do not see in each partition, and whether that is for this transaction."""
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "first_offset": each.first_offset,
            "last_stable_offset": each.last_stable_offset,
            "end_offset": each.end_offset,
            "held_back": each.records,
        }
        for each in admin.list_held_back(known)
    ]


def _print(entry: dict[str, Any]) -> None:
    shown = ((name, value) for name, value in entry.items() if name != "partitions")
    facts = [(name, str(value) if name == "producer_id" else value) for name, value in shown]
    columns = [*columns_of("topic partition# first_offset# last_stable_offset=LAST_STABLE# end_offset# held_back#")]
    empty = "it has no partitions: nothing is held back"
    print_described("transactional_id", entry, facts, entry["partitions"], columns, empty=empty)


# --- find-hanging ----------------------------------------------------------------------------------------------


@command.command(name="find-hanging")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Look in this topic only. May be repeated.")
@click.option(
    "--silent-for",
    metavar="DURATION",
    callback=DURATION,
    default=LONGEST_TIMEOUT,
    show_default=True,
    help="Nothing was written for so long; not less than the brokers' transaction.max.timeout.ms.",
)
@json_option
@connection_options
def find_hanging(connection: Connection, topics: tuple[str, ...], silent_for: int, as_json: bool) -> None:
    """Find open transactions that no coordinator will ever end, and that hold readers back."""
    silent_since_ms = time.time_ns() // 1_000_000 - silent_for
    metadata = connection.metadata(connection.admin())
    wanted = known_topics(metadata, topics) if topics else list(metadata.topics.values())
    with connection.broker_admin() as admin:
        hanging = admin.find_hanging_transactions(partitions_of(wanted), silent_since_ms)
    columns = columns_of("topic partition# first_offset# producer_id=PRODUCER epoch last_write transactional_id~")
    rows = [
        {
            "topic": each.transaction.partition.topic,
            "partition": each.transaction.partition.partition,
            "first_offset": each.transaction.first_offset,
            "producer_id": each.transaction.producer_id,
            "epoch": each.transaction.epoch,
            "last_write": format_instant(each.transaction.last_write_ms),
            "transactional_id": each.transactional_id,
        }
        for each in hanging
    ]
    print_rows(rows, columns, as_json=as_json, empty="no transaction is hanging")
    if rows and on_terminal() and not as_json:
        note("`ottla txn abort --partition TOPIC-PARTITION` ends one")


# --- abort -----------------------------------------------------------------------------------------------------


@command.command()
@click.argument("transactional_id", metavar="[TRANSACTIONAL_ID]", required=False)
@click.option("--partition", metavar="TOPIC-PARTITION", help="End a hanging transaction in this partition instead.")
@click.option("--first-offset", metavar="OFFSET", type=int, help="Which one, if the partition has several.")
@yes_option
@connection_options
def abort(
    connection: Connection, transactional_id: str | None, partition: str | None, first_offset: int | None, yes: bool
) -> None:
    """Abort a transaction.

    By its transactional id the coordinator aborts it in all its partitions, and its producer is fenced. A hanging one,
    of which no coordinator knows, is aborted in one partition: see find-hanging.
    """
    if (transactional_id is None) == (partition is None):
        raise click.UsageError("name either a transactional id or a --partition")
    if first_offset is not None and partition is None:
        raise click.UsageError("--first-offset goes with --partition")
    with connection.broker_admin() as admin:
        if transactional_id is not None:
            _abort_known(admin, transactional_id, yes=yes)
        else:
            _abort_hanging(admin, _partition(str(partition)), first_offset, yes=yes)


def _abort_known(admin: Admin, transactional_id: str, *, yes: bool) -> None:
    known = _known(admin, transactional_id)
    if not known.is_open:
        raise CommandFailed(f"transactional id {transactional_id!r} has no open transaction: it is in {known.state}")
    confirm(
        f"abort the transaction of {transactional_id!r}, open since {format_instant(known.started_ms)} in "
        f"{plural(len(known.partitions), 'partition')}, and fence its producer?",
        yes=yes,
    )
    admin.abort_transaction(transactional_id)
    note(f"aborted the transaction of {transactional_id!r}; its producer is fenced")


def _abort_hanging(admin: Admin, partition: Partition, first_offset: int | None, *, yes: bool) -> None:
    if partition not in admin.describe_cluster([partition.topic]).partitions:
        raise CommandFailed(f"partition {partition} does not exist")
    found = [
        each
        for each in admin.list_open_transactions([partition])
        if first_offset is None or each.first_offset == first_offset
    ]
    if not found:
        where = "" if first_offset is None else f" that begins at offset {first_offset}"
        raise CommandFailed(f"partition {partition} has no open transaction{where}")
    if len(found) > 1:
        offsets = ", ".join(str(each.first_offset) for each in found)
        raise CommandFailed(
            f"partition {partition} has several open transactions; add --first-offset, one of {offsets}"
        )
    (transaction,) = found
    owner = admin.find_owner(transaction)
    if owner is not None:
        raise CommandFailed(
            f"the transaction is not hanging, its coordinator knows it: `ottla txn abort {owner.transactional_id}` "
            "aborts it"
        )
    confirm(
        f"abort the transaction of producer {transaction.producer_id} that begins at offset "
        f"{transaction.first_offset} of {partition}?",
        yes=yes,
    )
    admin.abort_hanging_transaction(transaction)
    note(f"aborted the transaction of producer {transaction.producer_id} in {partition}")


# --- arguments -------------------------------------------------------------------------------------------------


def _partition(text: str) -> Partition:
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not number.isdigit():
        raise click.UsageError(f"{text!r} is not a partition such as orders-0")
    return Partition(topic, int(number))
