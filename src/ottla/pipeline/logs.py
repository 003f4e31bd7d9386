"""The story of a run from the files that its parts write, in the order in which it happened."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Final

FILES: Final = {"job": "job.log", "spark": "spark.log", "processes": "spark.err"}
"""By what wrote them: the job and its libraries, Spark, its processes and Python workers."""
_TIMED: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[.,](\d{3}) ")


@dataclass(frozen=True, slots=True)
class Entry:
    """What was logged at once, with its traceback, if it has one: `text` may have several lines."""

    at: datetime
    source: str
    text: str


def entries(directory: Path) -> list[Entry]:
    """All that the files of a run hold, oldest first; lines without a time, as processes write them, have that of the
    file's last change. Raises OSError."""
    found = (each for source, name in FILES.items() for each in _entries_of(directory / name, source))
    return sorted(found, key=attrgetter("at"))


def about(found: Iterable[Entry], run: str, flow: str) -> Iterator[Entry]:
    """Those that name the flow, as Spark does its query (`<run>.<flow>`), or as a word."""
    named = re.compile(rf"(?<![\w-])(?:{re.escape(run)}\.)?{re.escape(flow)}(?![\w-])")
    return (each for each in found if named.search(each.text))


def _entries_of(file: Path, source: str) -> Iterator[Entry]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
        at = datetime.fromtimestamp(file.stat().st_mtime)  # noqa: DTZ006 - as in the files: local times
    except FileNotFoundError:
        return
    lines: list[str] = []
    for line in text.splitlines():
        began = _TIMED.match(line)
        if began is not None:
            if lines:
                yield Entry(at, source, "\n".join(lines))
            lines = []
            at = datetime.strptime(f"{began[1]}.{began[2]}", "%Y-%m-%d %H:%M:%S.%f")  # noqa: DTZ007 - as in the files
        lines.append(line)
    if lines:
        yield Entry(at, source, "\n".join(lines))
