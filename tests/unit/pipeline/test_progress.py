"""Figures from Spark's progress events, and their file."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline import progress
from ottla.pipeline.lag import Lag
from ottla.pipeline.progress import Figures, FlowProgress, append, latest, offsets_of


def event(rows: int, **more: Any) -> dict[str, Any]:
    """As Spark writes it."""
    return {
        "name": "orders.copies",
        "batchId": 3,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 40},
        "stateOperators": [],
        "sources": [{"endOffset": {"flights": {"0": 7, "1": 9}, "#": {"ids": {"flights": "6e0f"}}}}],
        **more,
    }


def test_events_add_up() -> None:
    flow = FlowProgress(Figures("copies", 0.0))
    flow.on_batch(event(100), 10.0)
    operators = [
        {"numRowsTotal": 5, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 6, "memoryUsedBytes": 500, "numRowsDroppedByWatermark": 1},
    ]
    flow.on_batch(event(50, stateOperators=operators, eventTime={"watermark": "2013-01-01T00:00:00.000Z"}), 12.0)
    flow.on_batch(event(0), 13.0)
    flow.refresh(14.0, Lag(3, 1.5, True))
    found = flow.figures
    assert (found.records, found.batches, found.rate, found.batch_ms) == (150, 2, 37.1, 40)
    assert (found.lag_records, found.lag_s, found.lag_s_at_least) == (3, 1.5, True)
    assert (found.late, found.watermark) == (3, "2013-01-01T00:00:00.000Z")
    assert flow.position == {("flights", 0): 7, ("flights", 1): 9}
    flow.refresh(40.0, None)
    assert found.rate == 0.0


def test_an_input_is_idle_if_others_bring_records_for_a_minute_and_it_does_not() -> None:
    def read(**rows: int) -> dict[str, Any]:
        sources = [{"numInputRows": each, "endOffset": {topic: {"0": 9}}} for topic, each in rows.items()]
        return event(sum(rows.values()), sources=sources, stateOperators=[{"numRowsTotal": 1}])

    at = 1_767_225_600.0
    first = FlowProgress(Figures("joined", at))
    first.on_batch(read(flights=2, weather=1, airports=0), at + 10)
    assert first.figures.idle_inputs() == {"topic airports": None}
    first.on_batch(read(weather=0, flights=4, airports=1), at + 69)  # in another order
    assert first.figures.idle_inputs() == {}
    second = FlowProgress(Figures("joined", at + 70))
    second.go_on_from(Figures(**json.loads(json.dumps(asdict(first.figures)))))
    second.on_batch(read(flights=0, weather=0), at + 300)
    assert second.figures.idle_inputs() == {}  # flights has been quiet, too
    second.on_batch(read(flights=1, weather=0), at + 301)
    assert second.figures.idle_inputs() == {"topic weather": at + 10}
    assert second.figures.inputs["topic flights"] == {"records": 7, "last_at": at + 301}
    second.on_batch(event(1, sources=[{"numInputRows": 1, "endOffset": None, "description": "x"}]), at + 302)
    assert second.figures.inputs["topic flights"]["records"] == 7
    second.figures.state_rows = 0  # such as a union, which waits for nobody
    assert second.figures.idle_inputs() == {}


def test_a_flow_that_starts_again_has_the_watermark_that_it_had() -> None:
    flow = FlowProgress(Figures("copies", 11.0))
    flow.go_on_from(Figures("copies", 1.0, watermark="2013-01-01T00:00:00.000Z"))
    assert flow.figures.watermark == "2013-01-01T00:00:00.000Z"


def test_rows_that_break_expectations_are_counted_by_view_over_restarts() -> None:
    first = FlowProgress(Figures("copies", 0.0))
    metrics = {"ottla_expectations_clean": {"warn:is large": 2, "drop:has: a name": 0}, "ottla_rejected": {"rows": 1}}
    first.on_batch(event(9, observedMetrics=metrics), 10.0)
    second = FlowProgress(Figures("copies", 11.0))
    second.go_on_from(Figures(**json.loads(json.dumps(asdict(first.figures)))))
    second.on_batch(event(9, observedMetrics={"ottla_expectations_clean": {"warn:is large": 3}}), 12.0)
    assert second.figures.expectations == {
        "clean": {
            "is large": {"otherwise": "warn", "rows": 5},
            "has: a name": {"otherwise": "drop", "rows": 0},
        }
    }


def test_joins_as_of_a_time_are_counted_by_history_over_restarts() -> None:
    first = FlowProgress(Figures("copies", 0.0))
    two = {"ottla_lookups_0:history('a:b')": {"found": 2, "waited": 1}, "ottla_lookups_1:history('a:b')": {"found": 1}}
    first.on_batch(event(9, observedMetrics=two), 10.0)
    second = FlowProgress(Figures("copies", 11.0))
    second.go_on_from(Figures(**json.loads(json.dumps(asdict(first.figures)))))
    second.on_batch(event(9, observedMetrics={"ottla_lookups_7:history('a:b')": {"found": 5, "too old": 3}}), 12.0)
    assert second.figures.lookups == {"history('a:b')": {"found": 8, "waited": 1, "too old": 3}}


def test_a_restart_counts_on() -> None:
    flow = FlowProgress(Figures("copies", 0.0))
    flow.go_on_from(None)
    assert flow.records_here == 0
    flow.go_on_from(Figures("copies", 9.0, records=100, batches=3, rate=7.0, late=2, rejected=1, state_rows=5))
    flow.on_batch(event(50), 10.0)
    flow.refresh(10.5, None)
    found = flow.figures
    assert (found.records, found.batches, found.late, found.rejected, flow.records_here) == (150, 4, 2, 1, 50)
    assert (found.rate, found.state_rows) == (50.0, 0)


def test_the_rate_of_micro_batches_that_take_long_is_theirs() -> None:
    flow = FlowProgress(Figures("copies", 0.0))
    rates = []
    for second in range(1, 121):
        if second % 30 == 0:
            flow.on_batch(event(18_000, durationMs={"triggerExecution": 30_000}), float(second))
        flow.refresh(float(second), None)
        rates.append(flow.figures.rate)
    assert rates[:29] == [0.0] * 29
    assert set(rates[29:]) == {600.0}
    flow.refresh(120 + 61.0, None)
    assert flow.figures.rate == 0.0


def test_the_rate_of_bursts_is_spread_over_ten_seconds() -> None:
    flow = FlowProgress(Figures("copies", 0.0))
    for second in range(0, 100, 5):
        flow.on_batch(event(1000), float(second))
        flow.refresh(second + 0.5, None)
    assert 200.0 <= flow.figures.rate <= 300.0


def test_state_is_that_of_the_last_micro_batch_and_1970_is_no_watermark() -> None:
    flow = FlowProgress(Figures("copies", 0.0))
    operators = [{"numRowsTotal": 5, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 0}]
    flow.on_batch(event(1, stateOperators=operators, eventTime={"watermark": "1970-01-01T00:00:00.000Z"}), 1.0)
    assert (flow.figures.state_rows, flow.figures.state_bytes, flow.figures.watermark) == (5, 1000, None)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"t": {"0": 1}}, {("t", 0): 1}),
        ('{"t": {"0": 1}}', {("t", 0): 1}),
        ({"logOffset": 4}, {}),
        ("7", {}),
        ("no json", {}),
        (None, {}),
    ],
)
def test_only_topics_have_offsets(given: object, found: object) -> None:
    assert offsets_of(given) == found


def test_lines_are_due_when_there_is_news_and_rarely_when_there_is_none() -> None:
    flow = FlowProgress(Figures("copies", 0.0))
    assert flow.is_due(100.0)
    assert not flow.is_due(101.5)
    flow.on_batch(event(1), 101.6)
    assert flow.is_due(101.7)
    assert not flow.is_due(111.0)
    assert flow.is_due(112.0)


def test_the_last_line_of_each_flow_counts(tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    assert latest(file) == {}
    for figures in (Figures("a", 1.0), Figures("b", 2.0, records=2), Figures("a", 3.0, records=7)):
        append(file, figures)
    with file.open("a") as lines:
        lines.write('{"flow": "a", "at"')  # the process was killed
    assert latest(file) == {"a": Figures("a", 3.0, records=7), "b": Figures("b", 2.0, records=2)}


def test_a_long_file_is_put_aside_and_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LARGEST_FILE", 1000)
    file = tmp_path / "progress.jsonl"
    for number in range(20):
        append(file, Figures("a" if number else "first", float(number)))
    assert file.with_name("progress.jsonl.1").exists()
    assert not file.exists() or file.stat().st_size <= 1000
    assert latest(file)["a"].at == 19.0
    assert all(json.loads(line) for line in file.with_name("progress.jsonl.1").read_text().splitlines())


def test_the_counts_of_a_flow_that_is_left_out_for_long_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LARGEST_FILE", 8000)
    monkeypatch.setattr(progress, "_TAIL", 2000)
    file = tmp_path / "progress.jsonl"
    left_out = Figures("left out", 1.0, records=1000, rejected=7)
    append(file, left_out)
    for number in range(100):  # several files long
        append(file, Figures("other", float(number)))
        assert latest(file, ["left out", "other"]) == {"left out": left_out, "other": Figures("other", float(number))}
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 3 * 8000
