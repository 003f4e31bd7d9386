"""What the measurement of Spark's workers counts as one."""

import subprocess
import sys
from collections.abc import Sequence

import pytest
from benches.spark_load import Family

_WAITS = [sys.executable, "-c", "input()"]


@pytest.mark.parametrize(
    ("command", "is_counted"),
    [
        (["cat"], False),  # any program of the JVM's: until it is loaded it has the JVM's memory
        (_WAITS, True),
    ],
)
def test_only_pythons_are_workers(command: Sequence[str], is_counted: bool) -> None:
    family = Family()
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        try:
            found = [each.pid for each in family.workers()]  # with those that other tests of this process have started
        finally:
            child.kill()
    assert (child.pid in found) is is_counted


def test_the_memory_of_a_worker_is_noted() -> None:
    family = Family()
    with subprocess.Popen(_WAITS, stdin=subprocess.PIPE) as child:
        try:
            family.look()
        finally:
            child.kill()
    assert family.worker_rss_bytes > 0
