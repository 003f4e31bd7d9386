"""What `ottla pipeline status` says beside its table."""

from pathlib import Path

import pytest

from ottla.cli.app import run
from ottla.pipeline import progress
from ottla.pipeline.progress import Figures
from ottla.pipeline.run_store import FlowRecord, RunRecord, run_directory

START = 1_767_225_600.0


def test_an_idle_input_that_holds_back_the_watermark_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = run_directory(tmp_path, "shop")
    directory.path.mkdir(parents=True)
    flow = FlowRecord(["topic flights", "topic weather", "topic ports"], "topic windy", "append", "1 second", "/c")
    record = RunRecord("shop", "shop", "/s.py", "f", "b", "m", 1, 1.0, "stopped", flows={"windy": flow})
    directory.write(record)
    figures = Figures("windy", START, state_rows=3, watermark="2026-01-01T00:00:00.000Z")
    figures.inputs["topic flights"] = {"records": 9, "last_at": START + 60}
    figures.inputs["topic weather"] = {"records": 2, "last_at": START}
    figures.inputs["topic ports"] = {"records": 0, "last_at": None}
    progress.append(directory.progress, figures)

    assert run(["pipeline", "status", "shop", "--home", str(tmp_path)]) == 0

    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("windy: ")]
    holds = "; a watermark on it holds back that of the flow"
    assert said == [
        f"windy: nothing from topic weather since 2026-01-01T00:00:00+00:00{holds}",
        f"windy: nothing from topic ports yet{holds}",
    ]
