"""`ottla pipeline test` without Spark: what is wrong with a case, and how files of what is expected are written."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ottla.cli.app import run
from ottla.cli.pipeline.test import update_files
from ottla.cli.terminal import exits
from ottla.pipeline.golden import Case

JOB = """
from ottla.pipeline import Job, topic

job = Job("copy")


@job.flow(orders=topic("orders"), to=topic("paid"))
def paid(orders):
    return orders
"""


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["pipeline", "test", *arguments]) == exits.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_what_is_wrong_with_a_case_is_said_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.py"
    assert "job.py does not exist" in complaint(capsys, str(job))
    job.write_text(JOB)
    case = tmp_path / "tests" / "copy" / "one"
    assert "has no case: make a directory there" in complaint(capsys, str(job))
    case.mkdir(parents=True)
    assert "has no input: write records to input.orders.jsonl" in complaint(capsys, str(job))
    (case / "input.oders.jsonl").touch()
    assert "reads no topic 'oders'; did you mean 'orders'?" in complaint(capsys, str(job))
    records = case / "input.orders.jsonl"
    (case / "input.oders.jsonl").rename(records)
    records.write_text('{"key": "k", "value": 1}\n\n{"value"}\n')
    assert f"{records}, line 3: no JSON" in complaint(capsys, str(job))
    records.write_text('{"key": "k", "value": 1}\n')
    (case / "expected.pai.jsonl").touch()
    assert "has no output 'pai'; did you mean 'paid'?" in complaint(capsys, str(job))
    (case / "expected.pai.jsonl").unlink()
    assert "there is no case 'two'; there are one" in complaint(capsys, str(job), "two")


def test_only_what_has_changed_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(tmp_path)
    same, gone = case.expected_file("same"), case.expected_file("gone")
    same.write_text('{"key": "k", "value": 1}\n')
    gone.write_text('{"key": "k", "value": 1}\n')
    found: dict[str, list[dict[str, Any]]] = {
        "same": [{"key": "k", "value": 1}],
        "gone": [],
        "empty": [],
        "new": [{"key": "b", "value": {"n": "ä"}}, {"key": "a", "value": None}],
    }

    assert update_files(case, found) == 2

    assert sorted(file.name for file in tmp_path.iterdir()) == ["expected.new.jsonl", "expected.same.jsonl"]
    written = case.expected_file("new").read_text(encoding="utf-8")
    assert [json.loads(line)["key"] for line in written.splitlines()] == ["a", "b"]
    assert "ä" in written
    assert capsys.readouterr().out.splitlines() == [f"{gone}: 0 records", f"{case.expected_file('new')}: 2 records"]
    assert update_files(case, found) == 0


def test_a_report_has_what_ended_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, report = tmp_path / "job.py", tmp_path / "report.xml"
    job.write_text(JOB)
    report.write_text("of an earlier run")

    assert "has no case" in complaint(capsys, str(job), "--junit", str(report))

    (suite,) = ElementTree.parse(report).iter("testsuite")
    assert (suite.get("name"), suite.get("tests"), suite.get("errors")) == ("job", "1", "1")
    (error,) = suite.iter("error")
    assert "has no case: make a directory there" in str(error.text)


def test_a_report_is_of_comparisons_and_needs_a_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    assert run(["pipeline", "test", str(job), "--update", "--junit", str(tmp_path / "report.xml")]) == exits.USAGE
    assert "--junit reports comparisons, and --update makes none" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [job]
    assert "nowhere/report.xml: no such file" in complaint(
        capsys, str(job), "--junit", str(tmp_path / "nowhere" / "report.xml")
    )
