"""Stands in for a DataFrame of one micro-batch, so that a sink's code runs without Spark: a table per task."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Run = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class _Row:
    files: bytes


class LocalRows:
    def __init__(self, *tasks: pa.Table) -> None:
        self._tasks = tasks
        self._collected: list[_Row] = []

    def mapInArrow(self, run: Run, _schema: str) -> "LocalRows":  # noqa: N802 - Spark's name
        mapped = LocalRows()
        for task in self._tasks:
            for batch in run(task.to_batches()):
                mapped._collected += [_Row(each) for each in batch.column("files").to_pylist()]
        return mapped

    def collect(self) -> list[_Row]:
        return self._collected

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return pa.concat_tables(self._tasks)

    @property
    def write(self) -> "_Nowhere":
        return _Nowhere()


class _Nowhere:
    """`write.format("noop").mode("overwrite").save()`"""

    def format(self, name: str) -> "_Nowhere":
        assert name == "noop"
        return self

    def mode(self, _name: str) -> "_Nowhere":
        return self

    def save(self) -> None: ...


def numbered(*numbers: int, carrier: str = "UA") -> pa.Table:
    """Rows of one task."""
    columns: dict[str, Any] = {"flight": pa.array(numbers, pa.int32()), "carrier": [carrier] * len(numbers)}
    return pa.table(columns)
