import json
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.context import RunContext
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.inputs import Topic, topic
from ottla.pipeline.rows import late
from ottla.pipeline.rows.checkpoint_log import Batch, CheckpointLog
from ottla.pipeline.rows.late import LateRows, Position, ranges


def checkpoint(location: Path, *batches: Batch, done: int) -> CheckpointLog:
    for name in ("offsets", "commits"):
        (location / name).mkdir(parents=True)
    (location / "metadata").write_text('{"id":"the-query"}')
    for number, batch in enumerate(batches):
        lines = ["v1", json.dumps({"batchWatermarkMs": batch.watermark_ms, "batchTimestampMs": 5})]
        lines += ["-" if end is None else json.dumps(end) for end in batch.ends]
        (location / "offsets" / str(number)).write_text("\n".join(lines))
        (location / "offsets" / f".{number}.crc").write_bytes(b"crc")
        if number <= done:
            (location / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return CheckpointLog(location)


def test_a_checkpoint_tells_of_its_micro_batches(tmp_path: Path) -> None:
    batches = [Batch(0, ({"t": {"0": 3}}, None)), Batch(7, ({"t": {"0": 5}}, {"logOffset": 0}))]

    log = checkpoint(tmp_path, *batches, done=0)

    assert (log.query_id(), log.first_known(), log.last_done()) == ("the-query", 0, 0)
    assert [log.batch(0), log.batch(1)] == batches


def test_a_checkpoint_that_is_not_there_yet_has_done_nothing(tmp_path: Path) -> None:
    log = CheckpointLog(tmp_path / "none")

    assert (log.first_known(), log.last_done()) == (0, -1)
    with pytest.raises(PipelineError, match="metadata cannot be read"):
        log.query_id()
    with pytest.raises(PipelineError, match="offsets/3 cannot be read"):
        log.batch(3)


def test_a_form_that_is_not_known_is_refused(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, Batch(0, ()), done=0)
    (tmp_path / "offsets" / "0").write_text("v9\n{}")

    with pytest.raises(PipelineError, match="version 'v9'"):
        log.batch(0)


@pytest.mark.parametrize(
    ("before", "end", "found"),
    [
        ({"t": {"0": 3, "1": 0}}, {"t": {"0": 5, "1": 2}}, {"t": {0: (3, 5), 1: (0, 2)}}),
        ({"t": {"0": 3, "1": 4}}, {"t": {"0": 5, "1": 4}}, {"t": {0: (3, 5)}}),
        ({"t": {"0": 3}}, {"t": {"0": 3}}, {}),
        ({"t": {"0": 3}}, {"t": {"0": 5, "1": 2}}, {"t": {0: (3, 5), 1: (-2, 2)}}),  # a partition that was added
        (None, {"t": {"0": 5}}, {"t": {0: (-2, 5)}}),
        ({"t": {"0": 3}, "#": {"ids": {}}}, {"t": {"0": 5}, "#": {"ids": {}}}, {"t": {0: (3, 5)}}),
        ({"logOffset": 3}, None, {}),
    ],
)
def test_a_micro_batch_read_from_where_the_one_before_it_ended(before: Any, end: Any, found: Any) -> None:
    assert ranges(Batch(0, (before,)), Batch(0, (end,))) == found


def test_two_inputs_that_read_a_topic_alike_are_one() -> None:
    one, two = {"t": {"0": 1}}, {"t": {"0": 2}}

    assert ranges(Batch(0, (one, one)), Batch(0, (two, two))) == {"t": {0: (1, 2)}}
    with pytest.raises(PipelineError, match="t-0 at their own pace"):
        ranges(Batch(0, (one, one)), Batch(0, (two, {"t": {"0": 3}})))


def test_a_position_is_kept_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "late" / "flow.json"
    assert Position.read(file) is None

    Position(4, 17).write(file)
    Position(5, 18).write(file)

    assert Position.read(file) == Position(5, 18)
    assert [each.name for each in file.parent.iterdir()] == ["flow.json"]
    file.write_text("{")
    with pytest.raises(PipelineError, match="is damaged"):
        Position.read(file)


def test_topics_that_are_read_as_one_are_read_again_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = None
    context = RunContext(nothing, "here:9092", "job", "run", tmp_path, tmp_path)
    follower = LateRows("delays", tmp_path, tmp_path / "late.json", context, lambda load: nothing, topic=topic("late"))
    asked: list[tuple[Topic, Any]] = []
    monkeypatch.setattr(late, "read_ranges", lambda given, _, wanted: asked.append((given, wanted)))
    both = topic("flights, arrivals")

    follower._load(both, {"flights": {0: (3, 5)}, "arrivals": {1: (0, 2)}, "others": {0: (0, 1)}})

    assert asked == [(both, {"flights": {0: (3, 5)}, "arrivals": {1: (0, 2)}})]
