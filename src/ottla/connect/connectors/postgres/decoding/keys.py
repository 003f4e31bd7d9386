"""PURE: the key columns of a table's records.

The stream names the columns in the replica identity, as of the change; the catalog names those in the primary
key, as of now. A key that does not identify rows would merge them in a compacted topic or a target, so it is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.connect.api import ConnectError
from ottla.connect.connectors.postgres.decoding.pgoutput import Relation

_DEFAULT: Final = "d"
_FULL: Final = "f"
_INDEX: Final = "i"


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column in the catalog. place: in the primary key, or in the index of the replica identity if there is
    none. generated: the server does not send it."""

    not_null: bool = False
    place: int | None = None
    default: str | None = None
    generated: bool = False
    in_identity: bool = False


def row_key(relation: Relation, facts: Mapping[str, ColumnFacts]) -> list[str]:
    """The columns that identify a row: the primary key, or without one the replica identity."""
    names = [column.name for column in relation.columns]
    identity = {column.name for column in relation.columns if column.in_identity}
    places = {name: facts[name].place for name in names if name in facts}
    key = [name for _, name in sorted((place, name) for name, place in places.items() if place is not None)]
    # by default the stream names the primary key as it was: the catalog's may be a new one since
    outdated = relation.identity == _DEFAULT and identity and identity != set(key)
    if outdated or (not key and relation.identity != _FULL):
        key = [name for name in names if name in identity]
    return key


def record_key(relation: Relation, facts: Mapping[str, ColumnFacts]) -> list[str]:
    """The columns of the key of records: `row_key`, unless old rows lack it because their identity is another index.

    Raises ConnectError if no key is known that identifies rows.
    """
    _check_sent(relation, facts)
    key = row_key(relation, facts)
    identity = [column.name for column in relation.columns if column.in_identity]
    if relation.identity == _INDEX and not set(key) <= set(identity):
        return identity
    return key


def check_named_key(relation: Relation, key: Sequence[str]) -> None:
    """Raise ConnectError if the stream does not have all columns that `message.key.columns` names."""
    names = {column.name for column in relation.columns}
    missing = next((each for each in key if each not in names), None)
    if missing is not None:
        raise ConnectError(
            f"message.key.columns names column {missing} for table {relation.schema}.{relation.table}, and its changes "
            "have no such column (it is generated, or was added, renamed or removed later): name columns that they have"
        )


def _check_sent(relation: Relation, facts: Mapping[str, ColumnFacts]) -> None:
    table = f"{relation.schema}.{relation.table}"
    is_full = relation.identity == _FULL
    advice = (
        f"name columns that identify its rows in message.key.columns={table}:column,column ({table}: with none for "
        "records without a key), or leave the table out by table.exclude.list"
    )
    sent = {column.name for column in relation.columns}
    if is_full and not facts:
        raise ConnectError(
            f"table {table} was dropped before its changes were read, and with REPLICA IDENTITY FULL these do not show "
            f"what its key was: {advice}"
        )
    for name, fact in facts.items():
        in_key = fact.place is not None or (fact.in_identity and not is_full)
        if not in_key or name in sent:
            continue
        if fact.generated:
            raise ConnectError(
                f"table {table} has the generated column {name} in its key, which PostgreSQL does not send: {advice}"
            )
        if is_full:
            raise ConnectError(
                f"table {table} has column {name} in its key, which the changes that are being read do not have (it "
                "was renamed or added later), and with REPLICA IDENTITY FULL these do not show its key: "
                f"{advice}"
            )
