"""The first of two phases: tasks write Parquet files that no reader sees yet, and report their names.

    <directory>/<query id>/<batch>/[column=value/...]<task>-<random>.parquet

The second phase is the table's: one atomic step makes all files of the micro-batch part of it. Files that a killed task
or driver left lie below the same directory when the micro-batch is repeated, and are removed then.
"""

import os
import pickle
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ottla.pipeline.sinks.batches import MicroBatch

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""How Hive, Spark and Arrow spell a null in a directory's name, and an empty text, which has no name of its own."""

_OPEN_FILES: Final = 64
"""Per task; rows that go to more partitions at a time are written to more files."""
_ROW_GROUP_BYTES: Final = 32 << 20
_BUFFERED_BYTES: Final = 64 << 20
"""Over all open files of a task; bounds its memory together with one row group per file."""


class Storage(Protocol):
    """Where the table's files are. Goes to the tasks, so it has to be picklable."""

    def open(self) -> tuple[fs.FileSystem, str]:
        """A file system, and the path in it of the directory for staged files."""
        ...


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A directory that every executor sees under the same path."""

    directory: str

    def open(self) -> tuple[fs.FileSystem, str]:
        return fs.LocalFileSystem(), self.directory


@dataclass(frozen=True, slots=True)
class Layout:
    """How tasks write.

    `schema` is that of the rows; `in_file` the columns that the files hold (Hive's layout leaves those of the partition
    out); `extension` ends the names; `durable`: each file is brought to the disk before the task is done.
    """

    storage: Storage
    schema: pa.Schema
    in_file: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    extension: str = ".parquet"
    durable: bool = False


@dataclass(frozen=True, slots=True)
class StagedFile:
    """`path` begins below the directory for staged files; `partition` has a value, or None, per partition column."""

    path: str
    size_bytes: int
    rows: int
    partition: tuple[Any, ...]
    metadata: pq.FileMetaData


def stage(batch: MicroBatch, layout: Layout) -> list[StagedFile]:
    """Have the tasks write the micro-batch; the files of those attempts that count."""
    directory = batch_directory(batch)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = write_files(layout, directory, batches)
        yield pa.RecordBatch.from_pydict({"files": pa.array([pickle.dumps(files)], pa.binary())})

    return [file for row in batch.rows.mapInArrow(run, "files BINARY").collect() for file in pickle.loads(row.files)]


def batch_directory(batch: MicroBatch) -> str:
    """Below the directory for staged files."""
    return f"{batch.query_id}/{batch.number}"


def leftovers(storage: Storage, batch: MicroBatch, known: Iterable[str]) -> list[str]:
    """Staged files of the micro-batch other than the known ones, as paths below the directory for staged files."""
    filesystem, root = storage.open()
    directory = f"{root}/{batch_directory(batch)}"
    selector = fs.FileSelector(directory, allow_not_found=True, recursive=True)
    found = [each.path for each in filesystem.get_file_info(selector) if each.type == fs.FileType.File]
    below = [path[len(root) + 1 :] for path in found]
    return sorted(set(below) - set(known))


def discard(storage: Storage, paths: Iterable[str]) -> None:
    """Delete staged files; another driver may be doing the same."""
    filesystem, root = storage.open()
    for path in paths:
        with suppress(FileNotFoundError):
            filesystem.delete_file(f"{root}/{path}")


def write_files(layout: Layout, directory: str, batches: Iterable[pa.RecordBatch]) -> list[StagedFile]:
    """What a task does: write the batches below `directory`."""
    files = _OpenFiles(layout, directory)
    try:
        for batch in batches:
            if batch.num_rows:
                rows = pa.Table.from_batches([batch]).cast(layout.schema)
                for partition, part in split(rows, layout.partition_by):
                    files.add(partition, part.select(layout.in_file))
        return files.close()
    except BaseException:
        files.abandon()
        raise


def split(rows: pa.Table, partition_by: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Rows by the values of their partition columns, in the order of their first row."""
    if not partition_by:
        yield (), rows
        return
    numbered = rows.select(partition_by).append_column("\0row", pa.array(range(rows.num_rows), pa.int64()))
    groups = numbered.group_by(list(partition_by), use_threads=False).aggregate([("\0row", "list")])
    values = zip(*(groups[name].to_pylist() for name in partition_by), strict=True)
    for value, numbers in zip(values, groups["\0row_list"], strict=True):
        yield value, rows.take(numbers.values)


