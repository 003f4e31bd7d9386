"""What the runtime gets while the binlog has nothing for it."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.connect_tasks import TaskContext

from ottla.connect.connectors.mysql import source as mysql_source
from ottla.connect.connectors.mysql.settings import MysqlSettings
from ottla.connect.connectors.mysql.source import MysqlSource

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
    monkeypatch.setattr(mysql_source, "_EMPTY_S", 0.01)
    given = {"database.hostname": "h", "database.user": "u", "topic.prefix": "t"}
    source = MysqlSource(MysqlSettings(**given), TaskContext())  # type: ignore[arg-type]
    endless: Any = Endless()
    changes: Any = SimpleNamespace(in_transaction=True)
    assert source._batch(endless, endless, changes) == ([], False, None)
