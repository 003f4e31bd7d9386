"""When the promises of a flow upstream are good for a query, and what is shown of them."""

import json
from pathlib import Path

import pytest
from tests.unit.pipeline.rows.test_idle import CLIENT, Ends, checkpoint

from ottla.pipeline.progress import BESIDE, FLOWS, TIME_MS, Figures, FlowProgress
from ottla.pipeline.rows import aligned
from ottla.pipeline.rows.aligned import AlignedReader, Promises, Upstream, options_of
from ottla.spark.offsets import Partition

ONE, TWO = Partition("weather", 0), Partition("weather", 1)


def test_a_promise_is_good_when_all_that_there_was_is_read() -> None:
    promises = Promises()
    promises.add(10, {ONE: 5, TWO: 0})
    promises.add(20, {ONE: 7, TWO: 3})
    assert promises.kept({ONE: {4}}) is None
    assert promises.kept({ONE: {5}}) == 10
    assert promises.kept({ONE: {9}, TWO: {2}}) is None
    assert promises.kept({ONE: {9, 6}, TWO: {3}}) is None, "the query reads the topic twice"
    assert promises.kept({ONE: {9, 7}, TWO: {3}}) == 20
    assert promises.kept({ONE: {9}, TWO: {9}}) is None


def test_a_query_that_is_far_behind_keeps_few_promises_and_the_newest() -> None:
    promises = Promises()
    for number in range(1000):
        promises.add(number, {ONE: number})
    assert len(promises._waiting) <= 64
    assert promises.kept({ONE: {999}}) == 999


def upstream(home: Path, flow: str, watermark_ms: int, hold_ms: int = 0, number: int = 3) -> Upstream:
    """A flow that has done the micro-batch of this number."""
    location = home / "checkpoints" / flow
    for log, text in (("offsets", f'v1\n{{"batchWatermarkMs": {watermark_ms}}}\n-'), ("commits", "v1\n{}")):
        (location / log).mkdir(parents=True, exist_ok=True)
        (location / log / str(number)).write_text(text)
    return Upstream(flow, str(location), hold_ms)


def test_the_earliest_of_the_flows_counts_once_all_have_done_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aligned, "TopicMetadata", Ends)
    both = [upstream(tmp_path, "a", 5000, 1000), Upstream("b", str(tmp_path / "checkpoints" / "b"), 0)]
    reader = AlignedReader({**CLIENT, **options_of(both), "checkpoints": str(tmp_path / "checkpoints")})
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    checkpoint(tmp_path, "own", {"weather": {"0": 5}}, start)
    assert start[BESIDE][FLOWS] == ["a", "b"]
    assert reader.latestOffset(start, limit) == start, "b has done nothing yet"
    upstream(tmp_path, "b", 4500)
    first = reader.latestOffset(start, limit)
    assert first[BESIDE][TIME_MS] == 4000
    assert reader.latestOffset(first, limit) == first, "nobody has gone on"
    upstream(tmp_path, "a", 9000, number=4)
    assert reader.latestOffset(first, limit)[BESIDE][TIME_MS] == 4500
    upstream(tmp_path, "b", 4000, number=4)
    later = {BESIDE: {**start[BESIDE], TIME_MS: 4500}}
    assert reader.latestOffset(later, limit) == later, "a time does not go back"


def test_a_query_that_ends_by_itself_takes_the_promise_of_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aligned, "TopicMetadata", Ends)
    reader = AlignedReader({**CLIENT, **options_of([upstream(tmp_path, "a", 5000)]), "checkpoints": str(tmp_path)})
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start, "it has read nothing yet"
    checkpoint(tmp_path, "own", {"weather": {"0": 5}}, start)
    upstream(tmp_path, "a", 9000, number=4)
    assert reader.latestOffset(start, reader.getDefaultReadLimit())[BESIDE][TIME_MS] == 5000


@pytest.mark.parametrize(
    ("time_ms", "watermark", "held"),
    [(0, None, ["first"]), (5000, "1970-01-01T00:00:05.000Z", ["first"]), (5000, "1970-01-01T00:00:04.999Z", [])],
)
def test_a_flow_is_held_back_by_the_one_whose_watermark_it_has(
    time_ms: int, watermark: str | None, held: list[str]
) -> None:
    progress = FlowProgress(Figures("second", 0.0))
    begin = json.dumps({BESIDE: {"query": "a", TIME_MS: time_ms, FLOWS: ["first"]}})
    end = json.dumps({BESIDE: {"query": "a", TIME_MS: 9000, FLOWS: ["first"]}})
    sources = [{"endOffset": {"weather": {"0": 3}}}, {"startOffset": begin, "endOffset": end, "numInputRows": 1}]
    progress.on_batch({"numInputRows": 1, "sources": sources, "eventTime": {"watermark": watermark}}, 1.0)
    assert progress.figures.held_back_by == held
