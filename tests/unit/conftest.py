"""Which unit tests `make unit` leaves to `make test`."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import pytest

_HERE: Final = Path(__file__).parent
_THOROUGH: Final = (
    "*/test_*model.py",
    "benches/test_growth_plot.py",
    "cli/pipeline/test_compact.py",
    "connect/demo/test_stage.py",
    "connect/test_native.py",
    "groups/streams/test_large.py",
    "log/test_expected_cuts.py",
    "log/test_faulty_log.py",
    "log/test_faulty_reads.py",
    "pipeline/sinks/test_crashes.py",
    "pipeline/sinks/test_database.py",
    "pipeline/test_dataset.py",
    "pipeline/test_expected.py",
    "pipeline/test_package_distribution.py",
    "pipeline/test_plot.py",
    "protocol/test_against_kio.py",
    "protocol/test_codecs.py",
    "protocol/test_limits.py",
    "records/test_structure.py",
    "replication/decisions/test_in_sync.py",
    "replication/test_rejoin.py",
    "server/test_replies.py",
    "spark/test_decoding.py",
    "support/test_client_ends.py",
    "support/test_distribution.py",
    "support/test_java_sources.py",
    "support/test_requirements.py",
    "test_collector.py",
    "testing/test_loop_watch.py",
)
"""The files that need the most processor time: most try many examples of one property, or need a compiler, Java
or a database. They are over half of the time of all unit tests; `make test` and `make coverage` run them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the thorough files."""
    for item in items:
        if _HERE in item.path.parents:
            name = item.path.relative_to(_HERE).as_posix()
            if any(fnmatch(name, pattern) for pattern in _THOROUGH):
                item.add_marker(pytest.mark.thorough)
