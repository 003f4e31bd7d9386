"""Signals from a table of the database, and the chunks that they have read; what all databases have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ottla.connect.api import BadRecord, SourceContext, SourceRecord
from ottla.connect.connectors.capture.envelope import READ, SourceBlock, TableEvents
from ottla.connect.connectors.capture.incremental import Chunk, Incremental
from ottla.connect.schema import Shared

_AGAIN_NS: Final = 1_000_000_000
"""What cannot be read now is tried again so much later."""


@dataclass(frozen=True, slots=True)
class Readable:
    """A table that can be read in chunks. `key`: the columns to order by, which identify all rows."""

    events: TableEvents
    key: Sequence[str]


T = TypeVar("T", bound=Readable)


class ChunkReader(ABC, Generic[T]):
    """Reads the next chunk of what `incremental` has to read, and makes records of those that come through."""

    def __init__(self, context: SourceContext, incremental: Incremental) -> None:
        self._context = context
        self._incremental = incremental
        self._table: T | None = None
        """The one that the chunk between the marks is of."""
        self._done = 0

    @abstractmethod
    def find(self, name: str) -> T | str:
        """The table as it is now, or why it cannot be read: `has no primary key`."""

    @abstractmethod
    def read(self, table: T, name: str, number: str) -> Chunk | None:
        """Put two marks with this number into the stream, and read in between; None: it is to be tried again later."""

    @abstractmethod
    def block(self, name: str, now_ns: int) -> SourceBlock:
        """Where rows come from that are read at this time."""

    def read_next(self) -> bool:
        """Read a chunk of the first table. One that is gone or has no key is left out.

        False if it cannot be read now.
        """
        incremental = self._incremental
        name = incremental.tables[0]
        table = self.find(name)
        if isinstance(table, str):
            sentence = f"table {name} {table} and is not read again"
            self._context.log.warning("incremental snapshot: %s", sentence)
            self._context.warn(sentence)
            incremental.next_table()
            return True
        incremental.read_by(table.key)
        if incremental.after is None:
            self._done = 0
        chunk = self.read(table, name, incremental.new_id())
        if chunk is not None:
            self._table = table
            incremental.begin_chunk(chunk)
        return chunk is not None

    def records(self, chunk: Chunk, now_ns: int) -> list[SourceRecord]:
        """The remaining records of a chunk at its second watermark, with op r."""
        assert self._table is not None
        events, block = self._table.events, Shared(self.block(chunk.table, now_ns))
        self._done += len(chunk.rows)
        done = self._done
        self._context.progress(f"incremental snapshot of {chunk.table}", done, done if chunk.end else None)
        records = []
        for values in chunk.rows.values():
            try:
                records.append(events.created(values, block, now_ns, READ))
            except BadRecord as error:
                self._context.reject(error)
        return records


class TableSignals(Generic[T]):
    """What rows of the signal table mean. `known`: names of all captured tables."""

    def __init__(
        self,
        context: SourceContext,
        incremental: Incremental,
        reader: ChunkReader[T],
        known: Callable[[], Sequence[str]],
        now_ns: Callable[[], int],
    ) -> None:
        self._context = context
        self._incremental = incremental
        self._reader = reader
        self._known = known
        self._now_ns = now_ns
        self._failed_ns: int | None = None
        """When a chunk could not be read."""

    def position(self) -> Mapping[str, Any]:
        """What a position has to say about the incremental snapshot."""
        state = self._incremental.state()
        return {"incremental": state} if state else {}

    def signal(self, row: Mapping[str, Any]) -> None:
        """A row has come into the signal table: id, type, data."""
        wrong = self._incremental.signal(str(row.get("type")), row.get("data"), self._known())
        if wrong is not None:
            self._context.log.warning("signal %s is refused: %s", row.get("id"), wrong)
        self._context.warn(f"signal {row.get('id')}: {wrong}" if wrong is not None else None)

    def closed(self, number: str) -> list[SourceRecord]:
        """A second mark in the stream: records of its chunk."""
        chunk = self._incremental.closed(number)
        return self._reader.records(chunk, self._now_ns()) if chunk is not None else []

    def go_on(self) -> None:
        """Read the next chunk, if there is one to read and none is waited for."""
        if not self._incremental.tables or self._incremental.chunk is not None:
            return
        now_ns = self._now_ns()
        if self._failed_ns is None or not 0 <= now_ns - self._failed_ns < _AGAIN_NS:  # clocks may be set back
            self._failed_ns = None if self._reader.read_next() else now_ns
