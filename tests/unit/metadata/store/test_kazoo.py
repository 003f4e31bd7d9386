"""Kazoo's private parts, which `zookeeper_wire` overrides or calls, are as they were when that was written.

A release of kazoo that fails here, or is newer than those declared, has to be read before it is allowed.
"""

import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler

ROOT = Path(__file__).parents[4]


def test_only_releases_that_were_read_are_allowed() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (kazoo,) = (dependency for dependency in declared if dependency.startswith("kazoo"))
    assert kazoo == "kazoo>=2.10,<2.12"
    assert version("kazoo").split(".")[:2] in (["2", "10"], ["2", "11"])


@pytest.mark.parametrize(
    ("part", "parameters"),
    [
        (ConnectionHandler.__init__, ["self", "client", "retry_sleeper", "logger", "sasl_options"]),
        (ConnectionHandler._invoke, ["self", "timeout", "request", "xid"]),
        (ConnectionHandler._read_watch_event, ["self", "buffer", "offset"]),
        (KazooClient._call, ["self", "request", "async_object"]),
        (SequentialThreadingHandler.create_connection, ["self", "args", "kwargs"]),
    ],
)
def test_what_is_overridden_or_called_takes_the_same(part: object, parameters: list[str]) -> None:
    assert callable(part)
    assert list(inspect.signature(part).parameters) == parameters


def test_kazoo_calls_what_is_overridden_and_uses_what_is_replaced() -> None:
    connection, client = inspect.getsource(ConnectionHandler), inspect.getsource(KazooClient)
    assert "self._read_watch_event(buffer, offset)" in connection
    assert re.search(r"connect_result, zxid = self\._invoke\(", connection), "the answer's first part is the session"
    assert "self._connection = ConnectionHandler(" in client
    assert "self._conn_retry.copy()" in client
    assert "self._connection.start()" in client
    assert re.search(r"self\.handler\.create_connection|handler\.create_connection", connection)
