"""What the source tells the server, through a driver that tells it more: everything up to the last keepalive."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.connect_tasks import TaskContext

from ottla.connect.api import Progress, Retriable
from ottla.connect.connectors.postgres import source as module
from ottla.connect.connectors.postgres.decoding.changes import Changes
from ottla.connect.connectors.postgres.decoding.pgoutput import Relation
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.connectors.postgres.source import PostgresSource


class Driver:
    """psycopg2's bookkeeping: a keepalive moves what it says if all that came had been told before."""

    def __init__(self) -> None:
        self.wal_end = self.flushed = self._explicit = self._last_start = 0
        self.said: list[int] = []

    def message(self, start: int) -> None:
        self.wal_end = self._last_start = start

    def keepalive(self, end: int) -> None:
        self.wal_end = end
        if self._explicit >= self._last_start and end > self.flushed:
            self.flushed = end

    def send_feedback(self, *, write_lsn: int, flush_lsn: int, force: bool) -> None:
        assert force
        self._explicit = max(self._explicit, flush_lsn)
        self.flushed = max(self.flushed, flush_lsn)
        self.said.append(self.flushed)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One that looks at a clock of hours."""
    ticks = iter(range(3600, 10_000_000, 3600))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(ticks), time_ns=lambda: 1))
    names: dict[str, Any] = {
        "database.hostname": "h",
        "database.user": "u",
        "database.dbname": "d",
        "topic.prefix": "p",
    }
    context: Any = TaskContext()
    made: Any = PostgresSource(PostgresSettings(**names), context)
    made._stream = Driver()
    return made


def arrived(source: Any, start: int) -> None:
    source._stream.message(start)
    source._last_start = start


def test_nothing_is_told_that_no_position_has(source: Any) -> None:
    arrived(source, 100)
    source.committed({}, {"lsn": 110})
    assert source._stream.said == [110]
    source._stream.keepalive(500)  # and the driver would say 500 from now on
    source._tell()
    assert source._stream.said == [110]
    source.committed({}, {"lsn": 500})
    assert source._stream.said == [110, 500]


def test_it_is_told_while_more_comes_than_is_safe(source: Any) -> None:
    arrived(source, 100)
    source.committed({}, {"lsn": 110})
    arrived(source, 600)
    source._stream.keepalive(700)
    source.committed({}, {"lsn": 610})
    assert source._stream.said == [110, 610]


def test_where_a_server_that_stops_was_told_to_be_is_stored(source: Any) -> None:
    stream = source._stream

    def read_message() -> Any:
        stream.keepalive(900)  # which the driver answers by itself
        raise Retriable("it stops")

    stream.read_message = read_message
    changes = Changes("s", "d", {"lsn": 5}, lambda _relation: None, lambda: 1)
    following = source._follow(None, None, changes, None)
    assert next(following) == [Progress(position={"lsn": 900})]
    with pytest.raises(Retriable, match="it stops"):
        next(following)


def test_a_step_ends_while_messages_come_of_which_no_record_is_made(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(0, 0.001)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(now), time_ns=lambda: 1))
    insert = SimpleNamespace(data_start=100, payload=b"I" + bytes([0, 0, 0, 7]) + b"N" + bytes([0, 1]) + b"n")
    messages = itertools.chain(
        [SimpleNamespace(data_start=99, payload=b"B" + bytes(20))], itertools.repeat(insert, 9999)
    )
    source._stream.read_message = lambda: next(messages)
    changes = Changes("s", "d", {"lsn": 5}, lambda _relation: None, lambda: 1)
    changes.take(Relation(7, "public", "other", "d", ()), 0, [])
    following = source._follow(None, None, changes, None)
    source._guard = lambda *_: None
    assert [next(following) for _ in range(3)] == [None, None, None]
    assert changes.in_transaction
