"""Files in: each row of each file once, and what is added to files of lines later."""

import hashlib
import posixpath
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

from pydantic import field_validator

from ottla.connect import schema as connect
from ottla.connect.api import (
    CommaList,
    ConfigError,
    Context,
    Part,
    Position,
    Progress,
    Source,
    SourceContext,
    SourceRecord,
    Yielded,
    setting,
)
from ottla.connect.connectors.files.reading import (
    TYPES,
    CsvFormat,
    Found,
    LeftAlone,
    csv_rows,
    json_lines,
    parquet_rows,
)
from ottla.connect.connectors.files.store import StoreSettings, explained, store

_SUFFIXES: Final = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_COMPRESSED: Final = (".gz", ".bz2", ".zst", ".xz", ".zip")
_WILD: Final = re.compile(r"[*?\[]")
_SLEEP_S: Final = 0.5


class FileSourceSettings(StoreSettings):
    """Which files, and what is in them."""

    topic: str = setting("Where the rows go.", importance="high")
    format: Literal["auto", "csv", "jsonl", "parquet"] = setting("What files are; auto: by their names.", "auto")
    poll_interval_ms: int = setting("Milliseconds between two looks for new files and rows.", 5_000, ge=1)
    batch_max_rows: int = setting("Most rows handed on at once.", 1_000, ge=1)
    key_fields: CommaList = setting("Fields of a row that are its record's key.", default_factory=list)
    csv_delimiter: str = setting("What stands between CSV's values.", ",", min_length=1, max_length=1)
    csv_columns: CommaList = setting("Names of CSV's columns; empty: the first line has them.", default_factory=list)
    csv_types: CommaList = setting(
        "Types of CSV's columns that are no texts: name:int64, name:float64, name:boolean.", default_factory=list
    )
    shard: str = setting("Which files are this task's, as number/of; set by the connector.", "0/1", pattern=r"\d+/\d+")

    @field_validator("csv_types")
    @classmethod
    def _known(cls, types: list[str]) -> list[str]:
        for each in types:
            if each.rpartition(":")[2] not in TYPES or ":" not in each:
                raise ValueError(f"{each!r} is not of the form column:type with a type of {', '.join(TYPES)}")
        return types


