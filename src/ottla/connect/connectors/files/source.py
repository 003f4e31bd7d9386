"""Files in: each row of each file once, and what is added to files of lines later."""

import contextlib
import hashlib
import posixpath
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import field_validator

from ottla.connect import schema as connect
from ottla.connect.api import (
    CommaList,
    ConfigError,
    ConnectError,
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
from ottla.connect.connectors.files.known import COMPRESSED, Facts, is_done, may_be_another, same_parquet
from ottla.connect.connectors.files.lines import LeftAlone, Lines, OpenFile, check_encoding
from ottla.connect.connectors.files.reading import (
    TYPES,
    CsvFormat,
    Found,
    csv_rows,
    json_lines,
    parquet_rows,
)
from ottla.connect.connectors.files.store import StoreSettings, explained, local_paths, store
from ottla.connect.connectors.files.trail import Replaced, Unfinished, follow, head_of, may_follow

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_SUFFIXES: Final = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_WILD: Final = re.compile(r"[*?\[]")
_SLEEP_S: Final = 0.5
_MOST_FORMER: Final = 100
_new_record: Final = SourceRecord.__new__
"""Positions of files that were replaced or taken away, for files of other names that go on from there."""


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
    encoding: str = setting(
        "Encoding of CSV and JSON lines: utf-8, latin-1, utf-16 (with a byte order mark) ...", "utf-8"
    )
    on_replaced: Literal["read", "fail", "leave"] = setting(
        "What becomes of a file that was replaced or cut off: it is read anew, the task fails, or it is left alone.",
        "read",
    )
    shard: str = setting("Which files are this task's, as number/of; set by the connector.", "0/1", pattern=r"\d+/\d+")

    @field_validator("encoding")
    @classmethod
    def _of_lines(cls, encoding: str) -> str:
        return check_encoding(encoding)

    @field_validator("csv_types")
    @classmethod
    def _known(cls, types: list[str]) -> list[str]:
        for each in types:
            if each.rpartition(":")[2] not in TYPES or ":" not in each:
                raise ValueError(f"{each!r} is not of the form column:type with a type of {', '.join(TYPES)}")
        return types


@dataclass(frozen=True, slots=True)
class _Look:
    """A file to be read. is_complete: whether it has not changed since the look before."""

    name: str
    facts: Facts
    is_complete: bool


@dataclass(frozen=True, slots=True)
class _Reading:
    """Rows of an open file. stamp: what a position keeps of the file and its bytes, if it is where the file is."""

    rows: Iterator[Found]
    stamp: Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Former:
    """How far a file was read that no longer has its name. must_be_renamed: whether a copy of it does not count, for
    it was taken away and not replaced; a compressed one beside it does. is_over: whether rows of another file came from
    the name since, after which it is read anew if it comes back."""

    name: str
    position: dict[str, Any]
    must_be_renamed: bool
    is_over: bool = False


class FileSource(Source[FileSourceSettings]):
    """Rows of CSV, JSON lines and Parquet files, of one directory or one that fits a pattern, each once.

    Files of lines may grow: whole lines that are added come too, and a last line without an end when its file has not
    changed between two looks. A position has fingerprints of what was read, so that files that were replaced or cut off
    are noticed. What begins with `_` or `.` in a directory or a pattern is left out, as it is by Spark: it is not
    finished, or about other files.
    """

    def __init__(self, settings: FileSourceSettings, context: SourceContext) -> None:
        super().__init__(settings, context)
        self._topic, self._key_fields = settings.topic, settings.key_fields
        self._store: tuple[AbstractFileSystem, str] | None = None
        self._left_alone: list[str] = []
        self._positions: dict[str, dict[str, Any]] = {}
        self._former: list[_Former] = []
        self._differences: dict[str, str] = {}
        """A sentence for each file that was replaced, until it is read from its start."""
        self._reread: str | None = None
        """The last file that was replaced and is read anew, which stays in the status."""

    @classmethod
    def local_paths(cls, settings: FileSourceSettings) -> Mapping[str, Sequence[str]]:
        """What `path` means on this machine."""
        return {"path": local_paths(settings)}

    @classmethod
    def check(cls, settings: FileSourceSettings, context: Context) -> None:
        """That the place can be reached; files may come later."""
        with explained(f"looking at {settings.path}"):
            _files(settings, *store(settings))

    @classmethod
    def tasks(cls, settings: FileSourceSettings, max_tasks: int, context: Context) -> Sequence[Mapping[str, str]]:
        """Files by their names to tasks."""
        return [{"shard": f"{number}/{max_tasks}"} for number in range(max_tasks)]

    def read(self, position: Position | None) -> Iterator[Yielded]:
        settings = self.settings
        before: dict[str, Facts] = {}
        looks_at = 0.0
        while True:
            if time.monotonic() < looks_at:
                self.context.sleep(min(_SLEEP_S, max(0.0, looks_at - time.monotonic())))
                yield None
                continue
            looks_at = time.monotonic() + settings.poll_interval_ms / 1000
            with explained(f"looking at {settings.path}"):
                found = _files(settings, *self._opened())
            before_alone, self._left_alone = self._left_alone, []
            for look in self._looks(found, before):
                with explained(f"reading {look.name}"), self._leaving_alone():
                    yield from self._read_on(look)
            before = found
            if self._left_alone or before_alone:
                self.context.warn(self._left_alone[0] if self._left_alone else self._reread)
            yield None

    def _looks(self, found: Mapping[str, Facts], before: Mapping[str, Facts]) -> Iterator[_Look]:
        """The files with something new: first those that were begun, for what has their names now may be other files,
        and they may go on under other names; then the others."""
        looks = [_Look(name, facts, is_complete=facts == before.get(name)) for name, facts in found.items()]
        for look in looks:
            if look.name not in self._positions:
                self._positions[look.name] = dict(self.context.position(_part(look.name)) or {})
        gone = {name: self._positions[name] for name in before if name not in found and self._positions[name]}
        self._former += [_Former(name, position, must_be_renamed=True) for name, position in gone.items()]
        for look in looks:
            if self._positions[look.name] and not is_done(look.name, self._positions[look.name], look.facts):
                yield look
        for look in looks:
            if not self._positions[look.name]:
                self._begin(look)
                yield look
        del self._former[:-_MOST_FORMER]

    @contextmanager
    def _leaving_alone(self) -> Iterator[None]:
        """Have other files read on when one of them cannot be."""
        try:
            yield
        except LeftAlone as reason:
            self._left_alone.append(str(reason))
        except FileNotFoundError:  # taken away since the look at what is there
            return

    def _read_on(self, look: _Look) -> Iterator[Yielded]:
        """What follows the position of a file, or nothing if another file has its name now."""
        name = look.name
        try:
            for batch in self._batches(look):
                self._positions[name] = dict(batch[-1].position or {})
                yield batch
        except Replaced as difference:
            self._set_aside(look, str(difference))
            return
        position = self._positions[name]
        if look.is_complete and not is_done(name, position, look.facts):  # one need not look again
            position.update(look.facts.identity(), size=look.facts.size)
            yield Progress(position=dict(position), part=_part(name))

    def _set_aside(self, look: _Look, difference: str) -> None:
        """Apply `on.replaced` to a file that differs from the one read under its name."""
        name = look.name
        sentence = f"{name} {difference}, so it was replaced or cut off"
        if self.settings.on_replaced == "leave":
            raise LeftAlone(
                f"{sentence}, and is left alone because of on.replaced=leave: give the new file another name, or "
                "delete "
                "the connector's offset of this one to read it from its beginning"
            )
        if self.settings.on_replaced == "fail":
            raise ConnectError(
                f"{sentence}: set on.replaced=read to read it from its beginning, or on.replaced=leave to leave it "
                "alone; or put the former file back"
            )
        self._former = [replace(each, is_over=True) if each.name == name else each for each in self._former]
        self._former.append(_Former(name, self._positions[name], must_be_renamed=False))
        self._positions[name] = {}
        self._differences[name] = sentence

    def _begin(self, look: _Look) -> None:
        """Find out whether a file has what another name had before: after a rotation it goes on where that was."""
        name = look.name
        sentence = self._differences.pop(name, None)
        candidates = [each for each in self._former if self._is_candidate(look, each)]
        head = self._head(look) if candidates else b""
        for former in candidates:
            if may_follow(head, former.position) and self._is_same(look, former):
                self._former.remove(former)
                self._positions[name] = dict(former.position)
                self.context.log.info(
                    "%s begins with the %d bytes that were read under another name: it is read on from there",
                    name,
                    former.position["bytes"],
                )
                return
        if sentence is not None:
            self._reread = f"{sentence}; it is read from its beginning"
            self.context.warn(self._reread)

    def _is_candidate(self, look: _Look, former: _Former) -> bool:
        position = former.position
        if not position.get("bytes") or "file" not in position or _format(self.settings, look.name) == "parquet":
            return False
        if former.name == look.name and former.is_over:
            return False
        is_compressed = look.name.startswith(f"{former.name}.") and look.name.endswith(COMPRESSED)
        return not former.must_be_renamed or is_compressed or bool(position["file"]["tag"] == look.facts.tag)

    def _head(self, look: _Look) -> bytes:
        files, _ = self._opened()
        with (
            explained(f"reading {look.name}"),
            contextlib.suppress(FileNotFoundError),
            files.open(look.name, "rb", compression="infer") as file,
        ):
            return head_of(OpenFile(file, look.name, is_complete=False))
        return b""

    def _is_same(self, look: _Look, former: _Former) -> bool:
        """Whether a file begins with everything that was read up to a position of another name."""
        files, _ = self._opened()
        with explained(f"reading {look.name}"), contextlib.suppress(Replaced, Unfinished, FileNotFoundError):
            with files.open(look.name, "rb", compression="infer") as file:
                follow(OpenFile(file, look.name, is_complete=False), former.position, thoroughly=True)
            return True
        return False

    def _opened(self) -> "tuple[AbstractFileSystem, str]":
        """The file system, made once for a task: one of S3 takes half a second."""
        if self._store is None:
            self._store = store(self.settings)
        return self._store

    def _batches(self, look: _Look) -> Iterator[list[SourceRecord | Progress]]:
        name = look.name
        batch: list[SourceRecord | Progress] = []
        part = _part(name)
        with self._reading(look) as reading:
            try:
                for found in reading.rows:
                    if found.wrong is None:
                        batch.append(self._record(part, found))
                    else:
                        if batch:  # it is good whatever becomes of the task
                            yield _stamped(batch, reading)
                        self.context.reject(found.wrong)
                        batch = [Progress(position=found.position, part=_part(name))]
                    if len(batch) >= self.settings.batch_max_rows:
                        yield _stamped(batch, reading)
                        batch = []
            except LeftAlone:
                if batch:
                    yield _stamped(batch, reading)
                raise
            if batch:
                yield _stamped(batch, reading)

    @contextmanager
    def _open(self, look: _Look, compression: str | None) -> Iterator[Any]:
        """A file as it was listed. Raises FileNotFoundError if another one has its name since: the next look sees it.

        What is read later is of the object that was opened: s3fs asks for its ETag, and fails if it is gone.
        """
        from fsspec.compression import compr
        from fsspec.core import get_compression

        files, _ = self._opened()
        with files.open(look.name, "rb") as file:
            if not look.facts.is_of(file):
                raise FileNotFoundError(f"{look.name} was replaced after it was listed")
            packed = compr[get_compression(look.name, compression)]
            if packed is None:
                yield file
            else:
                with packed(file, mode="r") as unpacked:
                    yield unpacked

    @contextmanager
    def _reading(self, look: _Look) -> Iterator[_Reading]:
        """A file at its position. Raises Replaced, LeftAlone if it is not, or not yet, the file that was read."""
        settings = self.settings
        name, position = look.name, self._positions[look.name]
        form = _format(settings, name)
        if form == "parquet":
            with self._open(look, None) as file:
                identity = same_parquet(file, position, look.facts)
                rows = parquet_rows(file, name, position, settings.batch_max_rows, is_complete=look.is_complete)
                yield _Reading(_until_end(rows, look.facts.size), lambda _: identity)
            return
        with self._open(look, "infer") as file:
            opened = OpenFile(file, name, is_complete=look.is_complete)
            try:
                trail = follow(opened, position, thoroughly=may_be_another(name, position, look.facts))
            except Unfinished as difference:
                if look.is_complete:
                    raise Replaced(str(difference)) from difference
                self._former.append(_Former(name, dict(position), must_be_renamed=False))  # the rest may be in a copy
                raise LeftAlone(f"{name} {difference}: it is waited for until it no longer changes") from difference
            position.update(trail.facts())
            lines = Lines(opened, name, trail, settings.encoding, is_complete=look.is_complete)
            identity = look.facts.identity()

            def stamp(at: Mapping[str, Any]) -> Mapping[str, Any]:
                return {**trail.facts(), **identity} if trail.at == at["bytes"] else {}

            if form == "jsonl":
                yield _Reading(json_lines(lines, name), stamp)
            else:
                types = dict(each.rsplit(":", 1) for each in settings.csv_types)
                csv_form = CsvFormat(settings.csv_delimiter, tuple(settings.csv_columns), types)
                yield _Reading(csv_rows(lines, name, position, csv_form), stamp)

    def _record(self, part: Part, found: Found) -> SourceRecord:
        key, key_schema = None, None
        if self._key_fields and isinstance(found.value, dict):
            key = {each: found.value.get(each) for each in self._key_fields}
            if found.schema is not None:
                fields = {each: found.schema.by_name[each].schema for each in key if each in found.schema.by_name}
                key_schema = connect.struct_of(None, fields)
        record: SourceRecord = _new_record(SourceRecord)  # ten keywords would take twice as long
        record.topic = self._topic
        record.value = found.value
        record.key = key
        record.key_schema = key_schema
        record.value_schema = found.schema
        record.headers = ()
        record.timestamp = record.partition = None
        record.position = found.position
        record.part = part
        return record


def _stamped(batch: list[SourceRecord | Progress], reading: _Reading) -> list[SourceRecord | Progress]:
    """A batch whose last position, the one that is kept, has the file's identity and fingerprints."""
    last = batch[-1]
    position = last.position or {}
    batch[-1] = replace(last, position={**position, **reading.stamp(position)})
    return batch


def _until_end(rows: Iterator[Found], size: int) -> Iterator[Found]:
    """Rows of a file, marked at the last one."""
    last: Found | None = None
    for found in rows:
        if last is not None:
            yield last
        last = found
    if last is not None:
        yield Found(last.value, last.schema, {**last.position, "size": size})


def _part(name: str) -> Part:
    return {"file": name}


def _files(settings: FileSourceSettings, files: "AbstractFileSystem", path: str) -> dict[str, Facts]:
    """The files of this task, by name in order."""
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
        name: Facts.of(facts)
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
    raise ConfigError(f"the name of {name} does not show its format: set format", "format")
