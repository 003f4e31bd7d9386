"""Golden tests of a job: what its outputs hold after a given input, line by line. PURE.

    tests/<job>/<case>/input.<topic>.jsonl       records to read, one object a line
    tests/<job>/<case>/expected.<output>.jsonl   records that must come out, in any order

An output is a topic, by its name in the job file, or else the flow that writes it, with its rows as JSON. Values that
are JSON are compared as such: neither blanks nor the order of fields count.
"""

import base64
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.pipeline.errors import PipelineError

FIRST_TIMESTAMP_MS: Final = 1_767_225_600_000
"""2026-01-01: of the first record of an input that has no time; each further one is a millisecond later."""

_INPUT: Final = "input."
_EXPECTED: Final = "expected."
_SUFFIX: Final = ".jsonl"
_SHOWN: Final = 20

Line = dict[str, Any]
"""`key`, `value` and, if there are any, `headers`; `key_base64`, `value_base64` for bytes that are no text."""
Headers = Sequence[tuple[str, bytes | None]]


class GoldenError(PipelineError):
    """A case cannot be run as its files are; the message names the file."""


@dataclass(frozen=True, slots=True)
class Case:
    """One directory of a job's golden tests."""

    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name

    def inputs(self) -> dict[str, Path]:
        """The files of input, by topic."""
        return _files(self.directory, _INPUT)

    def expected(self) -> dict[str, Path]:
        """The files of what is expected, by output."""
        return _files(self.directory, _EXPECTED)

    def expected_file(self, output: str) -> Path:
        return self.directory / f"{_EXPECTED}{output}{_SUFFIX}"


def cases_of(job_file: Path, job: str) -> list[Case]:
    """The cases of a job: each directory of `tests/<job>` beside the job file. Raises GoldenError if there is none."""
    root = job_file.parent / "tests" / job
    found = sorted(each for each in root.iterdir() if each.is_dir()) if root.is_dir() else []
    if not found:
        raise GoldenError(
            f"{root} has no case: make a directory there with a file {_INPUT}<topic>{_SUFFIX} of records such as "
            '{"key": "k", "value": {"n": 1}}, then write what comes out with --update'
        )
    return [Case(each) for each in found]


def _files(directory: Path, kind: str) -> dict[str, Path]:
    return {
        file.name.removeprefix(kind).removesuffix(_SUFFIX): file
        for file in sorted(directory.glob(f"{kind}?*{_SUFFIX}"))
    }


# -- records as lines ------------------------------------------------------------------------------


def as_line(key: bytes | None, value: bytes | None, headers: Headers = ()) -> Line:
    """A record as it stands in a file of what is expected: JSON in a value stays JSON, other text is text."""
    line = _part("key", key, is_json=False) | _part("value", value, is_json=True)
    if headers:
        line["headers"] = [[name, _header(each)] for name, each in headers]
    return line


def _header(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _part(name: str, part: bytes | None, *, is_json: bool) -> Line:
    if part is None:
        return {name: None}
    try:
        text = part.decode()
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(part).decode()}
    if is_json:
        try:
            parsed = json.loads(text)
        except ValueError:
            return {name: text}
        if isinstance(parsed, dict | list):
            return {name: parsed}
    return {name: text}


def newest_by_key(lines: Iterable[Line]) -> list[Line]:
    """The last line of each key: the final content of an updated output. Keys whose last value is null are removed,
    lines
    without a key stay."""
    newest: dict[object, Line] = {}
    for number, line in enumerate(lines):
        newest[number if line.get("key", "") is None else _key(line)] = line
    return [line for line in newest.values() if line.get("value", "") is not None]


def read_lines(file: Path) -> list[Line]:
    """The lines of a file of what is expected; empty ones do not count. Raises GoldenError naming file and line."""
    lines: list[Line] = []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except ValueError as problem:
            raise GoldenError(f"{file}, line {number}: no JSON: {problem}") from None
        if not isinstance(line, dict):
            raise GoldenError(f'{file}, line {number}: no object such as {{"key": "k", "value": {{"n": 1}}}}')
        lines.append(line)
    return lines