class FileSource(Source[FileSourceSettings]):
    """Rows of CSV, JSON lines and Parquet files, of one directory or one that fits a pattern, each once.

    Files of lines may grow: whole lines that are added come too, and a last line without an end when its file has not
    changed between two looks. Files that are replaced by others of the same name are not read again. What begins with
    `_` or `.` in a directory or a pattern is left out, as it is by Spark: it is not finished, or about other files.
    """

    def __init__(self, settings: FileSourceSettings, context: SourceContext) -> None:
        super().__init__(settings, context)
        self._left_alone: list[str] = []

    @classmethod
    def check(cls, settings: FileSourceSettings, context: Context) -> None:
        """That the place can be reached; files may come later."""
        with explained(f"looking at {settings.path}"):
            _files(settings)

    @classmethod
    def tasks(cls, settings: FileSourceSettings, max_tasks: int, context: Context) -> Sequence[Mapping[str, str]]:
        """Files by their names to tasks."""
        return [{"shard": f"{number}/{max_tasks}"} for number in range(max_tasks)]

    def read(self, position: Position | None) -> Iterator[Yielded]:
        settings = self.settings
        sizes: dict[str, int] = {}
        positions: dict[str, dict[str, Any]] = {}
        looks_at = 0.0
        while True:
            if time.monotonic() < looks_at:
                self.context.sleep(min(_SLEEP_S, looks_at - time.monotonic()))
                yield None
                continue
            looks_at = time.monotonic() + settings.poll_interval_ms / 1000
            with explained(f"looking at {settings.path}"):
                found = _files(settings)
            before_alone, self._left_alone = self._left_alone, []
            for name, size in found.items():
                before = sizes.get(name)
                sizes[name] = size
                if name not in positions:
                    positions[name] = dict(self.context.position({"file": name}) or {})
                if _is_done(name, positions[name], size):
                    continue
                with explained(f"reading {name}"), self._leaving_alone():
                    for batch in self._batches(name, positions[name], is_complete=size == before):
                        positions[name] = dict(batch[-1].position or {})
                        yield batch
                    if size == before and not _is_done(name, positions[name], size):  # one need not look again
                        positions[name]["size"] = size
                        yield Progress(position=dict(positions[name]), part=_part(name))
            if self._left_alone or before_alone:
                self.context.warn(self._left_alone[0] if self._left_alone else None)
            yield None

    @contextmanager
    def _leaving_alone(self) -> Iterator[None]:
        """Have other files read on when one of them cannot be."""
        try:
            yield
        except LeftAlone as reason:
            self._left_alone.append(str(reason))
        except FileNotFoundError:  # taken away since the look at what is there
            return

    def _batches(
        self, name: str, position: dict[str, Any], *, is_complete: bool
    ) -> Iterator[list[SourceRecord | Progress]]:
        batch: list[SourceRecord | Progress] = []
        try:
            for found in self._rows(name, position, is_complete=is_complete):
                if found.wrong is None:
                    batch.append(self._record(name, found))
                else:
                    if batch:  # it is good whatever becomes of the task
                        yield batch
                    self.context.reject(found.wrong)
                    batch = [Progress(position=found.position, part=_part(name))]
                if len(batch) >= self.settings.batch_max_rows:
                    yield batch
                    batch = []
        except LeftAlone:
            if batch:
                yield batch
            raise
        if batch:
            yield batch

    def _rows(self, name: str, position: dict[str, Any], *, is_complete: bool) -> Iterator[Found]:
        settings = self.settings
        files, _ = store(settings)
        form = _format(settings, name)
        if form == "parquet":
            with files.open(name, "rb") as file:
                rows = parquet_rows(file, name, position, settings.batch_max_rows, is_complete=is_complete)
                last: Found | None = None
                for found in rows:
                    if last is not None:
                        yield last
                    last = found
                if last is not None:  # which says that there is no more
                    yield Found(last.value, last.schema, {**last.position, "size": files.size(name)})
            return
        with files.open(name, "rb", compression="infer") as file:
            if form == "jsonl":
                yield from json_lines(file, name, position, is_complete=is_complete)
            else:
                types = dict(each.rsplit(":", 1) for each in settings.csv_types)
                csv_form = CsvFormat(settings.csv_delimiter, tuple(settings.csv_columns), types)
                yield from csv_rows(file, name, position, csv_form, is_complete=is_complete)

    def _record(self, name: str, found: Found) -> SourceRecord:
        key, key_schema = None, None
        if self.settings.key_fields and isinstance(found.value, dict):
            key = {each: found.value.get(each) for each in self.settings.key_fields}
            if found.schema is not None:
                fields = {each: found.schema.by_name[each].schema for each in key if each in found.schema.by_name}
                key_schema = connect.struct_of(None, fields)
        return SourceRecord(
            topic=self.settings.topic,
            key=key,
            key_schema=key_schema,
            value=found.value,
            value_schema=found.schema,
            part=_part(name),
            position=found.position,
        )


def _is_done(name: str, position: Mapping[str, Any], size: int) -> bool:
    """Whether nothing was added since; of compressed files, whose bytes are others, one knows only after a look."""
    if position.get("size", -1) == size:
        return True
    return position.get("bytes", -1) == size and not name.endswith(_COMPRESSED)


def _part(name: str) -> Part:
    return {"file": name}


def _files(settings: FileSourceSettings) -> dict[str, int]:
    """The files of this task, by name in order, with their sizes in bytes."""
    files, path = store(settings)
    number, _, count = settings.shard.partition("/")
    if _WILD.search(path):
        fixed = posixpath.dirname(_WILD.split(path)[0])
        found = {name: each for name, each in files.glob(path, detail=True).items() if _is_shown(name, fixed)}
    elif files.isdir(path):
        listed = {each["name"]: each for each in files.ls(path, detail=True)}
        found = {name: each for name, each in listed.items() if _is_shown(name, posixpath.dirname(name))}
    else:
        found = {path: files.info(path)}
    return {
        name: facts["size"]
        for name, facts in sorted(found.items())
        if facts["type"] == "file" and _shard(name, int(count)) == int(number)
    }


def _is_shown(name: str, below: str) -> bool:
    return not any(each.startswith(("_", ".")) for each in name.removeprefix(below).split("/"))


def _shard(name: str, count: int) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % count


def _format(settings: FileSourceSettings, name: str) -> str:
    if settings.format != "auto":
        return settings.format
    stem = name.removesuffix(".gz").removesuffix(".zst").removesuffix(".bz2")
    for suffix, form in _SUFFIXES.items():
        if stem.endswith(suffix):
            return form
    raise ConfigError(f"the name of {name} does not say what it is: set format", "format")
