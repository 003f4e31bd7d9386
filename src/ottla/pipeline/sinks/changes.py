"""Changed rows of one micro-batch, in the driver's memory, on their way into a table by key."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.change_columns import DELETE, OFFSET, OP, PARTITION
from ottla.pipeline.sinks.base import SinkError


class Changes(NamedTuple):
    """Rows to put in the place of those with the same key, and keys of rows to remove; each key at most once."""

    put: pa.Table
    removed: pa.Table

    @classmethod
    def added(cls, rows: pa.Table, key: tuple[str, ...]) -> "Changes":
        """All of these rows are put, and none is removed."""
        return cls(rows, rows.select(key).slice(0, 0))

    @property
    def num_rows(self) -> int:
        """How many rows of the table may change."""
        total: int = self.put.num_rows + self.removed.num_rows
        return total

    @property
    def keys(self) -> pa.Table:
        """The keys of all rows that may change."""
        return pa.concat_tables([self.put.select(self.removed.schema.names), self.removed])


def reduced(rows: pa.Table, schema: pa.Schema, key: tuple[str, ...], what: str, *, deletes: bool) -> Changes:
    """The last change of each key. `schema` is the table's.

    With `deletes`, the rows are changes of a captured table (`change_columns`), which come in the order of their
    offsets; otherwise each of them is to be put, in the order in which they are. Raises SinkError if a key is null.
    """
    if not deletes:
        return Changes.added(newest_rows(rows.cast(schema), key, what), key)
    newest = newest_rows(rows.sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")]), key, what)
    is_removed = pc.equal(newest[OP], DELETE)
    table = newest.select(schema.names).cast(schema)
    return Changes(table.filter(pc.invert(is_removed)), table.select(key).filter(is_removed))


def newest_rows(rows: pa.Table, key: tuple[str, ...], what: str) -> pa.Table:
    """The last row of each key, in the order in which the rows came. Raises SinkError if a key is null."""
    check_key_values(rows, key, what)
    numbered = rows.select(key).append_column("\0row", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(key), use_threads=False).aggregate([("\0row", "max")])["\0row_max"]
    if len(last) == rows.num_rows:
        return rows
    return rows.take(last.take(pc.sort_indices(last)))


def check_key_values(rows: pa.Table, key: tuple[str, ...], what: str) -> None:
    """Raises SinkError if a key is null."""
    for name in key:
        if rows[name].null_count:
            raise SinkError(
                f"{what}: {rows[name].null_count} rows have no '{name}', which is part of the key: "
                "filter them, or fill them in"
            )
