"""Changes to an Iceberg table that replace files: rows by key, small files by large ones, everything by nothing.

Copy on write: a file that holds a row to be changed is written again without it. Readers see the old snapshot or the
new one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.change_columns import VALID_FROM, VALID_TO
from ottla.pipeline.sinks.changes import Changes
from ottla.pipeline.sinks.intervals import Key, Last
from ottla.pipeline.sinks.table_sink import commit_anew, compacted
from ottla.pipeline.sinks.versions import VersionedChanges, Versions, last_versions

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import DataScan, FileScanTask, Table, Transaction

TARGET_BYTES: Final = 128 << 20
"""Size of a compacted file."""
SMALL_BYTES: Final = TARGET_BYTES * 3 // 4
"""Files below this are compacted."""


def begin(table: "Table") -> "Transaction":
    """A transaction that raises for any other commit.

    PyIceberg would repeat its commit on top of whatever came in between, which may be the same micro-batch.
    """
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table.transaction()


def remove_all(transaction: "Transaction", notes: Mapping[str, str]) -> None:
    """Remove every file."""
    _exchange(transaction, [task.file for task in _scan(transaction).plan_files()], [], notes)


def apply(transaction: "Transaction", changes: Changes, key: tuple[str, ...], notes: Mapping[str, str]) -> None:
    """Put rows in the place of those with the same key, and remove rows by their keys."""
    schema = _arrow_schema(transaction)
    new = changes.put.select(schema.names).cast(schema)
    keys = changes.keys.cast(pa.schema([schema.field(name) for name in key]))
    removed, kept = [], []
    for task in _scan(transaction, _near(keys, key[0])).plan_files():
        rows = _read(transaction, [task])
        others = _without(rows, keys, key)
        if others.num_rows < rows.num_rows:
            removed.append(task.file)
            kept.append(others)
    _exchange(transaction, removed, _data_files(transaction, pa.concat_tables([*kept, new])), notes)


def add_versions(
    transaction: "Transaction", versions: Versions, key: tuple[str, ...], notes: Mapping[str, str]
) -> None:
    """Add versions of rows, and end those before them: files with such rows are written again."""
    from pyiceberg.expressions import And, IsNull, Reference

    schema = _arrow_schema(transaction)
    removed, kept = [], []
    if versions.ended.num_rows:
        ended = versions.ended.cast(pa.schema([schema.field(name) for name in (*key, VALID_TO)]))
        is_open: BooleanExpression = IsNull(term=Reference(VALID_TO))
        near = _near(ended, key[0])
        for task in _scan(transaction, is_open if near is None else And(near, is_open)).plan_files():
            rows = _read(transaction, [task])
            if (changed := _with_ends(rows, ended, key)) is not None:
                removed.append(task.file)
                kept.append(changed)
    added = versions.added.select(schema.names).cast(schema)
    _exchange(transaction, removed, _data_files(transaction, pa.concat_tables([*kept, added])), notes)


def known_versions(transaction: "Transaction", changes: VersionedChanges) -> dict[Key, Last]:
    """The newest versions of the changed keys, and of all others if the captured table was truncated. Only the columns
    that this needs are read."""
    names = (*changes.key, VALID_FROM, VALID_TO)
    rows = written_rows(transaction, None if changes.truncates else changes.keys, changes.key, names)
    wanted = pa.schema([changes.schema.field(name) for name in names])
    return last_versions(rows.cast(wanted), changes.key)


def written_rows(
    transaction: "Transaction", keys: pa.Table | None, key: tuple[str, ...], names: tuple[str, ...]
) -> pa.Table:
    """These columns of the rows with one of the keys (None: of all rows), and of others near them."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    metadata, near = transaction.table_metadata, None
    if keys is not None:
        schema = _arrow_schema(transaction)
        near = _near(keys.cast(pa.schema([schema.field(name) for name in key])), key[0])
    tasks = list(_scan(transaction, near).plan_files())
    columns = metadata.schema().select(*names)
    return ArrowScan(metadata, transaction._table.io, columns, AlwaysTrue()).to_table(tasks).select(names)


