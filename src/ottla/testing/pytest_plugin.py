"""The pytest plugin: `ottla_broker`, a broker of one's own for each test that asks for it.

The marker `ottla_broker` passes arguments to it, such as `@pytest.mark.ottla_broker(tls=True, users={"alice": "pw"})`.
The option `ottla_loop_limit_ms` in pytest's configuration fails tests whose broker's event loop is held up for longer.

Loaded by every pytest run of an environment that has ottla installed, so it imports nothing until a test asks.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("ottla_loop_limit_ms", "how long the event loop of an in-process broker may be held up", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and set the limit of the event loop's watch from `ottla_loop_limit_ms`."""
    config.addinivalue_line(
        "markers", "ottla_broker(**arguments): what the fixture ottla_broker gives to ottla.testing.Broker"
    )
    limit_ms = config.getini("ottla_loop_limit_ms")
    if limit_ms:
        from ottla.testing.broker import Broker

        Broker.loop_limit_seconds = float(limit_ms) / 1000


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """A running broker on a free port with a temporary directory, stopped and removed after the test."""
    from ottla.testing.broker import Broker

    marker = request.node.get_closest_marker("ottla_broker")
    with Broker(**({} if marker is None else marker.kwargs)) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_session_broker() -> "Iterator[Broker]":
    """One running broker for the whole session: quicker, for tests that use topics of their own."""
    from ottla.testing.broker import Broker

    with Broker() as broker:
        yield broker
