"""`ottla pipeline new`: the files of a new job. `tests/pipeline/test_golden.py` runs its test."""

from pathlib import Path

import pytest
from tools.docs.commands import check

from ottla.cli.app import run
from ottla.cli.terminal import exits
from ottla.pipeline.golden import cases_of, read_lines
from ottla.pipeline.golden_run import outputs_of
from ottla.pipeline.job_file import load_job

CASE = Path("tests", "my-orders", "five-orders")


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files(directory: Path) -> set[Path]:
    return {path.relative_to(directory) for path in directory.rglob("*") if path.is_file()}


def test_a_new_job_can_be_loaded_and_its_test_fits_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "new", "my-orders"]) == exits.OK

    written = {
        Path("my-orders.py"),
        CASE / "input.orders.jsonl",
        CASE / "expected.my-orders-hourly.jsonl",
        CASE / "expected.my-orders.dead-letters.jsonl",
    }
    assert files(tmp_path / "jobs") == written
    out, err = capsys.readouterr()
    assert {Path(line) for line in out.splitlines()} == {Path("jobs") / path for path in written}
    commands = [line.strip() for line in err.splitlines() if line.startswith("  ")]
    assert commands[0].startswith("ottla pipeline test jobs/my-orders.py")
    assert [check(command) for command in commands] == [1] * 5
    job = load_job(Path("jobs/my-orders.py"))
    (case,) = cases_of(Path("jobs/my-orders.py"), job.name)
    assert set(case.inputs()) == job.reads()
    assert set(case.expected()) == set(outputs_of(job))
    assert [len(read_lines(file)) for file in case.expected().values()] == [2, 2]


def test_another_directory(tmp_path: Path) -> None:
    assert run(["pipeline", "new", "sales", "--directory", "there/and here"]) == exits.OK
    assert len(files(tmp_path / "there" / "and here")) == 4


@pytest.mark.parametrize("existing", ["jobs/sales.py", "jobs/tests/sales/other/input.orders.jsonl"])
def test_nothing_is_overwritten(existing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / existing
    there.parent.mkdir(parents=True)
    there.write_text("mine")

    assert run(["pipeline", "new", "sales"]) == exits.FAILED

    assert "exists already: choose another name, or another --directory" in capsys.readouterr().err
    assert files(tmp_path) == {Path(existing)}
    assert there.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("../sales", "'../sales' cannot name a job: a job's name is up to 100 letters"),
        ("json", "jobs/json.py would hide the Python module 'json'"),
        ("pyspark", "jobs/pyspark.py would hide the Python module 'pyspark'"),
    ],
)
def test_a_name_that_does_not_work_is_refused(
    name: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "new", name]) == exits.FAILED
    assert complaint in capsys.readouterr().err
    assert files(tmp_path) == set()
