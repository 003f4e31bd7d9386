"""A machine with consumer groups for the tests of this directory."""

import pytest
from tests.support.consumer_members import World


@pytest.fixture
def world() -> World:
    return World({"t": 4, "u": 2})
