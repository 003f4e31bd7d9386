"""Files out: chunks of each partition as files whose names say where they begin, each row in one of them once.

What makes it exactly once is one small file per partition under `_offsets`, which is replaced as a whole:

    {"next": 700}                   everything before 700 is in files
    {"next": 700, "until": 950}     the chunk from 700 to 950 is being written
    {"next": 950}                   it is written

and beside these `cluster_id` and `topic_id`, which say what the offsets are places in.

After a crash amid the second, exactly those records make exactly those files again, over what is there of them.
"""

import datetime as dt
import io
import json
import os
import posixpath
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal
from urllib.parse import quote

from pydantic import model_validator

from ottla.connect.api import (
    CommaList,
    ConnectError,
    Context,
    KeptOffset,
    LogIdentity,
    Sink,
    SinkContext,
    SinkRecord,
    TopicPartition,
    setting,
)
from ottla.connect.connectors.files.store import StoreSettings, explained, local_paths, store
from ottla.connect.connectors.formats.json_text import plain
from ottla.connect.schema import Schema

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_OFFSETS: Final = "_offsets"
_SUFFIXES: Final = {"none": "", "gzip": ".gz", "zstd": ".zst"}
_STRFTIME: Final = re.compile(r"%[YmdHMj]")


class FileSinkSettings(StoreSettings):
    """What files are like, and when one is full."""

    format: Literal["jsonl", "parquet"] = setting("JSON lines or Parquet.", "jsonl", importance="high")
    flush_size: int = setting("Records of a partition of the topic in one chunk.", 10_000, ge=1)
    rotate_interval_ms: int = setting("Milliseconds after which a chunk that is not full is written.", 60_000, ge=1)
    partition_field_name: CommaList = setting(
        "Fields of values by which files are put into directories, field=value.", default_factory=list
    )
    path_format: str = setting(
        "Directories by time, such as year=%Y/month=%m/day=%d/hour=%H, in UTC; not with partition.field.name.", ""
    )
    timestamp_field: str = setting("Field with the time for path.format; empty: the record's own.", "")
    compression_type: Literal["none", "gzip", "zstd"] = setting("Compression of files (of columns in Parquet).", "none")
    behavior_on_null_values: Literal["fail", "ignore"] = setting(
        "Whether a record without a value is an error or left out.", "fail"
    )

    @model_validator(mode="after")
    def _one_way(self) -> "FileSinkSettings":
        if self.partition_field_name and self.path_format:
            raise ValueError("partition.field.name and path.format exclude each other: set one of them")
        if self.path_format and _STRFTIME.search(self.path_format) is None:
            raise ValueError("path.format has none of %Y, %m, %d, %j, %H and %M")
        return self


@dataclass(slots=True)
class _Chunk:
    """Records that are not in files yet. start: the offset at which it begins; until: where it has to end, if that was
    settled before a crash; next: everything before is in files, here or left out."""

    start: int
    until: int | None = None
    records: list[SinkRecord] = field(default_factory=list)
    since: float = 0.0
    next: int = field(init=False)

    def __post_init__(self) -> None:
        self.next = self.start

    @property
    def end(self) -> int:
        return self.until if self.until is not None else self.next


