"""When an input is idle: only what the query has read to its end, for as long as the interval."""

import json
from pathlib import Path
from typing import ClassVar

import pytest

from ottla.pipeline.errors import JobError
from ottla.pipeline.inputs import topic
from ottla.pipeline.progress import BESIDE, TIME_MS, Figures, FlowProgress
from ottla.pipeline.rows import idle
from ottla.pipeline.rows.captured import captured
from ottla.pipeline.rows.idle import Idleness, IdleReader
from ottla.pipeline.rows.times import TimePartition
from ottla.spark.offsets import Partition

ONE, TWO = Partition("weather", 0), Partition("weather", 1)
CLIENT = {"kafka.bootstrap.servers": "nobody:9092", "subscribe": "weather"}


def test_the_interval_begins_when_everything_is_read_and_anew_with_each_record() -> None:
    idleness = Idleness(after_s=10)
    ends = {ONE: 5, TWO: 0}
    assert not idleness.is_over({ONE: {4}, TWO: {0}}, ends, 0.0)
    assert not idleness.is_over({ONE: {5}, TWO: {0}}, ends, 100.0)
    assert not idleness.is_over({ONE: {5}, TWO: {0}}, ends, 109.9)
    assert idleness.is_over({ONE: {5}, TWO: {0}}, ends, 110.0)
    assert not idleness.is_over({ONE: {6}, TWO: {0}}, {ONE: 6, TWO: 0}, 111.0), "a record came, and was read"
    assert idleness.is_over({ONE: {6}, TWO: {0}}, {ONE: 6, TWO: 0}, 121.0)


@pytest.mark.parametrize("read", [{ONE: {5}}, {ONE: {5, 3}, TWO: {0}}], ids=["a new partition", "two sources"])
def test_a_partition_that_is_not_read_whole_by_all_is_not_idle(read: dict[Partition, set[int]]) -> None:
    idleness = Idleness(after_s=0)
    assert not idleness.is_over(read, {ONE: 5, TWO: 0}, 0.0)


def checkpoint(home: Path, flow: str, *ends: object) -> None:
    offsets = home / "checkpoints" / flow / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "3").write_text("\n".join(["v1", json.dumps({"batchWatermarkMs": 0}), *map(json.dumps, ends)]))


def reader(home: Path, after_ms: int = 0) -> IdleReader:
    return IdleReader({**CLIENT, "idleAfterMs": str(after_ms), "checkpoints": str(home)})


class Ends:
    """What the brokers would answer."""

    ends: ClassVar = {ONE: 5}

    def __init__(self, _client: object) -> None:
        pass

    def layout(self, _selection: object, _known: object) -> "Ends":
        self.partitions = list(self.ends)
        return self

    def latest(self, partitions: list[Partition]) -> dict[Partition, int]:
        return {each: self.ends[each] for each in partitions}


def test_a_query_finds_its_own_checkpoint_and_gives_the_time_of_its_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "TopicMetadata", Ends)
    started = reader(tmp_path)
    start = started.initialOffset()
    other = reader(tmp_path).initialOffset()
    assert started.latestOffset(start, started.getDefaultReadLimit()) == start, "there is no checkpoint yet"
    checkpoint(tmp_path, "other", {"weather": {"0": 5}, "#": {"ids": {}}}, other)
    assert started.latestOffset(start, started.getDefaultReadLimit()) == start, "that of another query"
    checkpoint(tmp_path, "own", {"weather": {"0": 5}, "#": {"ids": {}}}, start)

    end = started.latestOffset(start, started.getDefaultReadLimit())

    assert end[BESIDE]["query"] == start[BESIDE]["query"]
    (partition,) = started.partitions(start, end)
    assert isinstance(partition, TimePartition)
    (row,) = next(iter(started.read(partition))).to_pylist()
    assert row["at"].timestamp() == pytest.approx(end[BESIDE][TIME_MS] / 1000)
    assert started.partitions(end, end) == []


def test_a_query_that_ends_by_itself_gets_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "TopicMetadata", Ends)
    started = reader(tmp_path)
    start = started.initialOffset()
    checkpoint(tmp_path, "own", {"weather": {"0": 5}}, start)
    started.prepareForTriggerAvailableNow()
    assert started.latestOffset(start, started.getDefaultReadLimit()) == start


def test_a_time_is_neither_a_record_nor_an_input() -> None:
    progress = FlowProgress(Figures("joined", 0.0))
    sources = [
        {"endOffset": {"flights": {"0": 3}}, "numInputRows": 3},
        {"endOffset": {"weather": {"0": 0}}, "numInputRows": 0},
        {"endOffset": json.dumps({BESIDE: {"query": "a", TIME_MS: 17}}), "numInputRows": 1},
    ]
    progress.on_batch({"numInputRows": 4, "sources": sources}, 1.0)
    assert progress.figures.records == 3
    assert list(progress.figures.inputs) == ["topic flights", "topic weather"]


def test_an_interval_that_is_none_is_refused() -> None:
    for wrong in ("soon", "0 seconds", ""):
        with pytest.raises(JobError, match="idle_after is an interval such as '5 minutes', not "):
            topic("weather", idle_after=wrong)
    assert topic("weather", idle_after="5 minutes").idle_after_ms == 300_000


def test_an_input_that_may_be_idle_is_another_one_to_a_checkpoint() -> None:
    """It has one source more, for which Spark would fail with a failed assertion."""
    described = [each("weather", idle_after=after).describe() for each in (topic, captured) for after in (None, "1 h")]
    assert described == [
        "topic weather", "topic weather, which may be idle", "captured weather", "captured weather, which may be idle"
    ]  # fmt: skip
