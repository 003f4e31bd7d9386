"""Another grouping key, or other values, for a flow with windows: only those that are open are computed anew (ADR 46).

    time     ──────────── closed ────────────┤ watermark ├───── open ─────▶
    output   rows by the old key, which stay │           │ rows by the new key
    input    ───────────────────┤ read again from here on ├──────────────▶

What came out is in the output, and the state of an open window cannot be parted by a key that it does not have. So the
flow gets a new checkpoint. Its watermark is that of the old one, so that no closed window comes out again. It begins to
read at the first record that can be in an open window.

    checkpoints/
        hourly/  hourly.json            the old checkpoint
        .hourly.regrouping/             the new one, while it is made
        .hourly.regrouped/              from now on it counts; checkpoint/ fit.json starting.json
        hourly/  hourly.json  hourly.starting.json

The new one is made aside, and gets its name in one step. A start after a crash finishes what is left to be done.
"""

import json
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla.pipeline.brokers import Brokers
from ottla.pipeline.checkpoint import Fit, fit_of, has_unfinished_batch, kept_fit
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.plan_state import hold_of
from ottla.pipeline.queries import Planned
from ottla.pipeline.rows.checkpoint_log import CheckpointLog
from ottla.pipeline.savepoint import sync_directories, sync_directory, write_file
from ottla.pipeline.times import time_text
from ottla.spark.offsets import FlatOffsets, Partition
from ottla.spark.stream_offset import StreamOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTING: Final = ".starting.json"
"""Ends the name of the file with the offsets at which a regrouped flow begins, beside its checkpoint."""
_MAKING: Final = ".regrouping"
_MADE: Final = ".regrouped"
_FORMER: Final = ".former"
_CHECKPOINT: Final = "checkpoint"
_FIT: Final = "fit.json"
_WINDOW_KEY: Final = "struct<start:timestamp,end:timestamp>"
_OFFSETS: Final = "offsets"
_FORMERS: Final = "formers"
_AGGREGATION: Final = "an aggregation by ("
_INPUTS: Final = ("topic ", "captured ")
_WATERMARK: Final = "batchWatermarkMs"
_TIMESTAMP: Final = "batchTimestampMs"


class RegroupError(PipelineError):
    """The open windows of a flow cannot be computed anew; the message names the flow, the reason, and the remedy."""


class OpenWindows(NamedTuple):
    """What a checkpoint has of windows that are open: their number, their groups, and where the first begins, in
    milliseconds since 1970; None without any."""

    windows: int
    groups: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class Regrouped:
    """What a flow begins anew with. `records` are those that it reads once more, `closed_until_ms` is the watermark up
    to which its output stays."""

    flow: str
    open: OpenWindows
    records: int
    closed_until_ms: int

    def in_words(self, rate: float | None) -> str:
        """`rate`: how many records a second the flow is known to read, None if it is not."""
        takes = f", which takes about {self.records / rate:,.0f} s" if rate else ""
        until = time_text(self.closed_until_ms * 1000)
        return (
            f"{self.flow}: {self.open.windows:,} open windows with {self.open.groups:,} groups are computed anew: "
            f"{self.records:,} records are read again{takes}. Windows that ended by {until} stay as they are"
        )


def why_not(before: Fit, now: Fit) -> str | None:
    """Why the open windows alone cannot be computed anew; None if they can. PURE."""
    if (before.inputs, before.output, before.mode) != (now.inputs, now.output, now.mode):
        return "its inputs, its output or its mode have changed, too"
    if now.mode != "append":
        return f"it writes in mode {now.mode!r}, so that open windows are in its output already, by the old key"
    for each in now.inputs:
        if not each.startswith(_INPUTS) or "," in each:
            return f"it reads {each}, and only plain topics can be read again from a place"
    for fit in (before, now):
        if len(fit.stateful) != 1 or not fit.stateful[0].startswith(_AGGREGATION):
            return "its state is not that of one aggregation"
        if _WINDOW_KEY not in fit.stateful[0]:
            return "it does not group by a window, so that nothing of it is ever closed"
    if before.windows is None or before.windows != now.windows:
        return "its windows have changed: those of both lengths would overlap, with the same rows in each"
    if len(now.windows or []) != 1 or not before.windows[0].startswith("windows "):
        return f"it has {' and '.join(before.windows)}, and where an open one begins is not known"
    return None


