"""`ottla txn`: list, describe and abort transactions, and find those that nobody will end."""

import time
from typing import Any, Final

import click

from ottla.cli import suggest
from ottla.cli.app import Verbs
from ottla.cli.client import Connection, connection_options, known_topics, offset_ranges, partitions_of
from ottla.cli.exits import CommandFailed
from ottla.cli.output import (
    Column,
    confirm,
    json_option,
    note,
    on_terminal,
    plural,
    print_facts,
    print_json,
    print_rows,
    yes_option,
)
from ottla.cli.partition import Partition
from ottla.cli.requests import TRANSACTION, Requests, refusal
from ottla.cli.times import format_instant, parse_duration_ms
from ottla.cli.transactions import (
    STATES,
    Known,
    Open,
    hanging_transactions,
    known_transaction,
    known_transactions,
    marker_failure,
    open_transactions,
)
from ottla.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

LONGEST_TIMEOUT: Final = "15m"
"""Kafka's default of `transaction.max.timeout.ms`."""
FENCING_TIMEOUT_MS: Final = 1_000
"""No broker finds that too long; that of the transaction may be by now, if the limit was lowered since."""
PAUSE_S: Final = 0.1
_OFFSETS: Final = ("first_offset", "last_stable_offset", "end_offset", "held_back")
COMING_AND_GOING: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@click.group(cls=Verbs)
def command() -> None:
    """List, describe and abort transactions."""


# --- list ------------------------------------------------------------------------------------------------------


@command.command(name="list")
@click.option("--state", "states", metavar="STATE", multiple=True, help="Only in this state: Ongoing, Empty, ...")
@click.option("--longer-than", metavar="DURATION", help="Only transactions that have been open for longer (90s, 1h).")
@json_option
@connection_options
def list_transactions(connection: Connection, states: tuple[str, ...], longer_than: str | None, as_json: bool) -> None:
    """List transactional ids and what their producers are doing."""
    with Requests(connection) as requests:
        known = known_transactions(
            requests,
            states=[_state(state) for state in states],
            longer_than_ms=-1 if longer_than is None else _duration_ms(longer_than),
        )
    columns = (
        Column("transactional_id", "TRANSACTIONAL ID", long=True),
        Column("producer_id", "PRODUCER"),
        Column("epoch", "EPOCH"),
        Column("state", "STATE"),
        Column("since", "SINCE"),
        Column("partitions", "PARTITIONS", figures=True),
    )
    rows = [{**_facts(each), "partitions": len(each.partitions)} for each in sorted(known)]
    print_rows(rows, columns, as_json=as_json, empty="there are no such transactions")


def _facts(known: Known) -> dict[str, Any]:
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
    with Requests(connection) as requests:
        for transactional_id in transactional_ids:
            known = _known(requests, transactional_id)
            described.append({**_facts(known), "partitions": _held_back(connection, requests, known)})
    if as_json:
        print_json(described)
        return
    for entry in described:
        _print(entry)


def _known(requests: Requests, transactional_id: str) -> Known:
    known = known_transaction(requests, transactional_id)
    if known is None:
        others = [each.transactional_id for each in known_transactions(requests)]
        hint = suggest.did_you_mean(transactional_id, others)
        raise CommandFailed(
            f"transactional id {transactional_id!r} does not exist{hint or '; `ottla txn list` shows those that do'}"
        )
    return known


def _held_back(connection: Connection, requests: Requests, known: Known) -> list[dict[str, Any]]:
    """What readers of committed records do not see in each partition, and whether that is for this transaction."""
    present = sorted(requests.leaders(known.partitions))  # a topic may have been deleted under the transaction
    firsts = {
        each.partition: each.first_offset
        for each in open_transactions(requests, present)
        if each.producer_id == known.producer_id
    }
    admin = connection.admin()
    ends = offset_ranges(connection, admin, present)
    stable = offset_ranges(connection, admin, present, read_committed=True)
    rows: list[dict[str, Any]] = []
    for partition in sorted(known.partitions):
        if partition not in ends:
            rows.append({"topic": partition.topic, "partition": partition.partition, **dict.fromkeys(_OFFSETS)})
            continue
        first, end, last_stable = firsts.get(partition), ends[partition][1], stable[partition][1]
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "first_offset": first,
                "last_stable_offset": last_stable,
                "end_offset": end,
                "held_back": end - last_stable if first is not None and first == last_stable else 0,
            }
        )
    return rows


def _print(entry: dict[str, Any]) -> None:
    if on_terminal():
        facts = {name: value for name, value in entry.items() if name != "partitions"}
        print_facts((name, str(value) if name == "producer_id" else value) for name, value in facts.items())
    columns = [
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", figures=True),
        Column("first_offset", "FIRST OFFSET", figures=True),
        Column("last_stable_offset", "LAST STABLE", figures=True),
        Column("end_offset", "END OFFSET", figures=True),
        Column("held_back", "HELD BACK", figures=True),
    ]
    if not on_terminal():
        columns.insert(0, Column("transactional_id", "TRANSACTIONAL ID"))
    rows = [{"transactional_id": entry["transactional_id"], **row} for row in entry["partitions"]]
    print_rows(rows, columns, empty="it has no partitions: nothing is held back")


