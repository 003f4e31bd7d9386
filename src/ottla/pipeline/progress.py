"""The state of a running query: figures from Spark's progress events, and the file that keeps them.

A line of progress.jsonl is `Figures` as JSON. Spark reports each micro-batch; a flow gets a line a second at most, and
one every ten seconds while nothing comes.
"""

import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

from ottla.pipeline.lag import Lag, Offsets

REJECTED: Final = "ottla_rejected"
"""The observed metric in which a query for dead letters counts its rows, in the column of that name. The other columns
have the names of checks, and the rows that those have rejected."""
LOOKUPS: Final = "ottla_lookups_"
"""Begins the name of an observed metric that counts what a join as of event time has found: a number, a colon, and the
history follow."""
WAITED_ROWS: Final = "waited"
EXPECTATIONS: Final = "ottla_expectations_"
"""Begins the observed metric in which a query counts the rows that break the expectations of a view; the view's name
follows."""
BESIDE: Final = "#"
"""In an offset of Ottla's sources, the key of what is no topic."""
TIME_MS: Final = "timeMs"
"""Beside no topics, only a time: of an input that may be idle (`rows.idle`), or of a flow upstream (`rows.aligned`)."""
FLOWS: Final = "flows"
"""Beside a time, the flows upstream whose watermark it is."""
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RATE_OVER_S: Final = 10.0
"""The time over which records are counted for a rate, unless the last micro-batch took longer than half of it."""
_IDLE_AFTER_S: Final = 60.0
_LINE_EVERY_S: Final = 1.0
_IDLE_LINE_EVERY_S: Final = 10.0
_LARGEST_FILE: Final = 4 << 20
_TAIL: Final = 256 << 10


class Expectation(TypedDict):
    """What becomes of rows that break it (`warn`, `drop`, `quarantine`, `fail`), and how many have."""

    otherwise: str
    rows: int


class InputFigures(TypedDict):
    """Records that a flow has read from one of its inputs, and when it read the last (seconds since 1970)."""

    records: int
    last_at: float | None


@dataclass(slots=True)
class Figures:
    """How far a flow is, at a time (seconds since 1970).

    `records` have been read in `batches` micro-batches since the run first began, `rate` is records a second over
    the last ten seconds, or the last micro-batches if they took longer, `batch_ms` what the last micro-batch took.
    `lag_s` is how long ago the ends of its topics were where it is now; at least that, if `lag_s_at_least`. `watermark`
    as Spark writes it; `late` rows were behind it. `rejected` rows are those that a query for dead letters has written,
    `rejected_by` those of them by the checks that they failed; the others could not be decoded.
    `corrected` rows of the output have had late rows merged into them; one that was corrected twice counts twice.
    `expectations` has, by view and expectation, what becomes of rows that break it, and how many have; a micro-batch
    that Spark repeats counts them again. `lookups` has, by history, rows that were joined as of their time: by what was
    known of it (`version_store.STATUSES`), and those that had to wait. `inputs` has the streams that the flow reads, by
    what they are. `held_back_by` are the flows whose watermark this flow's waits for, when that is what it is at.
    """

    flow: str
    at: float
    records: int = 0
    batches: int = 0
    rate: float = 0.0
    batch_ms: int | None = None
    lag_records: int | None = None
    lag_s: float | None = None
    lag_s_at_least: bool = False
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str | None = None
    late: int = 0
    rejected: int = 0
    rejected_by: dict[str, int] = field(default_factory=dict)
    corrected: int = 0
    expectations: dict[str, dict[str, Expectation]] = field(default_factory=dict)
    lookups: dict[str, dict[str, int]] = field(default_factory=dict)
    inputs: dict[str, InputFigures] = field(default_factory=dict)
    held_back_by: list[str] = field(default_factory=list)

    def idle_inputs(self) -> dict[str, float | None]:
        """Inputs of a join, or another flow with state, that have brought nothing for a minute or more while another
        did; since when, None if they never have. A watermark on one of them holds back that of the flow: Spark takes
        the earliest."""
        if len(self.inputs) < 2 or not self.state_rows:
            return {}
        last = max(each["last_at"] or 0.0 for each in self.inputs.values())
        return {
            name: each["last_at"]
            for name, each in self.inputs.items()
            if last - (each["last_at"] or 0.0) >= _IDLE_AFTER_S
        }


def expectation_label(name: str, otherwise: str) -> str:
    """The column of an observed metric that counts the rows which break an expectation."""
    return f"{otherwise}:{name}"


class _Batch(NamedTuple):
    """When a micro-batch began and ended, in seconds since 1970."""

    began: float
    ended: float
    rows: int


