"""The rows of a flow by which an output follows a captured table: `Job.apply_changes`."""

from typing import TYPE_CHECKING

from ottla.pipeline.change_columns import (
    COLUMNS,
    KEY_METADATA,
    KEYLESS_METADATA,
    OFFSET,
    OP,
    TRUNCATE,
    TRUNCATES_METADATA,
    VALID_FROM,
    VALID_TO,
    key_columns,
)
from ottla.pipeline.context import HISTORY
from ottla.pipeline.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def keyed_changes(changes: "DataFrame", keys: tuple[str, ...], mode: str) -> "DataFrame":
    """The changes with the columns `keys` marked as the table's key, in place of those of the records if given.

    `mode` is that of the flow. Raises JobError if the rows are no changes, or their key is not known.
    """
    from pyspark.sql import functions as F

    names = changes.columns
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise JobError(
            f"the rows have no column {missing[0]!r}: apply_changes takes those of captured(...) or from_debezium(...)"
        )
    if changes.schema[OFFSET].metadata.get(KEYLESS_METADATA):
        raise JobError(
            "the captured table has no primary key: its records have no key, so that changes of one row cannot be "
            "put in order. Give the table a primary key, or name columns that identify its rows in the connector's "
            "message.key.columns, and capture it anew"
        )
    keys = keys or key_columns(changes.schema.fields)
    if not keys:
        raise JobError(
            "the key of the table is not known from the records' keys: name its columns, as in keys=('id',). Records "
            "have to be keyed by them, so that changes of one row are in one partition"
        )
    for name in keys:
        if name not in names or name in COLUMNS:
            raise JobError(f"keys names the column {name!r}, and the table has only: {', '.join(_table(names))}")
    for name in names:
        if mode == HISTORY and name in (VALID_FROM, VALID_TO):
            raise JobError(
                f"the captured table has a column {name!r}, which history='all' adds: give it another name in a view"
            )
    if mode != HISTORY and changes.schema[OP].metadata.get(TRUNCATES_METADATA):
        said = F.raise_error(
            F.lit(
                "the captured table was truncated, and the place of that among the changes of other partitions is not "
                "known: read it without truncates=True, empty the output by hand, and let the source take a snapshot"
            )
        )
        changes = changes.where(F.when(F.col(OP) == TRUNCATE, said.cast("boolean")).otherwise(F.lit(True)))
    columns = [
        F.col(f"`{name}`").alias(name, metadata={KEY_METADATA: keys.index(name)} if name in keys else {})
        for name in names
    ]
    return changes.select(*columns)


def _table(names: list[str]) -> list[str]:
    return [name for name in names if name not in COLUMNS]
