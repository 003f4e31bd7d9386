"""Changed rows of one micro-batch, in the driver's memory, on their way into a table by key."""

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.sinks.base import SinkError


def newest_rows(rows: pa.Table, key: tuple[str, ...], what: str) -> pa.Table:
    """The last row of each key, in the order in which the rows came. Raises SinkError if a key is null."""
    for name in key:
        if rows[name].null_count:
            raise SinkError(
                f"{what}: {rows[name].null_count} rows have no '{name}', which is part of the key: "
                "filter them, or fill them in"
            )
    numbered = rows.select(key).append_column("\0row", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(key), use_threads=False).aggregate([("\0row", "max")])["\0row_max"]
    if len(last) == rows.num_rows:
        return rows
    return rows.take(last.take(pc.sort_indices(last)))