@dataclass(slots=True)
class FlowProgress:
    """Adds up one flow's progress events."""

    figures: Figures
    position: Offsets = field(default_factory=dict)
    batches_reported: int = 0
    _recent: deque[_Batch] = field(default_factory=deque)
    _first_began: float | None = None
    _records_before: int = 0
    _batches_before: int = 0
    _written_at: float = 0.0
    _is_news: bool = False

    def go_on_from(self, before: Figures | None) -> None:
        """Count on from the last figures of an earlier start of the run, if there are any."""
        if before is not None:
            self._records_before, self._batches_before = before.records, before.batches
            for name in (
                "records",
                "batches",
                "watermark",
                "late",
                "rejected",
                "rejected_by",
                "corrected",
                "expectations",
                "lookups",
                "inputs",
            ):
                setattr(self.figures, name, getattr(before, name))

    @property
    def records_here(self) -> int:
        """Records that this process has read."""
        return self.figures.records - self._records_before

    @property
    def batches_here(self) -> int:
        """Micro-batches with records that this process has done."""
        return self.figures.batches - self._batches_before

    def on_batch(self, event: Mapping[str, Any], now: float) -> None:
        """Take in the progress event of a micro-batch, as Spark's JSON has it."""
        figures = self.figures
        self.batches_reported += 1
        sources = [each for each in event.get("sources") or [] if not _is_time(each)]
        times = sum(_rows_of(each) for each in event.get("sources") or [] if _is_time(each))
        rows = max(0, int(event.get("numInputRows") or 0) - times)
        figures.at = now
        figures.records += rows
        figures.batch_ms = (event.get("durationMs") or {}).get("triggerExecution", figures.batch_ms)
        if rows:
            figures.batches += 1
        operators = event.get("stateOperators") or []
        figures.state_rows = sum(int(each.get("numRowsTotal") or 0) for each in operators)
        figures.state_bytes = sum(int(each.get("memoryUsedBytes") or 0) for each in operators)
        figures.late += sum(int(each.get("numRowsDroppedByWatermark") or 0) for each in operators)
        for name, metric in (event.get("observedMetrics") or {}).items():
            if name == REJECTED:
                self._count_rejected(metric)
            if name.startswith(EXPECTATIONS):
                self._count_expectations(name.removeprefix(EXPECTATIONS), metric)
            if name.startswith(LOOKUPS):
                self._count_lookups(name.removeprefix(LOOKUPS).partition(":")[2], metric)
        watermark = (event.get("eventTime") or {}).get("watermark")
        if watermark and not watermark.startswith("1970-01-01"):  # Spark's word for none yet
            figures.watermark = watermark
        figures.held_back_by = _held_back_by(event.get("sources") or [], watermark)
        for source in sources:
            self.position |= offsets_of(source.get("endOffset"))
        self._count_inputs(sources, now)
        took_s = float((event.get("durationMs") or {}).get("triggerExecution") or 0) / 1000
        self._recent.append(_Batch(now - took_s, now, rows))
        if self._first_began is None:
            self._first_began = now - took_s
        self._is_news = True

    def _count_inputs(self, sources: Sequence[Mapping[str, Any]], now: float) -> None:
        """Spark lists them as they come in its plan, which need not be as the flow has them: they are known by name."""
        read = {_name_of(source): _rows_of(source) for source in sources}
        if "" in read or len(read) < len(sources):  # not begun yet, or one topic twice, which is never idle alone
            return
        before = self.figures.inputs
        self.figures.inputs = {
            name: {
                "records": (before[name]["records"] if name in before else 0) + max(0, rows),
                "last_at": now if rows > 0 else before[name]["last_at"] if name in before else None,
            }
            for name, rows in read.items()
        }

    def _count_rejected(self, counts: Mapping[str, Any]) -> None:
        figures = self.figures
        figures.rejected += int(counts.get(REJECTED) or 0)
        for check, rows in counts.items():
            if check != REJECTED and rows:
                figures.rejected_by[check] = figures.rejected_by.get(check, 0) + int(rows)

    def _count_expectations(self, view: str, counts: Mapping[str, Any]) -> None:
        known = self.figures.expectations.setdefault(view, {})
        for label, rows in counts.items():
            otherwise, _, name = label.partition(":")
            before = known[name]["rows"] if name in known else 0
            known[name] = {"otherwise": otherwise, "rows": before + int(rows or 0)}

    def _count_lookups(self, history: str, counts: Mapping[str, Any]) -> None:
        known = self.figures.lookups.setdefault(history, {})
        for status, rows in counts.items():
            known[status] = known.get(status, 0) + int(rows or 0)

    def refresh(self, now: float, lag: Lag | None) -> None:
        """Bring rate and lag up to `now`."""
        figures = self.figures
        figures.at = now
        figures.rate = self._rate(now)
        if lag is not None:
            figures.lag_records, figures.lag_s, figures.lag_s_at_least = lag.records, lag.seconds, lag.at_least

    def _rate(self, now: float) -> float:
        """A micro-batch reports its records when it ends, so that time since then counts only when another one would
        have ended, too."""
        if not self._recent or self._first_began is None:
            return 0.0
        last = self._recent[-1]
        took_s = last.ended - last.began
        while self._recent and self._recent[0].ended < now - max(_RATE_OVER_S, 2 * took_s):
            self._recent.popleft()
        if not self._recent:
            return 0.0
        until = last.ended if now - last.ended <= took_s else now
        over_s = max(until - self._recent[0].began, min(_RATE_OVER_S, now - self._first_began))
        return round(sum(each.rows for each in self._recent) / max(over_s, 1.0), 1)

    def is_due(self, now: float) -> bool:
        """Whether a line is due; True only once for each line."""
        if now - self._written_at < (_LINE_EVERY_S if self._is_news else _IDLE_LINE_EVERY_S):
            return False
        self._written_at, self._is_news = now, False
        return True


