"""Tables as outputs: what is asked of the rows, and, for tables of files, how a micro-batch comes into them once.

Tasks write Parquet files that no reader sees, and the driver makes them part of the table in one commit, which also
notes the number of the micro-batch. A repeated micro-batch is so recognised, also by a driver that was thought dead:
its commit conflicts, asks anew, and finds the note.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from ottla.pipeline.context import CHANGES, HISTORY, QuerySpec, RunContext
from ottla.pipeline.corrections import Corrections
from ottla.pipeline.sinks.base import COMPACT_EVERY, SinkError
from ottla.pipeline.sinks.batches import MicroBatch, start_batches
from ottla.pipeline.sinks.changes import Changes, newest_rows, reduced
from ottla.pipeline.sinks.fitting import check_key, check_partitioning, table_of
from ottla.pipeline.sinks.intervals import Key, Last
from ottla.pipeline.sinks.staging import Layout, StagedFile, discard, leftovers, stage
from ottla.pipeline.sinks.versions import VersionedChanges, Versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")
log = logging.getLogger(__name__)

_COMMIT_ATTEMPTS: Final = 20
"""How often a commit of a table is tried while others commit, too."""


class Writer(Protocol):
    """What writes micro-batches."""

    def write(self, batch: MicroBatch) -> None:
        """One micro-batch, or just its computation if it is in the table already."""
        ...

    def correct(self, batch: MicroBatch, corrections: Corrections) -> int:
        """Merge late rows into those that have been written, unless the table has them already; how many there are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink(ABC):
    """A table as an output. key: the columns that identify a row."""

    key: tuple[str, ...] = ()

    @property
    def keeps_versions(self) -> bool:
        """Whether rows can be ended in it (`Job.apply_changes`, `history="all"`)."""
        return True

    @abstractmethod
    def describe(self) -> str:
        """In one phrase, without secrets."""

    @abstractmethod
    def writer(self, schema: pa.Schema, mode: str, context: RunContext) -> Writer:
        """What writes micro-batches of such rows; the table is made if missing. Raises SinkError as `start`."""

    def start(self, rows: "DataFrame", query: QuerySpec) -> "StreamingQuery":
        """Raises SinkError if the table cannot be reached, has other columns or partitions, or a key is missing."""
        schema, key = table_of(rows.schema, query.mode, self.key, self.describe())
        writer = replace(self, key=key).writer(schema, query.mode, query.context)
        return start_batches(rows, query, writer.write)

    def correct(self, batch: MicroBatch, corrections: Corrections, context: RunContext) -> int:
        """See `sinks.base.Correctable`."""
        schema, _ = table_of(batch.rows.schema, "update", self.key, self.describe())
        return self.writer(schema, "update", context).correct(batch, corrections)


class Notes(NamedTuple):
    """The notes of a commit about its micro-batch.

    truncated: when the captured table was truncated last, in microseconds since 1970, if ever.
    """

    query_id: str
    number: int
    truncated: int | None = None


class Version(ABC):
    """The newest version of a table, as one attempt to change it sees it. Each change is one commit with its notes."""

    @abstractmethod
    def last_batch(self, query_id: str) -> int | None:
        """The number of the query's last micro-batch."""

    @abstractmethod
    def truncated(self, query_id: str) -> int | None:
        """When the captured table was truncated last, in microseconds since 1970."""

    @abstractmethod
    def known(self, changes: VersionedChanges) -> Mapping[Key, Last]:
        """The newest versions of the changed keys; at least all open ones if the captured table was truncated."""

    @abstractmethod
    def written(self, keys: pa.Table, columns: tuple[str, ...]) -> pa.Table:
        """These columns of the rows with one of the keys; others may be among them."""

    @abstractmethod
    def add(self, files: list[StagedFile], notes: Notes, *, replaces: bool) -> None:
        """Add staged files; `replaces`: in the place of all others."""

    @abstractmethod
    def merge(self, changes: Changes, notes: Notes) -> None:
        """Put rows in the place of those with the same key, and remove rows by their keys."""

    @abstractmethod
    def add_versions(self, versions: Versions, notes: Notes) -> None:
        """Add versions of rows, and end those before them."""

    @abstractmethod
    def compact(self) -> str:
        """Rewrite small files as large ones; what was done, in one phrase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTableSink(TableSink):
    """A table of files as an output."""

    partition_by: tuple[str, ...] = ()
    compact_every: int | None = COMPACT_EVERY

    @abstractmethod
    def prepared(self, schema: pa.Schema, context: RunContext) -> tuple[Layout, Callable[[], Version]]:
        """How tasks write the table's files, and what loads its newest version; the table is made if missing.

        Raises SinkError if it has other columns or partitions.
        """

    @abstractmethod
    def conflict(self) -> type[Exception]:
        """What a commit raises that met another one."""

    def writer(self, schema: pa.Schema, mode: str, context: RunContext) -> "FileTableWriter":
        """What writes micro-batches of such rows; the table is made if missing. Raises SinkError as `start`."""
        check_partitioning(schema, self.partition_by, self.describe())
        check_key(schema, self.key, mode, self.describe())
        return FileTableWriter(self, *self.prepared(schema, context), mode)

    def check_partitions(self, found: tuple[str, ...], spelled: str) -> None:
        """Raises SinkError if the table has other partitions than the job; `spelled`: the table's, for the message."""
        if found != self.partition_by:
            raise SinkError(
                f"{self.describe()} is partitioned by {spelled or 'nothing'}, "
                f"the job asks for {', '.join(self.partition_by) or 'no partitions'}: write to another table"
            )


