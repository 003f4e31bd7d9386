"""A pytest plugin: tests that need a program which this machine lacks are left out, and counted at the end.

With `CI` set they fail instead: there, anything left out is a failure.
"""

import os
from collections import Counter
from collections.abc import Generator
from typing import Any, Final

import pytest

from tests.support.requirements import MissingProgramError, install_command

_PACKAGES: Final = "packages of a missing program"
"""Name of the property of a report that says which packages its test needs; xdist hands properties on."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a failure for want of a program into a skip."""
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, MissingProgramError) and report.failed and not os.environ.get("CI"):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"left out: {error}")
        report.user_properties.append((_PACKAGES, " ".join(error.packages)))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests were left out for want of which packages, and the command that adds them."""
    left_out = Counter(
        value
        for report in terminalreporter.stats.get("skipped", ())
        for name, value in report.user_properties
        if name == _PACKAGES
    )
    if not left_out:
        return
    terminalreporter.write_sep("=", "left out", yellow=True)
    for packages, tests in left_out.most_common():
        terminalreporter.write_line(f"{tests} tests need {packages}")
    everything = list(dict.fromkeys(package for packages in left_out for package in packages.split()))
    terminalreporter.write_line(f"To run them as well: {install_command(everything)}")
