"""The history of a captured table, as the tasks of a query read it and keep it.

A task that needs to know more than what is there reads the changes since then, one task of a machine at a time.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import StructType

from ottla.pipeline.change_columns import OP, TRUNCATE, TS
from ottla.pipeline.rows.change_events import UNKNOWN, ChangeEvents, event_schema
from ottla.pipeline.rows.python_decoding import decode_array
from ottla.pipeline.rows.version_runs import AT
from ottla.pipeline.rows.version_runs import OP as OP_CODE
from ottla.pipeline.rows.version_store import AHEAD, TIMELESS, TOO_OLD, HistoryError, Snapshot, VersionStore
from ottla.pipeline.times import time_text
from ottla.registry.client import Registry
from ottla.spark.fetch import patient_metadata, read_range
from ottla.spark.offsets import FlatOffsets, OffsetRange
from ottla.spark.options import ReadOptions
from ottla.spark.schema import read_schema

STATUS: Final = "__ottla_status"
"""The place in `version_store.STATUSES`, and `WAITED` added."""
WAITED: Final = 16
"""Added for a row that had to wait until its version was known."""
ROW: Final = "__ottla_version"
_NEW_COLUMN: Final = (
    "it has a column that the table has only had since the run began: start the run again, so that its values are "
    "not lost"
)


@dataclass(frozen=True, slots=True)
class VersionSource:
    """What a worker needs to read and keep the history: a value that goes there. `ends`: where the partitions ended
    when the run began, behind which no column may be new. `is_strict`: a row whose time is not known is an error."""

    what: str
    directory: str
    options: tuple[tuple[str, str], ...]
    columns: str
    key: tuple[str, ...]
    delay_us: int
    depth_us: int | None
    ends: tuple[tuple[int, int], ...]
    checks_columns: bool
    is_strict: bool = True
    registry: Registry | None = None

    def waiting(self, times: pa.Array) -> pa.Array:
        """Which rows of these times have to wait until nothing can change any more."""
        return pc.fill_null(pc.greater(times, _now() - self.delay_us), False)

    def known(self, times: pa.Array) -> Snapshot:
        """What is known, when nothing can change any more up to the last of these times. See `_Reader.settled`."""
        return _reader(replace(self, is_strict=True), os.getpid()).settled(times)

    def why_ahead(self) -> str:
        return "is ahead of the clock: its version is not known yet. Reject such rows by a check before as_of"

    def why_too_old(self, snapshot: Snapshot) -> str:
        """Why nothing is known of a row from before the history begins."""
        state = snapshot.state
        if state.since is None:
            return "the topic has no change yet. Begin the replay later"
        begins = f"the history begins at {time_text(state.since)}"
        if not state.complete:
            begins += ", and the topic had lost older changes (retention)"
        return f"{begins}. Begin the replay later, give history(...) more depth"


@dataclass(frozen=True, slots=True)
class TableSource:
    """What a worker needs to look up the versions of a table, which the driver has put into the `directory`: a value
    that goes there. `snapshot` describes what was read; `columns`, `key` and `is_strict` are as in `VersionSource`."""

    what: str
    directory: str
    snapshot: str
    columns: str
    key: tuple[str, ...]
    is_strict: bool = True

    def store(self) -> VersionStore:
        """The files of the versions."""
        schema: Any = to_arrow_schema(StructType.fromJson(json.loads(self.columns)), timezone="UTC")
        return VersionStore(Path(self.directory), schema, self.key, delay=0)

    def waiting(self, times: pa.Array) -> pa.Array:
        """None: the table is as it is."""
        return pa.repeat(False, len(times))

    def known(self, _times: pa.Array) -> Snapshot:
        """All that the table has, whatever the times. Raises HistoryError."""
        snapshot = _store(replace(self, is_strict=True), os.getpid()).current()
        if snapshot is None:
            raise HistoryError(
                f"{self.what}: its versions are not in {self.directory}: every machine has to reach the run's home"
            )
        return snapshot

    def why_ahead(self) -> str:
        return (
            f"is behind the end of what the table knows ({self.snapshot}, which the run keeps to). Start the run with "
            "--newest-tables once the table has the changes of that time; if it has, and nothing changed since, say "
            "so by until="
        )

    def why_too_old(self, snapshot: Snapshot) -> str:
        """Why nothing is known of a row from before the history begins."""
        assert snapshot.state.since is not None, "an empty table is refused"
        begins = f"the table's history begins at {time_text(snapshot.state.since)}"
        return (
            f"{begins}, and the first version of a key does not show whether the row was there before. Begin the "
            "replay later, say by since= from when on the table has every insert"
        )


@lru_cache(maxsize=16)
def _store(source: TableSource, process_id: int) -> VersionStore:
    return source.store()


@lru_cache(maxsize=16)
def _reader(source: VersionSource, process_id: int) -> "_Reader":
    return _Reader(source)


class _Reader:
    """Follows the topic of one history in a worker."""

    def __init__(self, source: VersionSource) -> None:
        self._source = source
        columns = StructType.fromJson(json.loads(source.columns))
        schema: Any = to_arrow_schema(columns, timezone="UTC")
        self.columns = schema
        self._row_type: Any = to_arrow_type(event_schema(columns), timezone="UTC")
        self._decode = ChangeEvents(source.columns, truncates=True, registry=source.registry).open()
        self._options = ReadOptions.parse(dict(source.options), streaming=False)
        self._ends = dict(source.ends)
        self._store = VersionStore(Path(source.directory), schema, source.key, source.delay_us, source.depth_us)

    def settled(self, times: pa.Array) -> Snapshot:
        """What is known, when nothing can change any more up to the last of these times (microseconds since 1970).

        Waits for that, but not for times that are ahead of the clock by more than the delay. Raises HistoryError, or
        SourceError.
        """
        delay = self._source.delay_us
        now = _now()
        last = pc.max(times.filter(pc.less_equal(times, now + delay))).as_py()
        needed = 0 if last is None else last + delay
        known = self._store.current()
        if known is not None and known.state.at >= needed:
            return known
        if needed > now:
            time.sleep((needed - now) / 1e6)
        with self._store.locked():
            known = self._store.current()
            if known is not None and known.state.at >= needed:
                return known
            metadata = patient_metadata(self._options)
            layout = metadata.layout(self._options.selection)
            at = _now()
            ends: FlatOffsets = metadata.latest(layout.partitions)
            begins = metadata.earliest(layout.partitions)
            ids = ",".join(sorted(map(str, layout.ids.values())))
            return self._store.follow(begins, ends, ids, at, self._read)

    def _read(self, wanted: OffsetRange) -> Iterator[pa.Table]:
        arrow_schema: Any = to_arrow_schema(read_schema(False), timezone="UTC")
        for batch in read_range(wanted, arrow_schema, self._options):
            records = batch.filter(pc.is_valid(batch["value"]))
            if records.num_rows:
                yield self._changes(records)

    def _changes(self, records: pa.RecordBatch) -> pa.Table:
        decoded = decode_array(records["value"], self._decode, self._row_type)
        column, reasons = decoded.flatten()
        if reasons.null_count < len(reasons):
            place = pc.index(pc.is_valid(reasons), True).as_py()
            self._refuse(records, place, reasons[place].as_py())
        changes = pa.Table.from_struct_array(column)
        is_truncate = pc.equal(changes[OP], TRUNCATE)
        is_row = pc.invert(is_truncate)
        problems = [
            (pc.is_null(changes[TS]), "it does not tell when it was made (source.ts_ms)"),
            (pc.and_(pc.is_null(records["key"]), is_row), "it has no key"),
            *(
                (pc.and_(pc.is_null(changes[name]), is_row), f"it has no {name!r}, which is part of the key")
                for name in self._source.key
            ),
            (self._new_columns(records, changes), _NEW_COLUMN),
        ]
        for problem, what in problems:
            place = pc.index(problem, True).as_py()
            if place >= 0:
                self._refuse(records, place, what)
        codes = pa.array([ord(each) for each in changes[OP].to_pylist()], pa.uint8())
        made = changes.select(self.columns.names)
        return made.append_column(AT, changes[TS].cast(pa.int64())).append_column(OP_CODE, codes)

    def _new_columns(self, records: pa.RecordBatch, changes: pa.Table) -> pa.ChunkedArray:
        if not self._source.checks_columns or not changes[UNKNOWN].null_count < changes.num_rows:
            return pa.chunked_array([pa.repeat(False, changes.num_rows)])
        numbers, offsets = records["partition"].to_pylist(), records["offset"].to_pylist()
        is_new = [offset >= self._ends.get(number, 0) for number, offset in zip(numbers, offsets, strict=True)]
        return pc.and_(pc.is_valid(changes[UNKNOWN]), pa.array(is_new))

    def _refuse(self, records: pa.RecordBatch, place: int, why: str) -> None:
        partition, offset = records["partition"][place].as_py(), records["offset"][place].as_py()
        raise HistoryError(
            f"{self._source.what} cannot be read: the record at offset {offset} of partition {partition} is no change "
            f"that it can keep: {why}"
        )


def answer(source: VersionSource | TableSource, row_type: Any, keys: pa.Array, times: pa.Array) -> pa.Array:
    """The versions of rows with these keys (structs) at these times: an array of structs of their status and the row.

    Raises HistoryError, or SourceError.
    """
    asked_at = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    waiting = source.waiting(asked_at)
    snapshot = source.known(asked_at)
    found = snapshot.look_up(keys.flatten(), asked_at, [each.name for each in row_type])
    if source.is_strict:
        _check(source, snapshot, keys, asked_at, found.statuses)
    arrays = [_one(found.rows[each.name]).cast(each.type) for each in row_type]
    row = pa.StructArray.from_arrays(arrays, fields=list(row_type)) if arrays else pa.array([{}] * len(times), row_type)
    waited = waiting.to_numpy(zero_copy_only=False).astype(found.statuses.dtype) * WAITED
    return pa.StructArray.from_arrays([pa.array(found.statuses + waited), row], names=[STATUS, ROW])


def _check(
    source: VersionSource | TableSource, snapshot: Snapshot, keys: pa.Array, asked_at: pa.Array, statuses: Any
) -> None:
    """Raises HistoryError for a row whose version nobody knows."""
    for place, status in enumerate(statuses if (statuses >= TOO_OLD).any() else ()):
        if status < TOO_OLD:
            continue
        key = ", ".join(str(each) for each in keys[place].as_py().values())
        if status == TIMELESS:
            raise HistoryError(f"{source.what}: the row with key {key} has no time: filter such rows before as_of")
        at = time_text(asked_at[place].as_py())
        if status == AHEAD:
            raise HistoryError(f"{source.what}: a row of {at} {source.why_ahead()}, or mark them by status=")
        raise HistoryError(
            f"{source.what}: what the row with key {key} was at {at} is not known: {source.why_too_old(snapshot)}, or "
            "mark such rows by status="
        )


def _one(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _now() -> int:
    return time.time_ns() // 1000