def _with_ends(rows: pa.Table, ended: pa.Table, key: tuple[str, ...]) -> pa.Table | None:
    """The rows, those that are open and have such a key ended; None if there are none of them."""
    numbered = rows.select(key).append_column("\0row", pa.array(range(rows.num_rows), pa.int64()))
    ends = ended.rename_columns([*key, "\0end"])
    joined = numbered.join(ends, keys=list(key), join_type="left outer").sort_by("\0row")
    place = rows.schema.get_field_index(VALID_TO)
    is_ended = pc.and_(pc.is_null(rows[VALID_TO]), pc.is_valid(joined["\0end"]))
    if not pc.any(is_ended).as_py():
        return None
    return rows.set_column(place, rows.schema.field(place), pc.if_else(is_ended, joined["\0end"], rows[VALID_TO]))


def compact(table: Callable[[], "Table"]) -> str:
    """Rewrite small files as large ones, a snapshot per large one; what was done, in one phrase."""
    from pyiceberg.exceptions import CommitFailedException

    removed = added = 0
    while (done := commit_anew(lambda: _rewrite_some(begin(table())), CommitFailedException)) is not None:
        removed, added = removed + done[0], added + done[1]
    return compacted(removed, added)


def _rewrite_some(transaction: "Transaction") -> tuple[int, int] | None:
    """Files removed and added; None if there was nothing to do."""
    tasks = _small_neighbours(_scan(transaction).plan_files())
    if not tasks:
        return None
    files = _data_files(transaction, _read(transaction, tasks))
    _exchange(transaction, [task.file for task in tasks], files, {"ottla.compaction": str(len(tasks))})
    transaction.commit_transaction()
    return len(tasks), len(files)


def _small_neighbours(tasks: "Iterable[FileScanTask]") -> "list[FileScanTask]":
    """Two or more small files of one partition, as many as make a large one; none if there are not so many."""
    by_partition: dict[Any, list[FileScanTask]] = defaultdict(list)
    for task in sorted(tasks, key=lambda each: each.file.file_path):
        if task.file.file_size_in_bytes < SMALL_BYTES:
            by_partition[task.file.partition].append(task)
    for candidates in by_partition.values():
        chosen: list[FileScanTask] = []
        size = 0
        for task in candidates:
            if size + task.file.file_size_in_bytes <= TARGET_BYTES:
                chosen.append(task)
                size += task.file.file_size_in_bytes
        if len(chosen) > 1:
            return chosen
    return []


def _scan(transaction: "Transaction", near: "BooleanExpression | None" = None) -> "DataScan":
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.table import DataScan

    return DataScan(
        table_metadata=transaction.table_metadata,
        io=transaction._table.io,
        row_filter=AlwaysTrue() if near is None else near,
    )


def _near(rows: pa.Table, column: str) -> "BooleanExpression | None":
    """Which files may hold a key: those whose limits meet the least and the greatest."""
    from pyiceberg.expressions import And, GreaterThanOrEqual, LessThanOrEqual, Reference
    from pyiceberg.expressions.literals import literal

    kind = rows.schema.field(column).type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    limits = pc.min_max(rows[column]).as_py()
    least, greatest, of_key = literal(limits["min"]), literal(limits["max"]), Reference(column)
    return And(GreaterThanOrEqual(term=of_key, value=least), LessThanOrEqual(term=of_key, value=greatest))


def _without(rows: pa.Table, keys: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Rows whose key is not among `keys`."""
    numbered = rows.select(key).append_column("\0row", pa.array(range(rows.num_rows), pa.int64()))
    others = numbered.join(keys.select(key), keys=list(key), join_type="left anti")["\0row"]
    return rows.take(others.take(pc.sort_indices(others)))


def _read(transaction: "Transaction", tasks: "list[FileScanTask]") -> pa.Table:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    metadata = transaction.table_metadata
    scan = ArrowScan(metadata, transaction._table.io, metadata.schema(), AlwaysTrue())
    return scan.to_table(tasks).cast(_arrow_schema(transaction))


def _arrow_schema(transaction: "Transaction") -> pa.Schema:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(transaction.table_metadata.schema(), include_field_ids=False)


def _data_files(transaction: "Transaction", rows: pa.Table) -> "list[DataFile]":
    """The rows in new files, which are in no snapshot yet."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    return list(_dataframe_to_data_files(transaction.table_metadata, rows, transaction._table.io)) if len(rows) else []


def _exchange(
    transaction: "Transaction", removed: "list[DataFile]", added: "list[DataFile]", notes: Mapping[str, str]
) -> None:
    """A snapshot with some files in the place of others, unless there are none."""
    if not removed and not added:
        return
    with transaction.update_snapshot(snapshot_properties=dict(notes)).overwrite() as snapshot:
        for file in removed:
            snapshot.delete_data_file(file)
        for file in added:
            snapshot.append_data_file(file)
