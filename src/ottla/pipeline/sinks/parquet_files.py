"""Parquet files in a directory, each row in them once, even for readers that list the directory by a glob.

    <directory>/carrier=UA/<query>-<batch>-<task>-<random>.parquet    what readers see
    <directory>/_ottla/<query id>/<batch>/...part                     staged by the tasks
    <directory>/_ottla/<query id>/<batch>.json                        the micro-batch is committed: move these files
    <directory>/_ottla/<query id>/<batch>.done                        they have been moved

Staged files have another extension, so that no `**/*.parquet` finds them. A micro-batch is committed by the one
exclusive creation of its list; after that its files are moved to where readers look, each by one atomic rename. A
reader in that moment, or after a crash in it, may see a part of the micro-batch, and never a row twice; the next start
of any query on the directory moves the rest.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.pipeline.context import Outputs, QuerySpec, RunContext, path_from
from ottla.pipeline.sinks.base import SinkError
from ottla.pipeline.sinks.batches import MicroBatch, start_batches
from ottla.pipeline.sinks.fitting import arrow_schema, check_fit, check_partitioning
from ottla.pipeline.sinks.names import column_names
from ottla.pipeline.sinks.staging import (
    Layout,
    LocalStorage,
    StagedFile,
    batch_directory,
    partition_path,
    stage,
    sync_file,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

OWN_DIRECTORY: Final = "_ottla"
"""Below the directory of the files; Spark and Arrow skip what begins with an underscore."""
STAGED: Final = ".part"
KEPT_LISTS: Final = 10
"""Lists kept of each query: a driver that was thought dead finds that its micro-batch is committed."""
_SHORT_ID: Final = 8


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Parquet files as an output. See `parquet`."""

    path: str
    partition_by: tuple[str, ...] = ()

    def describe(self) -> str:
        return f"Parquet files {self.path}"

    def start(self, rows: "DataFrame", query: QuerySpec) -> "StreamingQuery":
        """Raises SinkError if the mode is not append or the files there have other columns."""
        schema = arrow_schema(rows.schema, self.describe())
        return start_batches(rows, query, self.writer(schema, query.mode, query.context).write)

    def writer(self, schema: pa.Schema, mode: str, context: RunContext) -> "ParquetWriter":
        """What writes micro-batches of such rows. Raises SinkError as `start`."""
        if mode != "append":
            raise SinkError(
                f"{self.describe()} can only be added to, and mode '{mode}' changes rows: "
                "write to delta(...), iceberg(...) or database(...)"
            )
        directory = local_directory(self.path, context.directory)
        check_partitioning(schema, self.partition_by, self.describe())
        in_file = tuple(name for name in schema.names if name not in self.partition_by)
        recover(directory)
        self._check_present(directory, schema, in_file)
        storage = LocalStorage(str(directory / OWN_DIRECTORY))
        layout = Layout(storage, schema, in_file, self.partition_by, extension=STAGED, durable=True)
        return ParquetWriter(directory, layout)

    def renamed(self, suffix: str) -> "ParquetFiles":
        return replace(self, path=f"{self.path.rstrip('/')}-{suffix}")

    def last_batch(self, query_id: str, outputs: Outputs) -> int | None:
        """By the lists of what was moved. Raises SinkError for an object store."""
        lists = local_directory(self.path, outputs.directory) / OWN_DIRECTORY / query_id
        return max((int(path.stem) for path in lists.glob("*.json")), default=None)

    def read(self, context: RunContext) -> "DataFrame":
        """The files by Spark's own reader. Raises SinkError if there are none."""
        directory = local_directory(self.path, context.directory)
        recover(directory)
        if next(parquet_paths(directory), None) is None:
            raise SinkError(f"{self.describe()}: there are none yet")
        return context.spark.read.parquet(str(directory))

    def compact(self, directory: Path) -> str:
        """Rewrite small files as few large ones, directory by directory.

        Reads of a directory during the exchange may miss rows or fail for a removed file: pause
        readers, or use a table format.
        """
        from ottla.pipeline.sinks.parquet_compaction import compact

        return compact(local_directory(self.path, directory))

    def _check_present(self, directory: Path, schema: pa.Schema, in_file: Sequence[str]) -> None:
        present = next(parquet_paths(directory), None)
        if present is None:
            return
        names = tuple(part.partition("=")[0] for part in present.relative_to(directory).parent.parts if "=" in part)
        if names != self.partition_by:
            raise SinkError(
                f"{self.describe()} are partitioned by {', '.join(names) or 'nothing'}, "
                f"the job asks for {', '.join(self.partition_by) or 'no partitions'}: write to another directory"
            )
        check_fit(pq.read_schema(present), pa.schema([schema.field(name) for name in in_file]), self.describe())


