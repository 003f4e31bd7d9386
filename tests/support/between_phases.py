"""A pytest plugin: an error between the phases of a test fails that test and not the whole run.

The alarm of pytest-timeout strikes wherever the process is. Outside set-up, call and teardown nothing catches it: the
session would end properly with a test undone, which pytest-xdist takes for an error of its own.
"""

from collections.abc import Generator
from typing import Any, Final

import pytest

INTERNAL_ERROR: Final = "internal error"
"""Name under which a worker of pytest-xdist reports the error that ended its session."""


_OUTPUTS: Final[list[dict[str, Any]]] = []
"""What a worker reports when its session ends; the controller has none."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, bool, bool]:
    """Report an error from outside the phases as an error of the test, and tear down what the test has left."""
    try:
        return (yield)
    except pytest.exit.Exception:
        raise
    except (Exception, SystemExit, pytest.fail.Exception) as error:
        reasons = [f"between the phases of the test: {_shown(item, error)}"]
    try:
        item.ihook.pytest_runtest_teardown(item=item, nextitem=nextitem)
    except (Exception, SystemExit, pytest.fail.Exception) as error:
        reasons.append(f"then its teardown: {_shown(item, error)}")
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", "\n".join(reasons), "teardown")
    item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_internalerror(excrepr: Any) -> None:
    """Keep the error that ends the session of a worker, so that the end of the run can show it."""
    for output in _OUTPUTS:
        output[INTERNAL_ERROR] = str(excrepr)


def pytest_configure(config: pytest.Config) -> None:
    """Find the place where a worker reports."""
    output = getattr(config, "workeroutput", None)
    if output is not None:
        _OUTPUTS.append(output)


def _shown(item: pytest.Item, error: BaseException) -> str:
    return str(item.repr_failure(pytest.ExceptionInfo.from_exception(error)))
