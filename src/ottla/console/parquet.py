"""Parquet, by pyarrow, in row groups that bound what is held."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.console.collecting import Columns
from ottla.console.exporting import GROUP_CHARACTERS, GROUP_ROWS, Writer
from ottla.console.sight import Record


class Parquet(Writer):
    """A file whose columns are a timestamp, the partition, the offset, and texts."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        kinds = [pa.timestamp("ms", "UTC"), pa.int32(), pa.int64()]
        texts = [pa.string()] * (len(self.names) - len(kinds))
        self._schema = pa.schema(list(zip(self.names, [*kinds, *texts], strict=True)))

    def pieces(self, records: Iterator[Record]) -> Iterator[bytes]:
        """A piece for each row group, and the file's end."""
        out = _Pieces()
        rows: list[list[Any]] = []
        held = 0
        with pq.ParquetWriter(pa.PythonFile(out, "w"), self._schema, compression="zstd") as file:
            for record in records:
                texts = self.texts(record)
                rows.append([record.timestamp, record.partition, record.offset, *texts])
                held += sum(len(text) for text in texts if text is not None)
                if len(rows) >= GROUP_ROWS or held >= GROUP_CHARACTERS:
                    file.write_table(self._table(rows))
                    rows, held = [], 0
                    yield out.take()
            if rows:
                file.write_table(self._table(rows))
        yield out.take()

    def _table(self, rows: list[list[Any]]) -> pa.Table:
        columns = [
            pa.array([_storable(row[number]) for row in rows], kind) for number, kind in enumerate(self._schema.types)
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)


def _storable(content: Any) -> Any:
    return content.encode("utf-8", "replace").decode() if isinstance(content, str) else content


class _Pieces:
    """A file to write to, from whose end is taken what was written."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._at += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing is open."""

    def take(self) -> bytes:
        """What was written since."""
        found, self._parts = b"".join(self._parts), []
        return found