@dataclass(frozen=True, slots=True)
class FileTableWriter:
    """Writes micro-batches into a table of files."""

    sink: FileTableSink
    layout: Layout
    load: Callable[[], Version]
    mode: str

    def write(self, batch: MicroBatch) -> None:
        """One micro-batch in one commit, or just its computation if it is in the table already."""
        if _has(self.load(), batch):
            batch.run()
            return
        if self.mode == HISTORY:
            self._add_versions(batch)
        elif self.sink.key and self.mode != "complete":
            self._merge(batch)
        else:
            self._add(batch)
        every = self.sink.compact_every
        if every is not None and batch.number % every == every - 1:
            try:
                self.load().compact()
            except self.sink.conflict():
                log.info("%s: another writer was at it; the next compaction takes these files", self.sink.describe())

    def _add(self, batch: MicroBatch) -> None:
        storage, replaces = self.layout.storage, self.mode == "complete"
        files = stage(batch, self.layout)
        if not files and not replaces:
            return
        notes, paths = Notes(batch.query_id, batch.number), [file.path for file in files]
        if self._commit_once(batch, lambda version: version.add(files, notes, replaces=replaces)):
            discard(storage, leftovers(storage, batch, paths))
        else:
            discard(storage, paths)  # a driver that was thought dead has done it

    def _merge(self, batch: MicroBatch) -> None:
        rows, schema, notes = batch.rows.toArrow(), self.layout.schema, Notes(batch.query_id, batch.number)
        changes = reduced(rows, schema, self.sink.key, self.sink.describe(), deletes=self.mode == CHANGES)
        if changes.num_rows:
            self._commit_once(batch, lambda version: version.merge(changes, notes))

    def _add_versions(self, batch: MicroBatch) -> None:
        rows, schema = batch.rows.toArrow(), self.layout.schema
        changes = VersionedChanges.of(rows, schema, self.sink.key, self.sink.describe())

        def change(version: Version) -> None:
            truncated = version.truncated(batch.query_id)
            versions = changes.versions(version.known(changes), truncated)
            newest = max([*changes.truncates, *([] if truncated is None else [truncated])], default=None)
            version.add_versions(versions, Notes(batch.query_id, batch.number, newest))

        if not changes.is_empty:
            self._commit_once(batch, change)

    def correct(self, batch: MicroBatch, corrections: Corrections) -> int:
        """Merge late rows into those of the table in one commit, unless it has them already; how many there are."""
        key, schema = self.sink.key, self.layout.schema
        late = newest_rows(batch.rows.toArrow().cast(schema), key, self.sink.describe())
        columns = (*key, *corrections.merged_columns)
        types = pa.schema([schema.field(name) for name in columns])

        def change(version: Version) -> None:
            written = version.written(late.select(key), columns).select(columns).cast(types)
            merged = Changes.added(corrections.merge(written, late), key)
            version.merge(merged, Notes(batch.query_id, batch.number))

        if late.num_rows:
            self._commit_once(batch, change)
        return len(late)

    def _commit_once(self, batch: MicroBatch, change: Callable[[Version], None]) -> bool:
        """False if the micro-batch is in the table already. After a conflict both are asked and done anew."""

        def attempt() -> bool:
            version = self.load()
            if _has(version, batch):
                return False
            change(version)
            return True

        return commit_anew(attempt, self.sink.conflict())


def commit_anew(attempt: Callable[[], T], conflict: type[Exception]) -> T:
    """The result of an attempt to commit, which loads the table; on a conflict it is made again."""
    attempts_left = _COMMIT_ATTEMPTS
    while True:
        try:
            return attempt()
        except conflict:
            attempts_left -= 1
            if not attempts_left:
                raise


def compacted(removed: int, added: int) -> str:
    """A phrase that describes the result of a compaction."""
    return f"{removed} files became {added}" if removed else "no small files"


def _has(version: Version, batch: MicroBatch) -> bool:
    last = version.last_batch(batch.query_id)
    return last is not None and last >= batch.number