def starts_of(
    read: FlatOffsets, begins: Mapping[Partition, int], at_time: Mapping[Partition, int]
) -> FlatOffsets | Partition:
    """Where to begin in each partition: at the record of the time, but not behind what was `read`; a partition whose
    records of that time may have been deleted, if there is one. PURE. `at_time` is -1 where all records are older."""
    found = {}
    for partition, end in read.items():
        begin = begins[partition]
        at = end if at_time[partition] < 0 else min(at_time[partition], end)
        if at <= begin and begin > 0 and begin < end:
            return partition
        found[partition] = at
    return found


def regroup(query: Planned, checkpoint: Path, spark: "SparkSession", brokers: Brokers) -> Regrouped | None:
    """Give the flow a checkpoint that computes its open windows anew; None if that is done already, or nothing of its
    state has changed. Raises RegroupError; then all is as it was."""
    before, now = kept_fit(checkpoint), fit_of(query)
    log = CheckpointLog(checkpoint)
    if before is not None and (before.stateful, before.values, before.windows) == (
        now.stateful,
        now.values,
        now.windows,
    ):
        return None  # also where a crash came before the first micro-batch of the new checkpoint was done
    if before is None or log.last_done() < 0:
        raise RegroupError(f"{query.name!r} has no checkpoint to go on from: start it without --regroup")
    reason = "its late rows would be found once more (late=)" if query.follows_late_rows else why_not(before, now)
    if reason is None and has_unfinished_batch(checkpoint):
        reason = "a micro-batch was not finished: let the job as it was finish it (run --once)"
    batch = log.batch(log.last_done())
    if reason is None and batch.watermark_ms <= 0:
        reason = "none of its windows has closed yet, so that all of its input would be read"
    if reason is not None:
        raise RegroupError(_refusal(query.name, reason))
    read, lines = _read_up_to(query.name, batch.ends)
    opened = open_windows(spark, checkpoint)
    starts = _starts(query, opened, read, brokers)
    replaced = [replace(each, offsets={part: starts[part] for part in each.offsets}).as_json() for each in lines]
    fit = replace(now, shuffle_partitions=before.shuffle_partitions)
    _make(checkpoint, log.last_done(), replaced, fit, starts, (*formers_of(checkpoint), log.query_id()))
    complete(checkpoint)
    records = sum(end - starts[partition] for partition, end in read.items())
    return Regrouped(query.name, opened, records, batch.watermark_ms)


def _read_up_to(flow: str, ends: tuple[Any, ...]) -> tuple[dict[Partition, int], list[StreamOffset]]:
    lines = [StreamOffset.parse(each) for each in ends if isinstance(each, dict)]
    read: dict[Partition, int] = {}
    for line in lines:
        for partition, offset in line.offsets.items():
            if read.setdefault(partition, offset) != offset:
                raise RegroupError(_refusal(flow, f"it reads {partition.topic} twice, and is not as far in both"))
    if len(lines) < len(ends):
        raise RegroupError(_refusal(flow, "one of its inputs has brought nothing yet"))
    return read, lines


def _starts(query: Planned, opened: OpenWindows, read: dict[Partition, int], brokers: Brokers) -> FlatOffsets:
    if opened.since_ms is None:
        return read
    hold = hold_of(query.rows)
    assert hold is not None, "it has a watermark"
    assert hold.ms is not None, "it has windows"
    since_ms = max(0, opened.since_ms - hold.ms)  # so far may a record's own time be before that of its event
    begins = {partition: begin for partition, (begin, _) in brokers.extents(read)[1].items()}
    if begins.keys() != read.keys():
        raise RegroupError(_refusal(query.name, "a topic that it reads is gone"))
    found = starts_of(read, begins, brokers.at_time(read, since_ms))
    if isinstance(found, Partition):
        raise RegroupError(
            _refusal(
                query.name,
                f"records of its open windows may have been deleted: partition {found.number} of topic {found.topic!r} "
                f"begins at offset {begins[found]:,}",
            )
        )
    return found


