"""Changes of one micro-batch for a table that keeps all versions, in the driver's memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.change_columns import OFFSET, OP, PARTITION, TRUNCATE, TS, VALID_FROM, VALID_TO
from ottla.pipeline.sinks.base import SinkError
from ottla.pipeline.sinks.changes import check_key_values
from ottla.pipeline.sinks.fitting import TIME
from ottla.pipeline.sinks.intervals import Intervals, Key, Last, RowChange, intervals


class Versions(NamedTuple):
    """Rows to add, with the table's columns; and of which keys the open version ends, and when (`VALID_TO`)."""

    added: pa.Table
    ended: pa.Table

    @property
    def num_rows(self) -> int:
        """How many rows of the table may change."""
        total: int = self.added.num_rows + self.ended.num_rows
        return total


@dataclass(frozen=True, slots=True)
class VersionedChanges:
    """The changes of a micro-batch in the order of the source, and when the table was truncated meanwhile, in
    microseconds since 1970. `schema` is that of the table of versions."""

    rows: pa.Table
    changes: list[RowChange]
    truncates: list[int]
    schema: pa.Schema
    key: tuple[str, ...]

    @classmethod
    def of(cls, rows: pa.Table, schema: pa.Schema, key: tuple[str, ...], what: str) -> "VersionedChanges":
        """Raises SinkError for changes without a key or a time."""
        timeless = rows[TS].null_count
        if timeless:
            raise SinkError(
                f"{what}: {timeless} changes do not tell when they were made (no source.ts_ms), so that their versions "
                "would have no beginning: have the connector write it, or keep history='latest'"
            )
        is_truncate = pc.equal(rows[OP], TRUNCATE)
        truncates = _us(rows.filter(is_truncate)[TS])
        changed = rows.filter(pc.invert(is_truncate))
        check_key_values(changed, key, what)
        changed = changed.sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")])
        own = [name for name in schema.names if name not in (VALID_FROM, VALID_TO)]
        table = changed.select(own).cast(pa.schema([schema.field(name) for name in own]))
        changes = [
            RowChange(*each)
            for each in zip(keys_of(table, key), changed[OP].to_pylist(), _us(changed[TS]), strict=True)
        ]
        return cls(table, changes, truncates, schema, key)

    @property
    def is_empty(self) -> bool:
        return not self.changes and not self.truncates

    @property
    def keys(self) -> pa.Table:
        """The keys that are changed, each once."""
        return self.rows.select(list(self.key)).group_by(list(self.key)).aggregate([])

    def versions(self, known: Mapping[Key, Last], truncated: int | None) -> Versions:
        """What changes in the table, where this is known of the keys, and it was truncated at that time before."""
        found = self.intervals(known, truncated)
        added = self.rows.take(pa.array([each.number for each in found.new], pa.int64()))
        for name, times in ((VALID_FROM, [each.start for each in found.new]), (VALID_TO, [e.end for e in found.new])):
            added = added.append_column(self.schema.field(name), pa.array(times, TIME))
        return Versions(added.select(self.schema.names), self._ended(found))

    def intervals(self, known: Mapping[Key, Last], truncated: int | None) -> Intervals:
        """As `versions`, without the rows."""
        return intervals(self.changes, known, [*self.truncates, *([] if truncated is None else [truncated])])

    def _ended(self, found: Intervals) -> pa.Table:
        fields = [*(self.schema.field(name) for name in self.key), pa.field(VALID_TO, TIME)]
        columns = list(zip(*found.ended, strict=True)) or [()] * len(self.key)
        arrays = [
            pa.array(values, each.type)
            for values, each in zip([*columns, list(found.ended.values())], fields, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def last_versions(table: pa.Table, key: tuple[str, ...]) -> dict[Key, Last]:
    """What is known of the keys by rows with the columns of the key, `VALID_FROM` and `VALID_TO`."""
    is_open = pc.is_null(table[VALID_TO])
    times = pc.coalesce(table[VALID_TO], table[VALID_FROM]).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    of_rows = table.select(list(key)).append_column("\0at", times).append_column("\0open", is_open)
    found = of_rows.group_by(list(key)).aggregate([("\0at", "max"), ("\0open", "max")])
    lasts = map(Last, found["\0at_max"].to_pylist(), found["\0open_max"].to_pylist())
    return dict(zip(keys_of(found, key), lasts, strict=True))


def keys_of(table: pa.Table, key: tuple[str, ...]) -> list[Key]:
    """The key of each row."""
    return list(zip(*(table[name].to_pylist() for name in key), strict=True))


def _us(times: pa.ChunkedArray) -> list[int]:
    found: list[int] = times.cast(TIME).cast(pa.int64()).to_pylist()
    return found