def to_text(lines: Iterable[Line]) -> str:
    """Lines as a file, in an order that does not depend on which came first."""
    return "".join(f"{text}\n" for text in sorted(json.dumps(line, ensure_ascii=False) for line in lines))


# -- comparing -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changed:
    """A line that was expected, and the one that came in its place."""

    expected: Line
    found: Line

    def fields(self) -> list[str]:
        """The differences, one field a line: `late: 3, expected 4`."""
        before, after = _flat(self.expected), _flat(self.found)
        names = [*before, *(name for name in after if name not in before)]
        return [
            f"{name}: {_shown(after, name)}, expected {_shown(before, name)}"
            for name in names
            if before.get(name, _ABSENT) != after.get(name, _ABSENT)
        ]


@dataclass(slots=True)
class Comparison:
    """One output beside what was expected of it."""

    output: str
    matching: int = 0
    missing: list[Line] = field(default_factory=list)
    unexpected: list[Line] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not (self.missing or self.unexpected or self.changed)

    def describe(self) -> list[str]:
        """The difference for people: `-` was expected and is missing, `+` came unexpected, `~` came otherwise."""
        texts: list[str] = []
        for each in self.changed:
            texts.append(f"~ {_text(each.found)}")
            texts += [f"    {text}" for text in each.fields()]
        texts += [f"- {_text(line)}" for line in self.missing]
        texts += [f"+ {_text(line)}" for line in self.unexpected]
        left_out = len(texts) - _SHOWN
        return texts if left_out <= 0 else [*texts[:_SHOWN], f"... and {left_out:,} more lines"]


def compare(output: str, expected: Sequence[Line], found: Sequence[Line]) -> Comparison:
    """Both as sets in which a line may stand more than once. Headers count for expected lines that have some.

    Lines that do not match are paired by key.
    """
    comparison = Comparison(output)
    bare, whole = _by_text(found, headers=False), _by_text(found, headers=True)
    taken: Counter[str] = Counter()
    missing: list[Line] = []
    # those with headers choose first: the others take any
    for line in sorted(expected, key=lambda each: "headers" not in each):
        candidates = (whole if "headers" in line else bare).get(_text(line), [])
        match = next((each for each in candidates if taken[_text(each)] < len(whole[_text(each)])), None)
        if match is None:
            missing.append(line)
        else:
            taken[_text(match)] += 1
            comparison.matching += 1
    unexpected = [line for text, lines in whole.items() for line in lines[taken[text] :]]
    by_key: dict[str, list[Line]] = defaultdict(list)
    for line in unexpected:
        by_key[_key(line)].append(line)
    for line in missing:
        same_key = by_key[_key(line)]
        if same_key:
            comparison.changed.append(Changed(line, same_key.pop(0)))
        else:
            comparison.missing.append(line)
    comparison.unexpected = [line for lines in by_key.values() for line in lines]
    return comparison


_ABSENT: Final = object()


def _by_text(lines: Iterable[Line], *, headers: bool) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        shown = line if headers else {name: part for name, part in line.items() if name != "headers"}
        found[_text(shown)].append(line)
    return found


def _key(line: Line) -> str:
    return _text({name: part for name, part in line.items() if name.startswith("key")})


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, sort_keys=True)


def _flat(line: Line) -> dict[str, object]:
    """The fields of a value by their names, the rest of the line by `key`, `headers`, `value`."""
    value = line.get("value")
    return {**value, **{k: v for k, v in line.items() if k != "value"}} if isinstance(value, dict) else line


def _shown(fields: Mapping[str, object], name: str) -> str:
    return json.dumps(fields[name], ensure_ascii=False) if name in fields else "absent"
