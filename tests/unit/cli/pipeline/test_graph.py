"""`ottla pipeline graph`: a job without Spark and without brokers."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ottla.cli.app import run
from ottla.cli.pipeline import graph
from ottla.cli.terminal import exits

JOB = """
from ottla.pipeline import Job, topic

job = Job("copy")


@job.flow(orders=topic("orders"), to=topic("paid-" + job.param("country")))
def paid(orders):
    raise AssertionError("no function runs")
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    file = tmp_path / "job.py"
    file.write_text(JOB)
    return str(file)


def test_text_is_a_line_per_edge_or_a_tree(
    job: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["pipeline", "graph", job, "--param", "country=NL"]) == exits.OK
    flow = "flow paid (append, every 1 second)"
    assert capsys.readouterr().out == f"topic orders\treads\t{flow}\n{flow}\twrites\ttopic paid-NL\n"

    monkeypatch.setattr(graph, "on_terminal", lambda: True)
    assert run(["pipeline", "graph", job, "--param", "country=NL"]) == exits.OK
    assert capsys.readouterr().out == f"topic paid-NL\n└── {flow}\n    └── topic orders\n"


def test_json_and_drawing(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawing = tmp_path / "job.svg"
    assert run(["pipeline", "graph", job, "--param", "country=NL", "--json", "--svg", str(drawing)]) == exits.OK
    found = json.loads(capsys.readouterr().out)
    assert found["job"] == "copy"
    assert found["nodes"][0] == {
        "id": "flow:paid",
        "kind": "flow",
        "name": "paid",
        "detail": "append, every 1 second",
    }
    assert {"source": "topic:orders", "target": "flow:paid", "kind": "reads"} in found["edges"]
    assert ElementTree.parse(drawing).getroot().tag.endswith("svg")


def test_a_drawing_alone_prints_nothing(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawing = tmp_path / "job.svg"
    assert run(["pipeline", "graph", job, "--param", "country=NL", "--svg", str(drawing)]) == exits.OK
    assert capsys.readouterr() == ("", "")
    assert drawing.exists()


def test_what_is_wrong_with_the_job_is_a_sentence(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "graph", job]) == exits.FAILED
    assert "needs the parameter 'country': give it by --param country=..." in capsys.readouterr().err
