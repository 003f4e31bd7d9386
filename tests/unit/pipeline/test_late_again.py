"""Letters that a watermark would set aside again."""

from dataclasses import replace
from pathlib import Path

import pytest

from ottla.pipeline import progress
from ottla.pipeline.late_again import FlowWatermark, LateAgain, late_again, watermarks
from ottla.pipeline.progress import Figures
from ottla.pipeline.redrive import Fate, Plan, Record, judge
from ottla.pipeline.rows import dead_letters
from ottla.pipeline.rows.dead_letters import DeadLetter, Header
from ottla.pipeline.run_store import FlowRecord, RunRecord, run_directory

MINUTE = 60_000
START = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""
LATE = "late: its window closed at 2026-01-01T00:10:00.000Z, the watermark was at 2026-01-01T01:30:00.000Z"


def hourly(minute: int, *topics: str, run: str = "shop", flow: str = "hourly", job: str = "shop") -> FlowWatermark:
    return FlowWatermark(run, job, flow, topics or ("orders",), START + minute * MINUTE)


def letter(reason: str, minute: int | None = None, view: str = "hourly") -> DeadLetter:
    at_ms = None if minute is None else START + minute * MINUTE
    return DeadLetter(reason, "orders", 0, 7, at_ms, "shop", view)


@pytest.mark.parametrize(
    ("flows", "topic", "found"),
    [
        ([hourly(10)], "orders", [("shop", True)]),
        ([hourly(9)], "orders", []),  # the run began anew, and its watermark is before the window's end
        ([hourly(10, "other")], "other", [("shop", True)]),
        ([], "orders", [(None, True)]),  # its run is in another home
        ([], "other", []),
        ([hourly(90), hourly(5, run="copy")], "orders", [("shop", True)]),
        ([hourly(90), hourly(10, flow="daily")], "orders", [("shop", True), ("shop", False)]),
    ],
)
def test_what_was_late_is_late_again_where_the_watermark_has_passed_its_end(
    flows: list[FlowWatermark], topic: str, found: list[tuple[str | None, bool]]
) -> None:
    again = late_again(letter(LATE), topic, flows, mended=False)
    assert [(each.run, each.is_sure) for each in again] == found
    assert not any(each.is_sure for each in late_again(letter(LATE), topic, flows, mended=True))


@pytest.mark.parametrize(("minute", "is_late"), [(10, True), (11, False), (None, False)])
def test_other_letters_are_likely_to_be_late_by_the_time_of_their_records(minute: int | None, is_late: bool) -> None:
    flow = hourly(10)
    again = late_again(letter("malformed JSON", minute, "clean"), "orders", [flow, hourly(99, "other")], mended=False)
    assert again == ([LateAgain("hourly", "shop", flow.at_ms, is_sure=False)] if is_late else [])


def test_letters_that_would_be_late_stay_if_they_are_to() -> None:
    headers: list[Header] = [
        (dead_letters.REASON, b"malformed JSON"),
        (dead_letters.SOURCE_TOPIC, b"orders"),
        (dead_letters.SOURCE_TIMESTAMP, str(START).encode()),
    ]
    record = Record(b"k", b"{", headers, START)
    plan = Plan("letters", flows=(hourly(10),))
    sent = judge(plan, record, {"orders": 1})
    assert (sent.fate, [each.flow for each in sent.late]) == (Fate.SENT, ["hourly"])
    left = judge(replace(plan, leave_late=True), record, {"orders": 1})
    assert (left.fate, left.back) == (Fate.LATE, None)
    assert judge(replace(plan, leave_late=True, flows=()), record, {"orders": 1}).fate is Fate.SENT


def test_watermarks_are_those_of_the_runs_that_go_on(tmp_path: Path) -> None:
    def run(name: str, suffix: str = "", promoted_to: str | None = None, watermark: str | None = None) -> None:
        directory = run_directory(tmp_path, name)
        directory.path.mkdir(parents=True)
        tail = f"-{suffix}" if suffix else ""
        flows = {
            "clean": FlowRecord(["topic orders"], f"topic clean{tail}", "append", "1 second", "c"),
            "hourly": FlowRecord(["topic clean", "captured c.d, e", "parquet files x"], "x", "append", "1 second", "h"),
        }
        record = RunRecord(
            name, "shop", "f", "p", "b", "m", 1, 1.0, suffix=suffix, promoted_to=promoted_to, flows=flows
        )
        directory.write(record)
        progress.append(directory.progress, Figures("clean", 1.0))
        progress.append(directory.progress, Figures("hourly", 1.0, watermark=watermark))
        progress.append(directory.progress, Figures("gone", 1.0, watermark=watermark))

    run("shop", watermark="2026-01-01T00:10:00.000Z")
    run("v2", suffix="v2", watermark="2026-01-01T00:05:00.000Z")
    run("old", promoted_to="shop", watermark="2026-01-01T00:10:00.000Z")
    run("new")
    damaged = run_directory(tmp_path, "damaged").path
    damaged.mkdir()
    (damaged / "run.json").write_text("{}")

    found = {each.run: each for each in watermarks(tmp_path)}

    assert found.keys() == {"shop", "v2"}
    assert found["shop"] == hourly(10, "clean", "c.d", "e")
    assert (found["v2"].topics, found["v2"].at_ms) == (("clean-v2", "c.d", "e"), START + 5 * MINUTE)
    assert watermarks(tmp_path / "nowhere") == []