def partition_path(names: tuple[str, ...], values: tuple[Any, ...]) -> str:
    """`carrier=UA/day=2013-01-01/`, as Hive and Spark spell it; empty without partitions."""
    return "".join(f"{quote(name, safe=' ')}={_spelled(value)}/" for name, value in zip(names, values, strict=True))


def as_text(value: Any) -> str | None:
    """A partition value in the spelling that Hive's layout and Delta share; None is null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _spelled(value: Any) -> str:
    text = as_text(value)
    return quote(text, safe=" ") if text else NULL_PARTITION


class _OpenFiles:
    """The files that a task is writing, one per partition."""

    def __init__(self, layout: Layout, directory: str) -> None:
        self._layout = layout
        self._directory = directory
        self._filesystem, self._root = layout.storage.open()
        self._schema = pa.schema([layout.schema.field(name) for name in layout.in_file])
        self._open: OrderedDict[tuple[Any, ...], _OpenFile] = OrderedDict()
        self._done: list[StagedFile] = []

    def add(self, partition: tuple[Any, ...], rows: pa.Table) -> None:
        file = self._open.pop(partition, None) or self._create(partition)
        self._open[partition] = file
        file.add(rows)
        if sum(each.buffered_bytes for each in self._open.values()) > _BUFFERED_BYTES:
            max(self._open.values(), key=lambda each: each.buffered_bytes).flush()
        if len(self._open) > _OPEN_FILES:
            self._done.append(self._open.popitem(last=False)[1].close())

    def close(self) -> list[StagedFile]:
        while self._open:
            self._done.append(self._open.popitem(last=False)[1].close())
        return self._done

    def abandon(self) -> None:
        for file in self._open.values():
            file.abandon()
        paths = [each.path for each in self._done] + [each.path for each in self._open.values()]
        discard(self._layout.storage, paths)

    def _create(self, partition: tuple[Any, ...]) -> "_OpenFile":
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        folder = f"{self._directory}/{partition_path(self._layout.partition_by, partition)}".rstrip("/")
        path = f"{folder}/{task:05}-{uuid.uuid4().hex[:12]}{self._layout.extension}"
        if self._filesystem.type_name == "local":  # an object store has no directories to make
            self._filesystem.create_dir(f"{self._root}/{folder}", recursive=True)
        return _OpenFile(self._filesystem, self._root, path, partition, self._schema, durable=self._layout.durable)


class _OpenFile:
    def __init__(
        self,
        filesystem: fs.FileSystem,
        root: str,
        path: str,
        partition: tuple[Any, ...],
        schema: pa.Schema,
        *,
        durable: bool,
    ) -> None:
        self.path = path
        self.buffered_bytes = 0
        self._partition = partition
        self._full_path = f"{root}/{path}"
        self._filesystem = filesystem
        self._durable = durable
        self._stream = filesystem.open_output_stream(self._full_path)
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(self._stream, schema, compression="zstd", metadata_collector=self._metadata)
        self._buffer: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        self._buffer.append(rows)
        self.buffered_bytes += rows.get_total_buffer_size()
        if self.buffered_bytes > _ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered as a row group."""
        if self._buffer:
            self._writer.write_table(pa.concat_tables(self._buffer))
            self._buffer.clear()
            self.buffered_bytes = 0

    def close(self) -> StagedFile:
        self.flush()
        self._writer.close()
        self._stream.close()
        if self._durable:
            sync_file(self._full_path)
        (metadata,) = self._metadata
        size = self._filesystem.get_file_info(self._full_path).size
        return StagedFile(self.path, size, metadata.num_rows, self._partition, metadata)

    def abandon(self) -> None:
        with suppress(OSError, pa.ArrowException):  # such as the full disk for which it is given up
            self._writer.close()
            self._stream.close()


def sync_file(path: str) -> None:
    """Bring a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
