"""Which letters would be late again if they went back: a watermark never goes back, and records keep their event time.

Only a flow's function knows the event time of a record. What is known without running it:

- The reason of a row that was late has the end of its window. It is late again in that flow, unless its time is mended.
- Of any other letter the time of the record it was made of is known. If events are sent when they happen, a record that
  is behind a flow's watermark has an event time behind it, too: then it is likely to be late.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.progress import latest
from ottla.pipeline.rows.dead_letters import DeadLetter
from ottla.pipeline.run_store import RunRecord, run_directories

_LATE: Final = re.compile(r"late: it(?:s window)? closed at (\S+), the watermark was at (\S+)")
"""The reason that `rows.late` gives."""
_INPUTS: Final = ("topic ", "captured ")
"""What descriptions of inputs begin with that are topics."""


@dataclass(frozen=True, slots=True)
class FlowWatermark:
    """How far a flow of a run is in event time, in milliseconds since 1970, and the topics that it reads."""

    run: str
    job: str
    flow: str
    topics: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class LateAgain:
    """A flow in which a letter would be late: surely, or by its record's time. `run` and `at_ms`, the watermark, are
    None for a flow that only the letter knows of: at least, it was where it set the letter's row aside."""

    flow: str
    run: str | None
    at_ms: int | None
    is_sure: bool


def watermarks(home: Path) -> list[FlowWatermark]:
    """Those of all flows of all runs in a home that have one, whether or not the run goes on now."""
    found: list[FlowWatermark] = []
    for directory in run_directories(home).values():
        try:
            record = directory.read()
        except PipelineError:  # it is no run, or one of another version: then its flows are not known
            continue
        if record.promoted_to is not None:  # another run goes on with its checkpoints
            continue
        for name, figures in latest(directory.progress).items():
            at_ms = _milliseconds(figures.watermark)
            if name in record.flows and at_ms is not None:
                found.append(FlowWatermark(record.name, record.job, name, _topics(record, name), at_ms))
    return found


def late_again(letter: DeadLetter, topic: str, flows: Sequence[FlowWatermark], *, mended: bool) -> list[LateAgain]:
    """The flows in which a letter would be late that goes to `topic`. `mended`: its time may be another one by then."""
    closed_ms = _closed_ms(letter.reason)
    readers = [each for each in flows if topic in each.topics]
    if closed_ms is None:
        behind = () if letter.timestamp_ms is None else _behind(readers, letter.timestamp_ms)
        return [LateAgain(each.flow, each.run, each.at_ms, is_sure=False) for each in behind]
    own = [each for each in readers if (each.job, each.flow) == (letter.job, letter.view)]
    sure = not mended
    found = [LateAgain(each.flow, each.run, each.at_ms, is_sure=sure) for each in _behind(own, closed_ms)]
    if not own and topic == letter.topic and letter.view is not None:  # its run is in another home
        found.append(LateAgain(letter.view, None, None, is_sure=sure))
    others = [each for each in readers if each not in own]
    return found + [LateAgain(each.flow, each.run, each.at_ms, is_sure=False) for each in _behind(others, closed_ms)]


def _behind(flows: Iterable[FlowWatermark], time_ms: int) -> list[FlowWatermark]:
    """Those whose watermark is at this time or has passed it."""
    return [each for each in flows if time_ms <= each.at_ms]


def _closed_ms(reason: str) -> int | None:
    found = _LATE.match(reason)
    return None if found is None else _milliseconds(found[1])


def _milliseconds(text: str | None) -> int | None:
    try:
        return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None


def _topics(record: RunRecord, flow: str) -> tuple[str, ...]:
    """The topics that a flow reads. A replay reads what it writes itself under its own name."""
    outputs = {each.output for each in record.flows.values()}
    found: list[str] = []
    for given in record.flows[flow].inputs:
        prefix = next((each for each in _INPUTS if given.startswith(each)), None)
        if prefix is None:
            continue
        for name in given.removeprefix(prefix).split(","):
            copy = f"{name.strip()}-{record.suffix}"
            found.append(copy if record.suffix and f"topic {copy}" in outputs else name.strip())
    return tuple(found)
