"""Whose the names of Spark's tasks are."""

from pathlib import Path

import pytest
from tests.unit.pipeline.test_run_store import record

from ottla.pipeline.run_store import FlowRecord, run_directory
from ottla.pipeline.task_names import TaskNames

QUERY = "1f1a0c3e-5c3f-4a52-9d34-0a1b2c3d4e5f"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    flows = {}
    for name, metadata in (("hourly", f'{{"id":"{QUERY}"}}'), ("broken", "{"), ("fresh", None)):
        checkpoint = tmp_path / "checkpoints" / name
        checkpoint.mkdir(parents=True)
        if metadata is not None:
            (checkpoint / "metadata").write_text(metadata)
        flows[name] = FlowRecord(["topic orders"], "topic copies", "append", "1 second", str(checkpoint))
    directory = run_directory(tmp_path, "shop")
    with directory.claimed():
        directory.write(record("shop", flows=flows))
    odd = run_directory(tmp_path, "odd")
    odd.path.mkdir()
    (odd.path / "run.json").write_text("[]")
    return tmp_path


def test_a_task_is_named_by_its_run_and_flow(home: Path) -> None:
    names = TaskNames(home)
    assert names.task_of(f"ottla-spark-{QUERY}-12") == "shop.hourly, task 12"
    assert names.task_of(f"ottla-spark-{QUERY[:-1]}0-3") == "a query of Spark, task 3"


@pytest.mark.parametrize(
    "name", ["", "orders", "ottla-spark-orders-1", f"ottla-spark-{QUERY}", f"x-ottla-spark-{QUERY}-1"]
)
def test_other_names_are_of_no_task(home: Path, name: str) -> None:
    assert TaskNames(home).task_of(name) is None


def test_without_a_home_queries_have_no_names(tmp_path: Path) -> None:
    assert TaskNames(tmp_path / "none").task_of(f"ottla-spark-{QUERY}-0") == "a query of Spark, task 0"


def test_a_home_that_cannot_be_read_hides_nothing_but_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert TaskNames(file).task_of(f"ottla-spark-{QUERY}-0") == "a query of Spark, task 0"
    (tmp_path / "pipelines" / "odd" / "run.json").mkdir(parents=True)
    assert TaskNames(tmp_path).task_of(f"ottla-spark-{QUERY}-0") == "a query of Spark, task 0"

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")  # as for a container's user without a name

    monkeypatch.delenv("OTTLA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert TaskNames().task_of(f"ottla-spark-{QUERY}-0") == "a query of Spark, task 0"
