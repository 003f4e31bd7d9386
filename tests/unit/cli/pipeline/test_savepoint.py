"""Savepoints by the command line, without Spark and without brokers."""

import json
from pathlib import Path

import pytest
from tests.support.checkpoints import QUERY, READ, make_run

from ottla.cli.app import run
from ottla.cli.terminal import exits


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_run(tmp_path / "home", "flights")
    return tmp_path / "home"


def savepoint(home: Path, *arguments: str) -> int:
    return run(["pipeline", "savepoint", *arguments, "--home", str(home)])


def test_a_savepoint_says_how_far_flows_were_and_how_large_it_is(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert savepoint(home, "flights", "before") == exits.OK
    output = capsys.readouterr()
    assert [line.split() for line in output.out.splitlines()] == [["delays", "3", "23"], ["quiet", "-", "-"]]
    files = [each for each in (tmp_path / "before" / "checkpoints").rglob("*") if each.is_file()]
    size = sum(file.stat().st_size for file in files)
    assert output.err == f"{tmp_path}/before: {len(files)} files, {size:,} bytes\n"


def test_json(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert savepoint(home, "flights", str(tmp_path / "before"), "--json") == exits.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["path"], found["job"], found["spark"]) == (str(tmp_path / "before"), "flight-delays", "4.3.0")
    assert found["flows"]["delays"] == {"query_id": QUERY, "batch": 3, "begun": 4, "read": [READ]}
    assert found["size_bytes"] > 0


def test_what_cannot_be_saved_or_taken_up_is_one_sentence(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert savepoint(home, "flight", str(tmp_path / "before")) == exits.FAILED
    assert "nothing has run as 'flight'; did you mean 'flights'?" in capsys.readouterr().err
    assert savepoint(home, "flights", str(home)) == exits.FAILED
    assert capsys.readouterr().err == (
        f"ottla: {home} exists already: give a path that does not, since a savepoint is never overwritten\n"
    )
    job = tmp_path / "job.py"
    assert run(["pipeline", "run", str(job), "--from-savepoint", str(tmp_path)]) == exits.FAILED
    assert capsys.readouterr().err == f"ottla: {tmp_path} is no savepoint: it has no savepoint.json\n"
    assert run(["pipeline", "run", str(job), "--replace"]) == exits.USAGE
    assert "--replace and --set-back go with --from-savepoint" in capsys.readouterr().err
