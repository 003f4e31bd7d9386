"""Job files, and what is wrong with them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.pipeline.errors import JobError
from ottla.pipeline.job_file import fingerprint, load_job

GOOD = """\
from ottla.pipeline import Job, topic

job = Job("orders")
limit = job.param("limit", "10")


@job.flow(orders=topic("orders"), to=topic("copies"))
def copies(orders):
    return orders
"""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Loading puts the file's directory and module where Python finds them."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("ottla_job_"):
            del sys.modules[name]


def written(directory: Path, text: str, name: str = "orders.py") -> Path:
    file = directory / name
    file.write_text(text)
    return file


def test_a_job_is_loaded(tmp_path: Path) -> None:
    job = load_job(written(tmp_path, GOOD))
    assert (job.name, list(job.flows), job.parameters) == ("orders", ["copies"], {"limit": "10"})


def test_parameters_come_before_remembered_ones(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    assert load_job(file, {"limit": "3"}, {"limit": "2", "gone": "x"}).parameters == {"limit": "3"}
    assert load_job(file, None, {"limit": "2", "gone": "x"}).parameters == {"limit": "2"}
    with pytest.raises(JobError, match="job 'orders' has no parameter 'limt'; did you mean 'limit'"):
        load_job(file, {"limt": "3"})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("job = (", r"orders.py, line 1: '\(' was never closed: job = \("),
        ("x = 1\n", "orders.py declares no job: it needs a line such as job = Job"),
        ("import nowhere_at_all\n", "line 1: there is no module 'nowhere_at_all'; is it installed?"),
        ("x = 1\ny = x / 0\n", "orders.py, line 2: ZeroDivisionError: division by zero"),
        ("from ottla.pipeline import Job\n\njob = Job('a b')\n", r"orders.py, line 3: Job\('a b'\): a job's name is"),
        ("from ottla.pipeline import Job\na = Job('a')\nb = Job('b')\n", "more than one job .'a' and 'b'."),
        ("from ottla.pipeline import Job\na = Job('a')\n", "orders.py: job 'a' has no flow"),
        ("from ottla.pipeline import Jobb\n", "orders.py, line 1: ImportError: cannot import name 'Jobb'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(JobError, match=complaint):
        load_job(written(tmp_path, text))


def test_no_file_no_python_file(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"nothing\.py does not exist"):
        load_job(tmp_path / "nothing.py")
    with pytest.raises(JobError, match="is no Python file"):
        load_job(tmp_path)


def test_a_file_has_another_fingerprint_when_it_was_edited(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    before = fingerprint(file)
    assert fingerprint(file) == before
    written(tmp_path, GOOD + "\n")
    assert fingerprint(file) != before


def test_neighbours_are_found_and_travel_by_value(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    written(tmp_path, "def double(x):\n    return 2 * x\n", "orders_arithmetic.py")
    load_job(written(tmp_path, "from orders_arithmetic import double\n" + GOOD))
    double = sys.modules["orders_arithmetic"].double
    pickled = cloudpickle.dumps(double)
    del sys.modules["orders_arithmetic"]
    sys.path.remove(str(tmp_path))
    assert cloudpickle.loads(pickled)(4) == 8