# --- find-hanging ----------------------------------------------------------------------------------------------


@command.command(name="find-hanging")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Look in this topic only. May be repeated.")
@click.option(
    "--silent-for",
    metavar="DURATION",
    default=LONGEST_TIMEOUT,
    show_default=True,
    help="Nothing was written for so long; not less than the brokers' transaction.max.timeout.ms.",
)
@json_option
@connection_options
def find_hanging(connection: Connection, topics: tuple[str, ...], silent_for: str, as_json: bool) -> None:
    """Find open transactions that no coordinator will ever end, and that hold readers back."""
    silent_since_ms = time.time_ns() // 1_000_000 - _duration_ms(silent_for)
    metadata = connection.metadata(connection.admin())
    wanted = known_topics(metadata, topics) if topics else list(metadata.topics.values())
    with Requests(connection) as requests:
        hanging = hanging_transactions(requests, partitions_of(wanted), silent_since_ms)
    columns = (
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", figures=True),
        Column("first_offset", "FIRST OFFSET", figures=True),
        Column("producer_id", "PRODUCER"),
        Column("epoch", "EPOCH"),
        Column("last_write", "LAST WRITE"),
        Column("transactional_id", "TRANSACTIONAL ID", long=True),
    )
    rows = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "first_offset": each.first_offset,
            "producer_id": each.producer_id,
            "epoch": each.epoch,
            "last_write": format_instant(each.last_write_ms),
            "transactional_id": transactional_id,
        }
        for each, transactional_id in hanging
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
    with Requests(connection) as requests:
        if transactional_id is not None:
            _abort_known(connection, requests, transactional_id, yes=yes)
        else:
            _abort_hanging(requests, _partition(str(partition)), first_offset, yes=yes)


def _abort_known(connection: Connection, requests: Requests, transactional_id: str, *, yes: bool) -> None:
    known = _known(requests, transactional_id)
    if not known.is_open:
        raise CommandFailed(f"transactional id {transactional_id!r} has no open transaction: it is in {known.state}")
    confirm(
        f"abort the transaction of {transactional_id!r}, open since {format_instant(known.started_ms)} in "
        f"{plural(len(known.partitions), 'partition')}, and fence its producer?",
        yes=yes,
    )
    until = time.monotonic() + connection.timeout_s
    while True:
        fencing = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=FENCING_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = requests.ask(fencing, to=requests.coordinator(transactional_id, TRANSACTION))
        if answer.error_code not in COMING_AND_GOING or time.monotonic() > until:
            break
        time.sleep(PAUSE_S)
    if answer.error_code:
        raise CommandFailed(f"the transaction of {transactional_id!r} cannot be aborted: {refusal(answer.error_code)}")
    note(f"aborted the transaction of {transactional_id!r}; its producer is fenced")


def _abort_hanging(requests: Requests, partition: Partition, first_offset: int | None, *, yes: bool) -> None:
    leader = requests.leaders([partition]).get(partition)
    if leader is None:
        raise CommandFailed(f"partition {partition} does not exist")
    found = [
        each
        for each in open_transactions(requests, [partition])
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
    _refuse_if_known(requests, transaction)
    confirm(
        f"abort the transaction of producer {transaction.producer_id} that begins at offset "
        f"{transaction.first_offset} of {partition}?",
        yes=yes,
    )
    marker = WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )
    answer = requests.ask(WriteTxnMarkersRequest(markers=[marker]), to=leader)
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code:
        raise CommandFailed(f"the transaction in {partition} cannot be aborted: {marker_failure(code)}")
    note(f"aborted the transaction of producer {transaction.producer_id} in {partition}")


def _refuse_if_known(requests: Requests, transaction: Open) -> None:
    """A transaction whose coordinator would commit it later must not be aborted behind its back."""
    for known in known_transactions(requests, producer_ids=[transaction.producer_id]):
        if known.is_open and transaction.partition in known.partitions:
            raise CommandFailed(
                f"the transaction is not hanging, its coordinator knows it: "
                f"`ottla txn abort {known.transactional_id}` aborts it"
            )


# --- arguments -------------------------------------------------------------------------------------------------


def _state(given: str) -> str:
    for state in STATES:
        if state.lower() == given.lower():
            return state
    raise click.UsageError(f"no such state: {given!r}{suggest.did_you_mean_or_list(given, STATES)}")


def _duration_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None


def _partition(text: str) -> Partition:
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not number.isdigit():
        raise click.UsageError(f"{text!r} is not a partition such as orders-0")
    return Partition(topic, int(number))