def parquet(path: str, *, partition_by: str | Sequence[str] = ()) -> ParquetFiles:
    """Parquet files in a directory of a file system that driver and executors share, each row exactly once.

    A relative path is meant from the job file's directory. `partition_by` columns become directories
    (`carrier=UA/`), as Hive, Spark, DuckDB and Arrow read them. Mode append only.
    """
    return ParquetFiles(path, column_names(partition_by))


def local_directory(path: str, job_directory: Path) -> Path:
    """Raises SinkError for an object store, which cannot rename."""
    given = path_from(job_directory, path)
    address = urlparse(given)
    if address.scheme not in ("", "file"):
        raise SinkError(
            f"Parquet files {path} would lie in an object store, where files cannot be moved into sight in one step: "
            "write to delta(...) or iceberg(...)"
        )
    return Path(address.path if address.scheme else given)


def parquet_paths(directory: Path) -> Iterator[Path]:
    """The files that readers see."""
    for path in directory.rglob("*.parquet"):
        if not path.relative_to(directory).parts[0].startswith("_"):
            yield path


@dataclass(frozen=True, slots=True)
class ParquetWriter:
    """Writes micro-batches into a directory."""

    directory: Path
    layout: Layout

    def write(self, batch: MicroBatch) -> None:
        """Both phases of one micro-batch, or just its computation if it is committed already.

        What lies staged is removed only when the micro-batch is committed: until then it may belong to a driver that
        was thought dead and is about to commit it.
        """
        lists = self.directory / OWN_DIRECTORY / batch.query_id
        if is_committed(lists, batch.number):
            batch.run()
        else:
            moves = [_move(self.layout, batch, file) for file in stage(batch, self.layout)]
            if not moves:
                return
            commit(lists, batch.number, moves)
        recover(self.directory)
        shutil.rmtree(self.directory / OWN_DIRECTORY / batch_directory(batch), ignore_errors=True)


def is_committed(lists: Path, number: int) -> bool:
    """Is this micro-batch, or a later one of the query, committed?"""
    return any(int(path.stem) >= number for path in lists.glob("*.json"))


def commit(lists: Path, number: int, moves: list[tuple[str, str]]) -> None:
    """The one atomic step: from here on the files belong to the directory. Done before, it changes nothing.

    `moves` are pairs of paths below the directory: from where, and to where.
    """
    lists.mkdir(parents=True, exist_ok=True)
    draft = lists / f"{number}.draft-{os.getpid()}"
    with draft.open("w") as file:
        json.dump(moves, file)
        file.flush()
        os.fsync(file.fileno())
    try:
        if not is_committed(lists, number):
            os.link(draft, lists / f"{number}.json")
    except FileExistsError:
        pass  # a driver that was thought dead has done it
    finally:
        draft.unlink()
    sync_file(str(lists))


def recover(directory: Path) -> None:
    """Move what is committed to where readers look."""
    for path in sorted((directory / OWN_DIRECTORY).glob("*/*.json")):
        done = path.with_suffix(".done")
        if done.exists():
            continue
        with suppress(FileNotFoundError):  # another query on the directory was quicker, and is further
            moves = json.loads(path.read_text())
            for folder in {_moved(directory, *move, listed_in=path) for move in moves}:
                sync_file(str(folder))
            done.touch()
            _forget(path.parent, int(path.stem) - KEPT_LISTS)


def _forget(lists: Path, last: int) -> None:
    """Drop what is known of micro-batches up to that number, and what was never committed."""
    for path in lists.iterdir():
        number = path.name.partition(".")[0]
        if number.isdigit() and int(number) <= last and path.is_file():
            path.unlink(missing_ok=True)


def _moved(directory: Path, staged: str, final: str, *, listed_in: Path) -> Path:
    """Move a file, unless that is done; the directory it is in. Raises SinkError if it is in neither place."""
    target = directory / final
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        (directory / staged).rename(target)
    except FileNotFoundError:
        if not target.exists() and listed_in.exists() and not listed_in.with_suffix(".done").exists():
            raise SinkError(
                f"{directory} has lost {staged}, which was committed and should be at {final}: "
                "someone has deleted files below it"
            ) from None
    return target.parent


def _move(layout: Layout, batch: MicroBatch, file: StagedFile) -> tuple[str, str]:
    folder = partition_path(layout.partition_by, file.partition)
    name = Path(file.path).name.removesuffix(STAGED)
    final = f"{folder}{batch.query_id[:_SHORT_ID]}-{batch.number:06}-{name}.parquet"
    return f"{OWN_DIRECTORY}/{file.path}", final
