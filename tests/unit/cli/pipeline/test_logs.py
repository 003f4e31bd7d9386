"""One story from the files of a run."""

import json
from pathlib import Path

import pytest

from ottla.cli.app import run
from ottla.cli.terminal import exits
from ottla.pipeline.run_store import FAILED, FlowRecord, RunRecord, run_directory

JOB_LOG = """\
2026-11-23 10:00:02,500 ERROR ottla.pipeline: hourly failed
Traceback (most recent call last):
  KeyError: 'carrier'
2026-11-23 10:00:04,000 INFO py4j: closing
"""
SPARK_LOG = """\
2026-11-23 10:00:01.000 WARN ResolveWriteToStream: a setting
2026-11-23 10:00:03.000 ERROR MicroBatchExecution: Query shop.hourly [id = 1] terminated with error
java.lang.IllegalStateException: gone
\tat Spark
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = run_directory(tmp_path / "home", "shop")
    directory.path.mkdir(parents=True)
    record = RunRecord("shop", "shop", str(tmp_path / "job.py"), "", "", "local", 1, 0.0, state=FAILED)
    record.flows = {
        name: FlowRecord(["topic orders"], "topic out", "append", "1 second", "here") for name in ("hourly", "hourly-2")
    }
    directory.write(record)
    (directory.path / "job.log").write_text(JOB_LOG)
    (directory.path / "spark.log").write_text(SPARK_LOG)
    (directory.path / "spark.err").write_text("a worker ended\n")
    return tmp_path / "home"


def logs(home: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run(["pipeline", "logs", "shop", "--home", str(home), *options]) == exits.OK
    return capsys.readouterr().out


def test_everything_is_shown_in_the_order_in_which_it_happened(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = logs(home, capsys)
    places = [
        shown.index(part) for part in ("a setting", "hourly failed", "KeyError", "terminated", "at Spark", "py4j")
    ]
    assert places == sorted(places)
    assert "processes: a worker ended\n" in shown
    assert logs(home, capsys, "-n", "1").count("\n") == 1


def test_a_flow_is_found_as_itself_and_as_sparks_query(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(logs(home, capsys, "--flow", "hourly", "--json"))
    assert [each["source"] for each in found] == ["job", "spark"]
    assert found[0]["text"].endswith("KeyError: 'carrier'")
    assert found[1]["at"] == "2026-11-23T10:00:03"
    assert json.loads(logs(home, capsys, "--flow", "hourly-2", "--json")) == []


def test_what_is_not_there_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "logs", "shop", "--home", str(home), "--flow", "hourli"]) == exits.FAILED
    assert "'shop' has no flow 'hourli'; did you mean 'hourly'?" in capsys.readouterr().err
    assert run(["pipeline", "logs", "ship", "--home", str(home)]) == exits.FAILED
    assert "nothing has run as 'ship'" in capsys.readouterr().err
