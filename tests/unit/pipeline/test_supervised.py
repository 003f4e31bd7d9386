"""What becomes of a query that does not start."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipeline.home import FAILED, WAITING
from ottla.pipeline.supervised import Change, Supervised


def supervised(error: Exception) -> Supervised:
    def start(*_: object) -> Any:
        raise error

    planned: Any = SimpleNamespace(name="copies", start=start)
    nothing: Any = None
    return Supervised(planned, nothing, Path("/checkpoint"))


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        ConnectionRefusedError(111, "Connection refused"),
        RuntimeError("server closed the connection unexpectedly"),
    ],
)
def test_whatever_a_sink_raises_that_passes_is_waited_for(error: Exception) -> None:
    query = supervised(error)

    assert query.start() is Change.WAITS

    assert query.state == WAITING
    assert str(error) in (query.error or "")


def test_what_does_not_pass_is_said_with_its_line() -> None:
    query = supervised(KeyError("carrier"))

    assert (query.start(), query.state) == (Change.FAILED, FAILED)
    assert "KeyError: 'carrier'" in (query.error or "")


def test_what_may_pass_ends_after_many_tries_without_a_micro_batch() -> None:
    query = supervised(ValueError("my lookup timed out"))

    assert [query.start() for _ in range(19)] == [Change.WAITS] * 19
    query.on_success()
    assert [query.start() for _ in range(20)] == [*[Change.WAITS] * 19, Change.FAILED]
