"""The newest record of each key of a topic, kept in a file that follows the topic.

    records ──▶ newest of each key ──▶ 7.arrow       a snapshot: what the table holds
       ▲                               current.json  which snapshot counts, and up to which offsets it was read
       └── only those from these offsets on

A snapshot is never changed: a task that reads one goes on reading it while the next is made. An update of the table
holds a lock on the directory, so that several queries of a run can share it.

A record without a value deletes its key; the log forgets it after `delete.retention.ms` (a day). So a table that was
not brought up to date for half a day is read anew, as is one whose topic was deleted and made again.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.offsets import FlatOffsets, OffsetRange, Partition

Read = Callable[[OffsetRange], Iterable[pa.RecordBatch]]

_CURRENT: Final = "current.json"
_SUFFIX: Final = ".arrow"
_READ_ANEW_AFTER_S: Final = 12 * 3600.0
_KEPT_FOR_S: Final = 900.0
"""Time until an outdated snapshot is deleted: a task may still be reading it."""


class NoKeyError(ValueError):
    """A record without a key is no row of a table."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`offsets` is where it has been read up to, `ids` of which topic, `at` when, in seconds since 1970."""

    file: Path
    rows: int
    offsets: FlatOffsets
    topic_id: str
    at: float

    def read(self) -> pa.Table:
        """The newest records, tombstones left out; as little of the file as is used is in memory."""
        with pa.memory_map(str(self.file)) as source:
            return pa.ipc.open_file(source).read_all()


@contextmanager
def locked_directory(directory: Path) -> Iterator[None]:
    """Make a directory if it is not there, and keep the other processes of this machine from bringing it up to date."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(slots=True)
class TableCache:
    """One topic's table below `directory`. `schema` is that of its records in Arrow, with `key`, `value`, `partition`,
    `offset` and `timestamp`."""

    directory: Path
    schema: pa.Schema
    clock: Callable[[], float] = field(default=time.time)

    def locked(self) -> AbstractContextManager[None]:
        """While it is brought up to date."""
        return locked_directory(self.directory)

    def current(self) -> Snapshot | None:
        """The snapshot that counts; None if there is none, or it cannot be read."""
        try:
            found = json.loads((self.directory / _CURRENT).read_text())
            offsets = {Partition(topic, number): offset for topic, number, offset in found["offsets"]}
            snapshot = Snapshot(
                self.directory / found["file"], found["rows"], offsets, found["topic_id"], float(found["at"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return snapshot if snapshot.file.exists() else None

    def follow(self, begins: FlatOffsets, ends: FlatOffsets, topic_id: str, read: Read) -> Snapshot:
        """The table as of the offsets `ends`: what has been appended since the last time is read, and merged.

        `begins` are the earliest offsets there are. Raises NoKeyError, and whatever `read` raises; then the snapshot
        that counted goes on counting. To be called while `locked`.
        """
        now = self.clock()
        before = self.current()
        if before is not None and not self._goes_on(before, ends, topic_id, now):
            before = None
        done = {} if before is None else before.offsets
        ranges = [
            OffsetRange(partition, max(done.get(partition, 0), begins[partition]), end)
            for partition, end in sorted(ends.items())
            if max(done.get(partition, 0), begins[partition]) < end
        ]
        if before is not None and not ranges:
            return self._save(Snapshot(before.file, before.rows, ends, topic_id, now))
        new = pa.Table.from_batches([batch for each in ranges for batch in read(each)], self.schema)
        old = self.schema.empty_table() if before is None else before.read()
        rows = newest(old, new)
        file = self.directory / f"{_next_number(self.directory)}{_SUFFIX}"
        writing = file.with_suffix(".new")
        with pa.OSFile(str(writing), "wb") as sink, pa.ipc.new_file(sink, self.schema) as writer:
            writer.write_table(rows)
        os.replace(writing, file)
        snapshot = self._save(Snapshot(file, rows.num_rows, ends, topic_id, now))
        self._clean(file, now)
        return snapshot

    def _goes_on(self, before: Snapshot, ends: FlatOffsets, topic_id: str, now: float) -> bool:
        """Whether what is known is the beginning of what there is now."""
        is_same = before.topic_id == topic_id and all(
            offset <= ends.get(partition, -1) for partition, offset in before.offsets.items()
        )
        return is_same and now - before.at < _READ_ANEW_AFTER_S

    def _save(self, snapshot: Snapshot) -> Snapshot:
        content = {
            "file": snapshot.file.name,
            "rows": snapshot.rows,
            "offsets": [[each.topic, each.number, offset] for each, offset in sorted(snapshot.offsets.items())],
            "topic_id": snapshot.topic_id,
            "at": snapshot.at,
        }
        writing = self.directory / f".{_CURRENT}.new"
        writing.write_text(json.dumps(content))
        os.replace(writing, self.directory / _CURRENT)
        return snapshot

    def _clean(self, counts: Path, now: float) -> None:
        for file in self.directory.glob(f"*{_SUFFIX}"):
            with suppress(OSError):
                if file != counts and now - file.stat().st_mtime > _KEPT_FOR_S:
                    file.unlink()


def newest(old: pa.Table, new: pa.Table) -> pa.Table:
    """The newest record of each key, without deleted keys. Raises NoKeyError.

    Within a partition the offset decides; between partitions, where a key moves if a topic grows, the time.
    """
    without_key = new.filter(pc.is_null(new["key"]))
    if without_key.num_rows:
        topic, partition, offset = (without_key[name][0].as_py() for name in ("topic", "partition", "offset"))
        raise NoKeyError(
            f"the record at offset {offset} of {topic}-{partition} has no key: a table has one row for each key"
        )
    if new.num_rows == 0:
        return old
    in_log = pa.concat_tables([old, new]).sort_by([("partition", "ascending"), ("offset", "ascending")])
    of_partitions = _last_of_each(in_log, ["key", "partition"])
    in_time = of_partitions.sort_by([("timestamp", "ascending"), ("partition", "ascending")])
    rows = _last_of_each(in_time, ["key"])
    return rows.filter(pc.is_valid(rows["value"])).combine_chunks()


def _last_of_each(rows: pa.Table, by: list[str]) -> pa.Table:
    numbered = rows.select(by).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(by).aggregate([("row", "max")])["row_max"]
    return rows.take(last.combine_chunks().sort())


def _next_number(directory: Path) -> int:
    return 1 + max((int(file.stem) for file in directory.glob(f"*{_SUFFIX}") if file.stem.isdigit()), default=0)
