"""Which unit tests `make unit` leaves to `make test`."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import pytest

_HERE: Final = Path(__file__).parent
_THOROUGH: Final = (
    "*/test_*model.py",
    "benches/test_growth_plot.py",
    "connect/demo/test_stage.py",
    "pipeline/sinks/test_crashes.py",
    "protocol/test_against_kio.py",
    "protocol/test_codecs.py",
    "protocol/test_limits.py",
    "records/test_structure.py",
    "replication/decisions/test_in_sync.py",
    "replication/test_rejoin.py",
    "support/test_java_sources.py",
)
"""Files that try many examples of one property, or need a compiler or Java: half of the time of all unit tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the thorough files."""
    for item in items:
        if _HERE in item.path.parents:
            name = item.path.relative_to(_HERE).as_posix()
            if any(fnmatch(name, pattern) for pattern in _THOROUGH):
                item.add_marker(pytest.mark.thorough)