class FileSink(Sink[FileSinkSettings]):
    """Records into files of JSON lines or Parquet, here or in an object store, each once.

    Files are called `path/topic/[directories/]topic+partition+offset.jsonl`, after the offset of their first record.
    """

    most_records: ClassVar[int] = 10_000

    def __init__(self, settings: FileSinkSettings, context: SinkContext) -> None:
        super().__init__(settings, context)
        self._now: Callable[[], float] = time.monotonic
        self._store: tuple[AbstractFileSystem, str] | None = None
        self._chunks: dict[TopicPartition, _Chunk] = {}

    @classmethod
    def local_paths(cls, settings: FileSinkSettings) -> Mapping[str, Sequence[str]]:
        """What `path` means on this machine."""
        return {"path": local_paths(settings)}

    @classmethod
    def check(cls, settings: FileSinkSettings, context: Context) -> None:
        """That the place can be reached."""
        with explained(f"looking at {settings.path}"):
            files, path = store(settings)
            files.exists(path)

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        if self._store is None:
            self._store = store(self.settings)

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = {}
        for partition in partitions:
            noted = self._noted(partition)
            if noted is not None:
                self._chunks[partition] = _Chunk(noted["next"], noted.get("until"))
                log = LogIdentity(noted.get("cluster_id"), noted.get("topic_id"))
                found[partition] = KeptOffset(noted["next"], log)
            else:
                self._chunks.pop(partition, None)
        return found

    def alter_offsets(self, offsets: Mapping[TopicPartition, int | None] | None) -> None:
        for partition, offset in ({} if offsets is None else offsets).items():
            if offset is None:
                self._forget(self._offset_name(partition))
            else:
                self._note(partition, {"next": offset})
        if offsets is None:
            self._forget(posixpath.join(_OFFSETS, _as_directory(self.context.connector)))

    def write(self, batch: Sequence[SinkRecord]) -> None:
        for record in batch:
            chunk = self._chunks.get(record.origin)
            if chunk is None:
                chunk = self._chunks[record.origin] = _Chunk(record.offset)
            if chunk.until is not None and record.offset >= chunk.until:
                self._write(record.origin, chunk)
                chunk = self._chunks[record.origin]
            if record.offset < chunk.next:  # also what came before a file could not be written: it is handed in again
                continue
            reason = self._unfit(record)
            if reason is not None:
                self.context.reject(record, reason)
            chunk.next = record.offset + 1
            if reason is not None or record.value is None:
                continue
            if not chunk.records:
                chunk.since = self._now()
            chunk.records.append(record)
            if chunk.until is None and len(chunk.records) >= self.settings.flush_size:
                self._write(record.origin, chunk)

    def flush(self) -> Mapping[TopicPartition, int] | None:
        old = self._now() - self.settings.rotate_interval_ms / 1000
        for partition, chunk in list(self._chunks.items()):
            # a chunk that was settled and is complete could not be written: it need not wait for a record after it
            due = chunk.since <= old if chunk.until is None else chunk.next >= chunk.until
            if chunk.records and due:
                self._write(partition, chunk)
        return {partition: chunk.start for partition, chunk in self._chunks.items() if chunk.records}

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._chunks.pop(partition, None)

    def _write(self, partition: TopicPartition, chunk: _Chunk) -> None:
        """Settle where the chunk ends, write its files, then say that they are there."""
        end = chunk.end
        if chunk.records:
            if chunk.until is None:
                self._note(partition, {"next": chunk.start, "until": end} | self._log(partition))
                chunk.until = end
            for name, records in self._files(chunk.records):
                self._put(name, self._encoded(records))
        self._note(partition, {"next": end} | self._log(partition))
        self._chunks[partition] = _Chunk(end)

    def _files(self, records: Sequence[SinkRecord]) -> list[tuple[str, list[SinkRecord]]]:
        """Records by file: one for each directory, and a new one where the schema changes."""
        made: list[tuple[str, list[SinkRecord]]] = []
        open_ones: dict[str, tuple[Schema | None, list[SinkRecord]]] = {}
        suffix = (
            ".parquet" if self.settings.format == "parquet" else ".jsonl" + _SUFFIXES[self.settings.compression_type]
        )
        for record in records:
            directory = self._directory(record)
            found = open_ones.get(directory)
            if found is None or found[0] != record.value_schema:
                found = open_ones[directory] = (record.value_schema, [])
                origin = record.origin
                name = f"{origin.topic}+{origin.partition}+{record.offset:010}{suffix}"
                made.append((posixpath.join(origin.topic, directory, name), found[1]))
            found[1].append(record)
        return made

    def _unfit(self, record: SinkRecord) -> str | None:
        """Why no file can hold a record: asked before it is one of a chunk, whose records are written together."""
        if record.value is None:
            if self.settings.behavior_on_null_values == "ignore":
                return None
            return f"the record at {_where(record)} has no value, which no file can hold"
        if self.settings.format == "parquet" and not isinstance(record.value, dict):
            return f"the record at {_where(record)} is no struct or object, which Parquet needs"
        try:
            self._directory(record)
        except (ValueError, OverflowError) as error:
            field = self.settings.timestamp_field or "timestamp"
            return (
                f"the record at {_where(record)} has no time in field {field} ({error}): "
                "milliseconds, a Timestamp or ISO 8601 is needed"
            )
        return None

    def _directory(self, record: SinkRecord) -> str:
        settings = self.settings
        if settings.partition_field_name:
            parts = ((name, _of(record, name)) for name in settings.partition_field_name)
            return "/".join(
                f"{name}={'null' if value is None else quote(str(value), safe='')}" for name, value in parts
            )
        if settings.path_format:
            return self._time(record).strftime(settings.path_format)
        return ""

    def _time(self, record: SinkRecord) -> dt.datetime:
        found = _of(record, self.settings.timestamp_field) if self.settings.timestamp_field else record.timestamp or 0
        if isinstance(found, dt.datetime):
            return found.astimezone(dt.UTC)
        if isinstance(found, str):
            return dt.datetime.fromisoformat(found).astimezone(dt.UTC)
        if isinstance(found, int | float):
            return dt.datetime.fromtimestamp(found / 1000, dt.UTC)
        raise ValueError(f"it has {found!r}")

    def _encoded(self, records: Sequence[SinkRecord]) -> bytes:
        settings = self.settings
        if settings.format == "parquet":
            return self._parquet(records)
        lines = b"".join([_line(each.value) for each in records])
        if settings.compression_type == "none":
            return lines
        import pyarrow as pa

        target = pa.BufferOutputStream()  # closing the stream closes its target, after which BytesIO has no value
        with pa.CompressedOutputStream(target, settings.compression_type) as compressed:
            compressed.write(lines)
        encoded: bytes = target.getvalue().to_pybytes()
        return encoded

    def _parquet(self, records: Sequence[SinkRecord]) -> bytes:
        import pyarrow.parquet as pq

        from ottla.connect.connectors.formats.arrow import table

        target = io.BytesIO()
        rows = table([each.value for each in records], records[0].value_schema)
        pq.write_table(rows, target, compression=self.settings.compression_type)
        return target.getvalue()

    def _noted(self, partition: TopicPartition) -> dict[str, Any] | None:
        files, path = self._opened()
        name = posixpath.join(path, self._offset_name(partition))
        with explained(f"reading {name}"):
            try:
                noted: dict[str, Any] = json.loads(files.cat_file(name))
            except FileNotFoundError:
                return None
            return noted

    def _log(self, partition: TopicPartition) -> dict[str, Any]:
        """The ids that name the log of an offset."""
        log = self.context.identity(partition.topic)
        ids = {"cluster_id": log.cluster_id, "topic_id": log.topic_id}
        return {name: each for name, each in ids.items() if each is not None}

    def _note(self, partition: TopicPartition, noted: Mapping[str, Any]) -> None:
        self._put(self._offset_name(partition), json.dumps(noted).encode())

    def _forget(self, name: str) -> None:
        """A file, or a directory with all that is in it."""
        files, path = self._opened()
        target = posixpath.join(path, name)
        with explained(f"removing {target}"):
            if files.exists(target):
                files.rm(target, recursive=True)

    def _offset_name(self, partition: TopicPartition) -> str:
        directory = _as_directory(self.context.connector)
        return posixpath.join(_OFFSETS, directory, f"{partition.topic}-{partition.partition}.json")

    def _put(self, name: str, content: bytes) -> None:
        """A file as a whole: there with all of its content, or not at all."""
        files, path = self._opened()
        target = posixpath.join(path, name)
        with explained(f"writing {target}"):
            if files.async_impl:  # object stores: an object appears when it is complete
                files.pipe_file(target, content)
                return
            unfinished = posixpath.join(posixpath.dirname(target), f".{posixpath.basename(target)}.unfinished")
            files.makedirs(posixpath.dirname(target), exist_ok=True)
            with files.open(unfinished, "wb") as file:
                file.write(content)
                if "file" in files.protocol:  # offsets may be kept elsewhere from now on: power may fail
                    file.flush()
                    os.fsync(file.fileno())
            files.mv(unfinished, target)

    def _opened(self) -> "tuple[AbstractFileSystem, str]":
        if self._store is None:
            raise ConnectError("the sink was not opened")
        return self._store


def _as_directory(connector: str) -> str:
    """A connector's name as that of one directory, whatever is in it."""
    escaped = connector.replace("%", "%25").replace("/", "%2F")
    return escaped.replace(".", "%2E") if escaped in (".", "..") else escaped


def _line(value: Any) -> bytes:
    try:
        return f"{json.dumps(value, default=plain, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:  # half of a pair, which JSON can name and UTF-8 cannot hold
        return f"{json.dumps(value, default=plain)}\n".encode()


def _of(record: SinkRecord, name: str) -> Any:
    return record.value.get(name) if isinstance(record.value, dict) else None


def _where(record: SinkRecord) -> str:
    return f"{record.origin.topic}-{record.origin.partition}, offset {record.offset},"
