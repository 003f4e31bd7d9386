"""PURE: the records of a snapshot in batches, with Debezium's marks: which is the first and which the last, of a table
and of all.
"""

import difflib
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.api import BadRecord, ConfigError, Position, SourceContext, SourceRecord
from ottla.connect.connectors.capture.changes import Rules
from ottla.connect.connectors.capture.envelope import READ, SourceBlock, TableEvents
from ottla.connect.schema import Shared

_REPORT_EVERY: Final = 10_000


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table, its rows as of the moment of the snapshot, and about how many these are.

    block: the source of its rows, but for the table and the mark.
    """

    name: str
    events: TableEvents
    block: SourceBlock
    rows: Iterable[Sequence[Any]]
    rows_about: int


class SnapshotRows:
    """Makes records of op r. position: that of all but the last: the snapshot has to start again."""

    def __init__(self, context: SourceContext, rules: Rules, most: int, position: Position) -> None:
        self._context = context
        self._rules = rules
        self._most = most
        self._position = position

    def batches(self, tables: Iterable[SnapshotTable]) -> Generator[list[SourceRecord], None, SourceRecord | None]:
        """All records but the last one, which is returned with its mark: it gets the position of the changes."""
        last = yield from without_last(
            batch for number, table in enumerate(tables) for batch in self._table(table, first=number == 0)
        )
        if last is not None:
            mark(last, "last")
        return last

    def _table(self, table: SnapshotTable, *, first: bool) -> Iterator[list[SourceRecord]]:
        what = f"snapshot of {table.name}"
        done = yield from table_batches(self._records(table, what), self._most, first=first)
        self._context.progress(what, done, done)

    def _records(self, table: SnapshotTable, what: str) -> Iterator[SourceRecord]:
        """what: the name for progress reports."""
        block = Shared(table.block, snapshot="true")
        self._context.progress(what, 0, table.rows_about)
        for done, values in enumerate(table.rows, 1):
            try:
                record = table.events.created(values, block, self._rules.now_ns(), READ)
            except BadRecord as error:
                self._context.reject(error)
            else:
                record.position = self._position
                yield record
            if done % _REPORT_EVERY == 0:
                self._context.progress(what, done, max(done, table.rows_about))


def mark(record: SourceRecord, which: str) -> None:
    """Say which of the snapshot's records this is; the block is shared until then."""
    record.value["source"] = {**record.value["source"], "snapshot": which}


def table_batches(
    records: Iterable[SourceRecord], most: int, *, first: bool
) -> Generator[list[SourceRecord], None, int]:
    """Batches of at most so many of a table's records; returns how many these are. `first`: no table was before it."""
    done = 0
    batch: list[SourceRecord] = []
    for record in records:
        done += 1
        if done == 1:
            mark(record, "first" if first else "first_in_data_collection")
        batch.append(record)
        if len(batch) > most:
            yield batch[:-1]
            batch = batch[-1:]
    if batch:
        if not first or done > 1:
            mark(batch[-1], "last_in_data_collection")
        yield batch
    return done


def without_last(batches: Iterable[list[SourceRecord]]) -> Generator[list[SourceRecord], None, SourceRecord | None]:
    """All but the last record, which is returned: it gets a mark and a position of its own. None: there was none."""
    last: SourceRecord | None = None
    for batch in batches:
        if last is not None:
            batch.insert(0, last)
        last = batch.pop()
        if batch:
            yield batch
    return last


def nothing_fits(include: Sequence[str], names: Iterable[str], where: str, form: str) -> ConfigError:
    """The error if `table.include.list` fits none of these tables of `where`. form: of their names."""
    near = difflib.get_close_matches(include[0].replace("\\", ""), list(names), 1)
    return ConfigError(
        f"table.include.list fits no table of {where}"
        + (f": is it {near[0]}?" if near else f", or none that exists yet: names are {form}"),
        "table.include.list",
    )
