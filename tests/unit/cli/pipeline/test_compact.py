"""Small files of a run's tables become few, without Spark and without brokers."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ottla.cli.app import run
from ottla.cli.terminal import exits
from ottla.pipeline.run_store import STOPPED, RunRecord, run_directory

JOB = """\
from ottla.pipeline import Job, topic
from ottla.pipeline.sinks import delta

job = Job("flights")


@job.flow(flights=topic("flights"), to=delta("history"))
def history(flights):
    return flights


@job.flow(flights=topic("flights"), to=topic("copy"))
def copied(flights):
    return flights
"""
SUFFIX = "again"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run that wrote three small files, into a copy of the table (a replay)."""
    (tmp_path / "job.py").write_text(JOB)
    for number in range(3):
        write_deltalake(tmp_path / f"history-{SUFFIX}", pa.table({"flight": [number]}), mode="append")
    run = run_directory(tmp_path / "home", "flights")
    run.path.mkdir(parents=True)
    run.write(
        RunRecord("flights", "flights", str(tmp_path / "job.py"), "", "", "local", 1, 0.0, state=STOPPED, suffix=SUFFIX)
    )
    return tmp_path / "home"


def test_tables_of_files_are_compacted(capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path) -> None:
    command = ["pipeline", "compact", "flights", "--home", str(home)]
    assert run([*command, "--json"]) == exits.OK
    (done,) = json.loads(capsys.readouterr().out)
    assert (done["flow"], done["done"]) == ("history", "3 files became 1")
    table = DeltaTable(tmp_path / f"history-{SUFFIX}")
    assert len(table.file_uris()) == 1
    assert sorted(table.to_pyarrow_table()["flight"].to_pylist()) == [0, 1, 2]
    assert run(command) == exits.OK
    assert "no small files" in capsys.readouterr().out


def test_flows_without_files_are_refused(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    command = ["pipeline", "compact", "flights", "--home", str(home), "--flow"]
    assert run([*command, "copied"]) == exits.FAILED
    assert "'copied' of 'flights' write no tables of files" in capsys.readouterr().err
    assert run([*command, "histor"]) == exits.FAILED
    assert "'flights' has no flow 'histor'; did you mean 'history'?" in capsys.readouterr().err
