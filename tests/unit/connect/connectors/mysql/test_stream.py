"""What the runtime gets while the binlog has nothing for it."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.connectors.mysql import stream as mysql_stream
from ottla.connect.connectors.mysql.settings import MysqlSettings
from ottla.connect.connectors.mysql.stream import BinlogStream, Connections

_TIMEOUT_S = 10.0


class Endless:
    """A transaction of which nothing is captured, as the stream and as what takes its events."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _TIMEOUT_S

    def fetchone(self) -> object:
        assert time.monotonic() < self._until, "nothing was handed on, not even that there is nothing"
        return object()

    def take(self, event: object, batch: list[Any]) -> None:
        """Adds nothing."""


def test_the_runtime_has_its_turn_amid_a_transaction_that_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_stream, "_EMPTY_S", 0.01)
    given = {"database.hostname": "h", "database.user": "u", "topic.prefix": "t"}
    endless: Any = Endless()
    changes: Any = SimpleNamespace(in_transaction=True)
    settings = MysqlSettings(**given)  # type: ignore[arg-type]
    assert BinlogStream(settings, endless, Connections(), endless, changes).read() == ([], False, None)
