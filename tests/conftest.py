"""What all tests have in common."""

from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import settings

settings.register_profile("ottla", deadline=None)  # how long an example takes says more of the machine than of the code
settings.load_profile("ottla")

_MOST_REPEATED: Final = 8
"""Tests of one session that may fail the first time and pass the second."""
_has_failed: Final = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a proof finds counts the first time: only other tests get a second try from `--reruns`."""
    for item in items:
        if item.get_closest_marker("proof") is not None:
            item.add_marker(pytest.mark.flaky(reruns=0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_has_failed] = True
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A second try has brokers of its own: those of the first hold what it left behind."""
    if item.stash.get(_has_failed, False):
        item.stash[_has_failed] = False
        item.session._setupstate.teardown_exact(None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests needed a second try, and why."""
    repeated = terminalreporter.stats.get("rerun", ())
    for report in repeated:
        terminalreporter.write_sep("_", f"{report.nodeid}: the first time")
        terminalreporter.write_line(report.longreprtext)
    if repeated:
        terminalreporter.write_line(f"{len(repeated)} tests failed the first time; {_MOST_REPEATED} may")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session in which too many tests needed a second try: then it was not the machine."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and len(reporter.stats.get("rerun", ())) > _MOST_REPEATED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
