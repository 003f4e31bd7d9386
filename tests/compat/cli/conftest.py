"""The command line as a child process, pointed at the broker under test."""

import pytest
from tests.compat.cli.program import OttlaProgram


@pytest.fixture
def ottla(bootstrap: str) -> OttlaProgram:
    """Runs `ottla` with OTTLA_BOOTSTRAP set."""
    return OttlaProgram(bootstrap)
