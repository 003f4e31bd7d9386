"""The sink: records into tables, each once."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from ottla.connect.api import (
    BadRecord,
    ConnectError,
    Context,
    Retriable,
    Schema,
    Sink,
    SinkContext,
    SinkRecord,
    TopicPartition,
)
from ottla.connect.connectors.relational import statements
from ottla.connect.connectors.relational.copying import Copying
from ottla.connect.connectors.relational.database import (
    connected,
    describe,
    engine,
    explained,
    is_of_a_key_twice,
    is_of_rows,
)
from ottla.connect.connectors.relational.local_files import local_paths
from ottla.connect.connectors.relational.mapping.rows import Rows, unread
from ottla.connect.connectors.relational.offsets import Offsets
from ottla.connect.connectors.relational.settings import SinkSettings
from ottla.connect.connectors.relational.steps import Step
from ottla.connect.connectors.relational.tables import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

T = TypeVar("T")

_MOST_FAILURES: Final = 20
"""Failures of different kinds, one after another, before a sink gives up making or widening tables."""


class RelationalSink(Sink[SinkSettings]):
    """Rows of tables of any database that SQLAlchemy reaches, from records that are structs or objects.

    Exactly once: offsets are kept in a table of the target (`offset.table`), in the transactions of the rows. Change
    events in Debezium's envelope become the rows that they speak of.
    """

    aliases: ClassVar[tuple[str, ...]] = (
        "io.confluent.connect.jdbc.JdbcSinkConnector",
        "io.aiven.connect.jdbc.JdbcSinkConnector",
    )
    most_records: ClassVar[int] = 10_000

    def __init__(self, settings: SinkSettings, context: SinkContext) -> None:
        super().__init__(settings, context)
        self._engine: Engine | None = None
        self._rows = Rows(settings)
        self._tables = Tables(settings)
        table = settings.offset_table
        self._offsets = Offsets(table, context.connector, lambda topic: self.context.identity(topic)) if table else None
        self._rejected: set[tuple[TopicPartition, int]] = set()
        """Rejected records of the batch that is being written."""

    @classmethod
    def local_paths(cls, settings: SinkSettings) -> Mapping[str, Sequence[str]]:
        """The database, if it is a file, and files that parameters of its URL name."""
        return local_paths(settings)

    @classmethod
    def check(cls, settings: SinkSettings, context: Context) -> None:
        """The database, its user and password."""
        with connected(settings):
            pass

    def unread(self, schema: Schema) -> Collection[str]:
        return unread(schema)

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        if self._engine is None:
            self._engine = engine(self.settings)

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        if self._offsets is None:
            return {}
        offsets = self._offsets
        with explained(f"looking at table {self.settings.offset_table}"):
            return self._making(lambda connection: offsets.prepare(connection, partitions))

    def alter_offsets(self, offsets: Mapping[TopicPartition, int | None] | None) -> None:
        if self._offsets is not None:
            with explained(f"changing table {self.settings.offset_table}"), self._transaction() as connection:
                self._offsets.alter(connection, offsets)

    def write(self, batch: Sequence[SinkRecord]) -> None:
        remaining = iter(batch)
        # without offsets, what an earlier transaction has written would be written again if a later one fails
        most = self.settings.batch_size if self._offsets is not None else len(batch)
        while some := list(islice(remaining, most)):
            self._write(some)
        self._rejected.clear()

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def _write(self, batch: list[SinkRecord]) -> None:
        from sqlalchemy.exc import StatementError

        try:
            with explained(f"writing to {describe(self.settings)}"):
                work = self._work(batch)
                loose = len(self._tables.loose)
                self._fit(work)
                if len(self._tables.loose) > loose:  # as is seen when a table is looked at
                    work = self._work(batch)
                ends = {record.origin: record.offset + 1 for record in batch}
                try:
                    with self._transaction() as connection:
                        left = self._left(connection, batch, ends)
                        self._put(connection, work if len(left) == len(batch) else self._work(left))
                except (StatementError, UnicodeError) as error:
                    if self._is_news_of_keys(error, work):
                        return self._write(batch)
                    if not is_of_rows(error):
                        raise
                    raise self._bad(batch, error) from error
                if self._offsets is not None:
                    self._offsets.moved(ends)
        except ConnectError:
            self._tables.forget()
            raise

    def _work(self, batch: Sequence[SinkRecord]) -> list[tuple[str, Step]]:
        """The steps to do, by table."""
        return self._rows.work(batch, self._reject, self._tables.loose)

    def _fit(self, work: Sequence[tuple[str, Step]]) -> None:
        """Make and widen tables before the transaction of the rows: MySQL ends a transaction when a table changes."""
        if all(self._tables.fits(name, step) for name, step in work):
            return

        def fit(connection: "Connection") -> None:
            for name, step in work:
                self._tables.fitting(connection, name, step)

        told = len(self._tables.merging)
        self._making(fit)
        if len(self._tables.merging) > told:
            self.context.warn("; ".join(self._tables.merging.values()))

    def _left(
        self, connection: "Connection", batch: list[SinkRecord], ends: Mapping[TopicPartition, int]
    ) -> list[SinkRecord]:
        """The records that are not written yet, whose offsets this transaction moves past."""
        if self._offsets is None:
            return batch
        before = self._offsets.move(connection, ends)
        return [record for record in batch if record.offset >= before[record.origin]]

    def _put(self, connection: "Connection", work: Sequence[tuple[str, Step]]) -> None:
        copying = Copying(connection) if connection.dialect.name == "postgresql" else None
        for name, step in work:
            table = self._tables.fitting(connection, name, step)
            if table is None:
                continue
            step = step.within(table.columns.keys())
            if copying is not None:
                copying.run(table, step, self.settings.insert_mode)
            else:
                statements.run(connection, table, step, self.settings.insert_mode)

    def _reject(self, record: SinkRecord, reason: BadRecord) -> None:
        """Once, however often the batch is tried, or comes again for another reason."""
        place = (record.origin, record.offset)
        if place not in self._rejected:
            self.context.reject(record, reason)
            self._rejected.add(place)

    def _bad(self, batch: Sequence[SinkRecord], error: Exception) -> ConnectError:
        """Which record the database does not take: the last of the shortest run of them that fails."""
        self._tables.forget()  # they may have been changed
        found = self._refused(batch)
        if found is None:
            return Retriable(
                f"writing to {describe(self.settings)} failed, but not when it was tried again: {_said(error)}"
            )
        good, failing = 0, len(batch)
        while failing - good > 1:
            middle = (good + failing) // 2
            refusal = self._refused(batch[:middle])
            if refusal is None:
                good = middle
            else:
                failing, found = middle, refusal
        record = batch[failing - 1]
        where = f"{record.origin.topic}-{record.origin.partition}, offset {record.offset}"
        table = self._rows.table(record.topic)
        return BadRecord(f"table {table} does not take the record at {where}: {_said(found)}", record)

    def _refused(self, batch: Sequence[SinkRecord]) -> Exception | None:
        """Why the database does not take these, if it does not; nothing is kept of them."""
        from sqlalchemy.exc import StatementError

        work = self._work(batch)
        try:
            with self._engine_now().connect() as connection:  # never committed
                self._put(connection, work)
                if connection.dialect.name == "postgresql":
                    connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")  # those looked at by a commit, too
        except (StatementError, UnicodeError) as error:
            if self._is_news_of_keys(error, work):
                return self._refused(batch)
            if not is_of_rows(error):
                raise
            return error
        return None

    def _is_news_of_keys(self, error: Exception, work: Sequence[tuple[str, Step]]) -> bool:
        """Whether a key came twice in a statement, of a table that was not known for it, as it is from now on."""
        strict = {name for name, _ in work} - self._tables.loose
        if not strict or not is_of_a_key_twice(error):
            return False
        self._tables.loose |= strict
        return True

    def _making(self, make: "Callable[[Connection], T]") -> T:
        """Do what may make or widen tables; again if it fails, for another task may have done it meanwhile.

        MySQL commits each change of a table at once, so that tasks that add several columns at the same moment can
        fail at each of them. A failure that comes a second time is not of that kind.
        """
        from sqlalchemy.exc import DBAPIError

        seen: set[str] = set()
        while True:
            try:
                with self._transaction() as connection:
                    return make(connection)
            except (ConnectError, DBAPIError) as failure:
                self._tables.forget()
                if _said(failure) in seen or len(seen) >= _MOST_FAILURES:
                    raise
                seen.add(_said(failure))

    @contextmanager
    def _transaction(self) -> "Iterator[Connection]":
        with self._engine_now().begin() as connection:
            yield connection

    def _engine_now(self) -> "Engine":
        if self._engine is None:
            raise ConnectError("the sink was not opened")
        return self._engine


def _said(error: Exception) -> str:
    return " ".join(str(getattr(error, "orig", error)).split())
