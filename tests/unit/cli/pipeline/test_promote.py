"""A replay that has not caught up does not stop the run that it would replace."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.pipeline import promote as pipeline_promote
from ottla.pipeline import promote as promoting
from ottla.pipeline.run_store import FlowRecord, RunDirectory, RunRecord, run_directory


def make(home: Path, name: str, position: int, replays: str | None = None) -> RunDirectory:
    directory = run_directory(home, name)
    checkpoint = directory.path / "checkpoints" / "delays"
    for kind in ("offsets", "commits"):
        (checkpoint / kind).mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text("v1\n{}\n" + json.dumps({"flights": {"0": position}}))
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    flow = FlowRecord(["topic flights"], "topic delays", "update", "1 second", str(checkpoint))
    directory.write(
        RunRecord(name, "job", "/job.py", "f", "here:9092", "local[2]", 1, 1.0, replays=replays, flows={"delays": flow})
    )
    return directory


def test_a_refusal_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, replay = make(tmp_path, "flights", 10), make(tmp_path, "v2", 4, replays="flights")
    stopped: list[str] = []
    monkeypatch.setattr(promoting, "stop", lambda run, within_s: stopped.append(run.name))

    with first.claimed(), replay.claimed():
        outcome = CliRunner().invoke(
            pipeline_promote.command, ["v2", "--yes", "--home", str(tmp_path), "--within", "0.1"]
        )

    assert outcome.exit_code != 0
    assert "flow 'delays' is 6 records of topic 'flights' behind" in str(outcome.exception or outcome.output)
    assert stopped == []


def test_a_refusal_after_that_says_what_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, replay = make(tmp_path, "flights", 10), make(tmp_path, "v2", 10, replays="flights")
    claim = first.claimed()
    claim.__enter__()

    def stop(run: RunDirectory, within_s: float) -> None:
        """The first run does one more micro-batch before it ends."""
        text = json.dumps({"flights": {"0": 12}})
        (first.path / "checkpoints" / "delays" / "offsets" / "0").write_text("v1\n{}\n" + text)
        claim.__exit__(None, None, None)

    monkeypatch.setattr(promoting, "stop", stop)

    with replay.claimed():
        outcome = CliRunner().invoke(
            pipeline_promote.command, ["v2", "--yes", "--home", str(tmp_path), "--within", "0.1"]
        )

    said = str(outcome.exception or outcome.output)
    assert "2 records of topic 'flights' behind" in said
    assert "'flights' was stopped for this: start it again now" in said
