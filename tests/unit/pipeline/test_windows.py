"""What closing the windows of a query changes in its checkpoint."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipeline.run_store import FAILED
from ottla.pipeline.supervised import Change
from ottla.pipeline.watch import Watch
from ottla.pipeline.windows import END_OF_TIME_MS, close_windows, watermark_ahead_ms

FLOWS = ("whole", "stopped", "later")
SOURCES = '{"orders": {"0": 203}, "#": {"ids": {}}}\n-'


def checkpoint(path: Path, *, offsets: int, commits: int, watermark_ms: int | None) -> Path:
    for number in range(offsets + 1):
        metadata = {"batchWatermarkMs": 1, "batchTimestampMs": 2, "conf": {"spark.sql.shuffle.partitions": "2"}}
        write(path / "offsets" / str(number), f"v1\n{json.dumps(metadata)}\n{SOURCES}")
        write(path / "offsets" / f".{number}.crc", "a checksum")
    for number in range(commits + 1):
        commit = {} if watermark_ms is None else {"nextBatchWatermarkMs": watermark_ms}
        write(path / "commits" / str(number), f"v1\n{json.dumps(commit)}")
    return path


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def content(path: Path) -> dict[str, str]:
    return {str(file.relative_to(path)): file.read_text() for file in path.rglob("*") if file.is_file()}


def test_one_micro_batch_more_is_planned_without_records(tmp_path: Path) -> None:
    checkpoint(tmp_path, offsets=10, commits=10, watermark_ms=7)
    before = content(tmp_path)
    assert close_windows(tmp_path, 100)
    added = {name: text for name, text in content(tmp_path).items() if before.get(name) != text}
    assert list(added) == ["offsets/11"]
    version, metadata, sources = added["offsets/11"].split("\n", 2)
    assert (version, sources) == ("v1", SOURCES)
    planned = json.loads(metadata)
    assert planned["batchTimestampMs"] > 2
    assert (planned["batchWatermarkMs"], planned["conf"]) == (100, {"spark.sql.shuffle.partitions": "2"})


@pytest.mark.parametrize(
    ("offsets", "commits", "watermark_ms"),
    [
        pytest.param(-1, -1, 7, id="nothing has been read"),
        pytest.param(3, 3, None, id="Spark keeps no watermark"),
        pytest.param(3, 3, 0, id="the query has none"),
        pytest.param(3, 3, 100, id="it is as late as that"),
        pytest.param(4, 3, 7, id="a micro-batch is to be finished first"),
    ],
)
def test_other_queries_are_left_alone(tmp_path: Path, offsets: int, commits: int, watermark_ms: int | None) -> None:
    checkpoint(tmp_path, offsets=offsets, commits=commits, watermark_ms=watermark_ms)
    before = content(tmp_path)
    assert not close_windows(tmp_path, 100)
    assert content(tmp_path) == before


def test_a_watermark_that_is_years_ahead_of_the_clock_is_noticed(tmp_path: Path) -> None:
    now_ms, day_ms = 1_700_000_000_000, 86_400_000
    assert watermark_ahead_ms(tmp_path, now_ms) is None
    checkpoint(tmp_path, offsets=3, commits=3, watermark_ms=now_ms)
    assert watermark_ahead_ms(tmp_path, now_ms) is None
    assert close_windows(tmp_path, now_ms + day_ms)
    assert watermark_ahead_ms(tmp_path, now_ms) is None
    write(tmp_path / "commits" / "4", f'v1\n{{"nextBatchWatermarkMs": {now_ms + day_ms}}}')
    assert close_windows(tmp_path)
    assert watermark_ahead_ms(tmp_path, now_ms) == END_OF_TIME_MS
    for spoiled in ("", "v1", "v1\n[]\n-", "v1\n{", 'v1\n{"batchWatermarkMs": null}'):
        write(tmp_path / "offsets" / "5", spoiled)
        assert watermark_ahead_ms(tmp_path, now_ms) is None


def flow(path: Path, name: str, *, has_finished: bool) -> Any:
    found = checkpoint(path / name, offsets=3, commits=3, watermark_ms=7)
    return SimpleNamespace(name=name, checkpoint=found, has_finished=has_finished)


def test_windows_stay_open_for_what_a_flow_did_not_read_or_write(tmp_path: Path) -> None:
    said: list[str] = []
    watch: Any = Watch.__new__(Watch)
    watch.windows_until_ms, watch.screen = 100, SimpleNamespace(say=said.append)
    whole, stopped, later = (flow(tmp_path, name, has_finished=name != "stopped") for name in FLOWS)
    before = content(tmp_path / "stopped"), content(tmp_path / "later")
    assert [each.name for each in watch._to_close([whole, stopped])] == ["whole"]
    assert watch._to_close([later]) == []
    assert (content(tmp_path / "stopped"), content(tmp_path / "later")) == before
    assert said == ["stopped did not finish: its windows, and those of later flows, stay open"]


def test_windows_that_cannot_be_closed_are_a_failure_of_their_flow_alone(tmp_path: Path) -> None:
    noted: list[tuple[str, Change, str]] = []
    watch: Any = Watch.__new__(Watch)
    watch.windows_until_ms, watch.screen = 100, SimpleNamespace(say=lambda _text: None)
    stopped, whole = (flow(tmp_path, name, has_finished=True) for name in ("stopped", "whole"))
    (stopped.checkpoint / "offsets" / ".4.tmp").mkdir()  # nothing can be written there
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Watch, "_note", lambda _, query, change: noted.append((query.name, change, query.error)))
        assert [each.name for each in watch._to_close([stopped, whole])] == ["whole"]
    assert [(name, change) for name, change, _ in noted] == [("stopped", Change.FAILED)]
    assert "its windows cannot be closed: " in noted[0][2]
    assert (stopped.state, stopped.has_finished, watch.windows_until_ms) == (FAILED, False, None)