def _refusal(flow: str, reason: str) -> str:
    return (
        f"the open windows of {flow!r} cannot be computed anew: {reason}. Nothing was changed; compute all of its "
        "output anew, which begins with an estimate of the time: `ottla pipeline replay`, then promote"
    )


def open_windows(spark: "SparkSession", checkpoint: Path) -> OpenWindows:
    """By Spark's reader of states, from the last micro-batch of the checkpoint."""
    state = spark.read.format("statestore").load(str(checkpoint.absolute()))
    key = state.schema["key"].dataType
    assert isinstance(key, StructType)
    window = next(each.name for each in key.fields if each.dataType.simpleString() == _WINDOW_KEY)
    begins = F.col(f"key.`{window}`.start")
    found = state.agg(F.count_distinct(begins), F.count(F.lit(1)), F.unix_millis(F.min(begins))).collect()[0]
    return OpenWindows(found[0], found[1], found[2])


# -- files -----------------------------------------------------------------------------------------


def _make(
    checkpoint: Path, last: int, ends: list[Any], fit: Fit, starts: FlatOffsets, formers: tuple[str, ...]
) -> None:
    """Plan the first micro-batch of a new checkpoint: without records, and with the watermark of the old one, whose
    settings it keeps. It is a new query to its sink. Raises RegroupError."""
    making = checkpoint.with_name(f".{checkpoint.name}{_MAKING}")
    _, metadata, *_ = (checkpoint / "offsets" / str(last)).read_text(encoding="utf-8").split("\n")
    batch = {**json.loads(metadata), _TIMESTAMP: time.time_ns() // 1_000_000}
    starting: dict[str, dict[str, int]] = {}
    for partition, offset in starts.items():
        starting.setdefault(partition.topic, {})[str(partition.number)] = offset
    try:
        shutil.rmtree(making, ignore_errors=True)
        offsets = making / _CHECKPOINT / "offsets"
        offsets.mkdir(parents=True)
        write_file(making / _CHECKPOINT / "metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        write_file(offsets / "0", "\n".join(("v1", json.dumps(batch), *map(json.dumps, ends))).encode())
        write_file(making / _FIT, (json.dumps(asdict(fit), indent=1) + "\n").encode())
        write_file(making / "starting.json", json.dumps({_OFFSETS: starting, _FORMERS: formers}).encode())
        sync_directories(making)
        making.rename(checkpoint.with_name(f".{checkpoint.name}{_MADE}"))
        sync_directory(checkpoint.parent)
    except OSError as problem:
        raise RegroupError(
            f"{making} cannot be written: {(problem.strerror or str(problem)).lower()}. The run is as it was"
        ) from None


def complete(checkpoint: Path) -> None:
    """Put a new checkpoint, if one was made, in the place of the old one: at the end of `regroup`, and at each start.
    Raises OSError."""
    made, former = (checkpoint.with_name(f".{checkpoint.name}{end}") for end in (_MADE, _FORMER))
    fresh = made / _CHECKPOINT
    if fresh.exists():
        if checkpoint.exists():
            shutil.rmtree(former, ignore_errors=True)
            checkpoint.rename(former)
        for name, end in ((_FIT, ".json"), ("starting.json", STARTING)):
            if (made / name).exists():
                os.replace(made / name, checkpoint.with_name(checkpoint.name + end))
        fresh.rename(checkpoint)
        sync_directory(checkpoint.parent)
    for left_over in (made, former, checkpoint.with_name(f".{checkpoint.name}{_MAKING}")):
        shutil.rmtree(left_over, ignore_errors=True)


def starting_of(checkpoint: Path) -> Mapping[str, Mapping[str, int]] | None:
    """Where a regrouped flow begins, by topic and partition; None for any other flow."""
    found: dict[str, dict[str, int]] | None = _kept(checkpoint).get(_OFFSETS)
    return found


def formers_of(checkpoint: Path) -> tuple[str, ...]:
    """The ids of the queries in whose place a regrouped flow came."""
    return tuple(_kept(checkpoint).get(_FORMERS, ()))


def _kept(checkpoint: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(checkpoint.with_name(checkpoint.name + STARTING).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found
