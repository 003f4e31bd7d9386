"""What all tests have in common."""

import sys
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings

from tests.support import between_phases, client_ends, lean_collection, left_out, one_parser

settings.register_profile("ottla", deadline=None)  # how long an example takes says more of the machine than of the code
settings.load_profile("ottla")

_HERE: Final = Path(__file__).parent
_LONG_FILES: Final = _HERE / "long_files.txt"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Leave out what a missing program prevents, and parse in one thread at a time where Python needs it.

    Before plugins of packages, so that those of Ottla's modules that they import are not rewritten.
    """
    if sys.version_info[:3] < one_parser.SINCE:
        one_parser.install()
    config.pluginmanager.register(left_out, "ottla-left-out")
    config.pluginmanager.register(lean_collection, "ottla-lean-collection")
    config.pluginmanager.register(between_phases, "ottla-between-phases")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have the workers take up the files in an order that keeps all of them, and the processors, at work to the end."""
    if hasattr(config, "workerinput"):
        from tests.support import distribution  # not every run has several workers

        long = [_HERE / name for name in _LONG_FILES.read_text().split()]
        files = distribution.in_turn(dict.fromkeys(item.path for item in items), long=long, busy=_HERE / "unit")
        places = {file: place for place, file in enumerate(files)}
        items.sort(key=lambda item: places[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the clients that a test has left, while there are brokers."""
    is_last = nextitem is None or nextitem.path != item.path
    client_ends.end_unused(finished=item.module if is_last and isinstance(item, pytest.Function) else None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Keep what shares a Spark session on few workers."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.support.distribution import ByFileAndSession  # not every run has several workers

    return ByFileAndSession(config, log)
