"""Many small Parquet files of a directory as few large ones.

A directory has no versions: between the removal of the small files and the move of the large one into their place,
readers miss rows. It is done in this order so that they never see a row twice, and noted beforehand, so that what a
crash interrupts is finished by the next compaction:

    <directory>/_ottla/compaction/<random>.part        the large file
    <directory>/_ottla/compaction/<random>.exchange    the files it replaces, and its final name
"""

import fcntl
import json
import os
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.pipeline.sinks.base import SinkError
from ottla.pipeline.sinks.parquet_files import OWN_DIRECTORY, STAGED, parquet_paths, recover
from ottla.pipeline.sinks.staging import sync_file

TARGET_BYTES: Final = 128 << 20
"""Size of a compacted file."""
SMALL_BYTES: Final = TARGET_BYTES * 3 // 4
"""Files below this are compacted."""
_ROWS_AT_ONCE: Final = 100_000
_DIRECTORY: Final = "compaction"


def compact(directory: Path) -> str:
    """Rewrite small files; what was done, in one phrase. Raises SinkError if another one is at it."""
    own = directory / OWN_DIRECTORY / _DIRECTORY
    own.mkdir(parents=True, exist_ok=True)
    removed = added = 0
    with _alone(own, directory):
        finish(directory)
        recover(directory)
        for small in _small_neighbours(directory):
            _rewrite(directory, own, small)
            removed, added = removed + len(small), added + 1
    return f"{removed} files became {added}" if removed else "no small files"


def finish(directory: Path) -> None:
    """Finish the exchanges that a crash interrupted, and drop what never came so far."""
    own = directory / OWN_DIRECTORY / _DIRECTORY
    for note in own.glob("*.exchange"):
        _exchange(directory, note)
    for large in own.glob(f"*{STAGED}"):
        large.unlink()


@contextmanager
def _alone(own: Path, directory: Path) -> Iterator[None]:
    with (own / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SinkError(f"the Parquet files of {directory} are being compacted by another process") from error
        yield


def _small_neighbours(directory: Path) -> Iterator[list[Path]]:
    """Two or more small files of one directory, as many as make a large one."""
    by_folder: dict[Path, list[Path]] = defaultdict(list)
    for path in sorted(parquet_paths(directory)):
        if path.stat().st_size < SMALL_BYTES:
            by_folder[path.parent].append(path)
    for paths in by_folder.values():
        chosen: list[Path] = []
        size = 0
        for path in paths:
            if size + path.stat().st_size > TARGET_BYTES:
                if len(chosen) > 1:
                    yield chosen
                chosen, size = [], 0
            chosen.append(path)
            size += path.stat().st_size
        if len(chosen) > 1:
            yield chosen


def _rewrite(directory: Path, own: Path, small: list[Path]) -> None:
    name = uuid.uuid4().hex[:12]
    large = own / f"{name}{STAGED}"
    # a job that changed may have written other widths, orders of columns or nullability of what is one table to readers
    schema = pa.schema([each.with_nullable(True) for each in pq.read_schema(small[0])])
    with pq.ParquetWriter(large, schema, compression="zstd") as writer:
        for path in small:
            with pq.ParquetFile(path) as file:
                if set(file.schema_arrow.names) != set(schema.names):
                    raise SinkError(
                        f"{path} has not the columns of {small[0]}: bring both to the same, then compact again"
                    )
                for batch in file.iter_batches(_ROWS_AT_ONCE):
                    writer.write_table(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
    sync_file(str(large))
    note = own / f"{name}.exchange"
    draft = own / f"{name}.draft"
    final = small[0].parent / f"compacted-{name}.parquet"
    exchange = {
        "remove": [str(path.relative_to(directory)) for path in small],
        "add": str(final.relative_to(directory)),
    }
    with draft.open("w") as file:
        json.dump(exchange, file)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(note)
    sync_file(str(own))
    _exchange(directory, note)


def _exchange(directory: Path, note: Path) -> None:
    exchange = json.loads(note.read_text())
    for path in exchange["remove"]:
        (directory / path).unlink(missing_ok=True)
    final = directory / exchange["add"]
    large = note.with_suffix(STAGED)
    if large.exists():
        large.rename(final)
    sync_file(str(final.parent))
    note.unlink()