def _rows_of(source: Mapping[str, Any]) -> int:
    return int(source.get("numInputRows") or 0)


def _is_time(source: Mapping[str, Any]) -> bool:
    """Whether it only has the time of an input that may be idle: its rows are no records."""
    end = _as_object(source.get("endOffset"))
    return isinstance(end, dict) and TIME_MS in end.get(BESIDE, {})


def _held_back_by(sources: Sequence[Mapping[str, Any]], watermark: str | None) -> list[str]:
    """The flows upstream that have not gone on further than this watermark."""
    begins = (_as_object(source.get("startOffset") or source.get("endOffset")) for source in sources)
    times = [each[BESIDE] for each in begins if isinstance(each, dict) and FLOWS in each.get(BESIDE, {})]
    if not times:
        return []
    earliest = min(times, key=lambda each: int(each[TIME_MS]))
    at = datetime.fromisoformat(watermark) if watermark else _BEGIN
    is_later = (at - _BEGIN).total_seconds() * 1000 < int(earliest[TIME_MS])
    return [] if is_later else list(earliest[FLOWS])


def _as_object(given: object) -> object:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return None


def _name_of(source: Mapping[str, Any]) -> str:
    """A source of a progress event: its topics, or as Spark describes it; empty if it has not begun."""
    topics = sorted({topic for topic, _ in offsets_of(source.get("endOffset"))})
    if topics:
        return f"topic {','.join(topics)}"
    return str(source.get("description") or "") if source.get("endOffset") else ""


def offsets_of(given: object) -> Offsets:
    """The offsets of a source of topics, as Spark's progress has them; none for other sources."""
    given = _as_object(given)
    if not isinstance(given, dict):
        return {}
    found: Offsets = {}
    for topic, partitions in given.items():
        if topic == BESIDE:
            continue
        if not isinstance(partitions, dict):
            return {}
        for number, offset in partitions.items():
            if not str(number).isdigit() or not isinstance(offset, int):
                return {}
            found[topic, int(number)] = offset
    return found


# -- the file --------------------------------------------------------------------------------------


def append(file: Path, figures: Figures) -> None:
    """Write a line; the older half of a file that grows too long goes to `<file>.1`. Raises OSError."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(_line(figures))
        is_long = lines.tell() > _LARGEST_FILE
    if is_long:
        with file.open("a", encoding="utf-8") as lines:  # flows that are left out for long write none themselves
            lines.writelines(map(_line, {each.flow: each for each in history(file)}.values()))
        file.replace(file.with_name(file.name + ".1"))


def latest(file: Path, flows: Collection[str] = ()) -> dict[str, Figures]:
    """The last line of each flow, from the end of the file, or from all of it if `flows` are not found there; a line
    that was cut off by a crash does not count."""
    found = {figures.flow: figures for figures in _lines(file, _TAIL)}
    return found if found.keys() >= set(flows) else {figures.flow: figures for figures in history(file)}


def history(file: Path) -> Iterator[Figures]:
    """All lines that are kept, the oldest first."""
    return _lines(file, None)


def _lines(file: Path, tail_bytes: int | None) -> Iterator[Figures]:
    """Those at the end of the older file and of this one; None: all."""
    for each in (file.with_name(file.name + ".1"), file):
        try:
            with each.open("rb") as lines:
                if tail_bytes is not None:
                    lines.seek(max(0, each.stat().st_size - tail_bytes))
                text = lines.read().decode("utf-8", "replace")
        except FileNotFoundError:
            continue
        for line in text.splitlines():
            try:
                yield Figures(**json.loads(line))
            except (ValueError, TypeError):
                continue


def _line(figures: Figures) -> str:
    return json.dumps(asdict(figures), separators=(",", ":")) + "\n"
