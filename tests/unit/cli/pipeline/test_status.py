"""What `ottla pipeline status` says beside its table."""

import json
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


def test_joins_as_of_a_time_and_corrections_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = run_directory(tmp_path, "shop")
    directory.path.mkdir(parents=True)
    flow = FlowRecord(["topic orders"], "topic enriched", "append", "1 second", "/c")
    directory.write(RunRecord("shop", "shop", "/s.py", "f", "b", "m", 1, 1.0, "stopped", flows={"enriched": flow}))
    figures = Figures("enriched", START, corrected=1_234)
    figures.lookups["history('shop.customers')"] = {"found": 9, "absent": 1_200, "too old": 3, "ahead": 0, "waited": 4}
    progress.append(directory.progress, figures)
    for name, count in (("shop.customers-0123abcd", 2), ("shop.customers-4567abcd", 5), ("shop.items-0123abcd", 0)):
        kept = directory.path / "history" / name
        kept.mkdir(parents=True)
        (kept / "current.json").write_text(json.dumps({"late": count}))
    (kept / "current.json").write_text("{")  # is being written

    assert run(["pipeline", "status", "shop", "--home", str(tmp_path)]) == 0

    said = capsys.readouterr().out.splitlines()
    assert (
        "enriched: of the rows joined with history('shop.customers'), 1,200 found no row, 3 came before the history "
        "begins, 4 waited until their time was known"
    ) in said
    late = [line for line in said if line.startswith("history ")]
    assert late == ["history shop.customers: 5 changes came too late; rows of their time may have the version before"]
    assert said[-1].split("\t")[-1] == "1234"

    assert run(["pipeline", "status", "shop", "--home", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["late_changes"] == {"shop.customers": 5}
    assert found["flows"]["enriched"]["figures"]["corrected"] == 1_234
