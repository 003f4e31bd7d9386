"""What the source tells the server, through a driver that tells it more: everything up to the last keepalive."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.connect_tasks import TaskContext

from ottla.connect.api import Progress, Retriable
from ottla.connect.connectors.capture.changes import Rules
from ottla.connect.connectors.postgres import stream as module
from ottla.connect.connectors.postgres.decoding.changes import Changes, Origin
from ottla.connect.connectors.postgres.decoding.pgoutput import Relation
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.connectors.postgres.source import PostgresSource
from ottla.connect.connectors.postgres.stream import ReplicationStream, SlotWatch

SETTINGS = PostgresSettings.model_validate(
    {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
)


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
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    context: Any = TaskContext()
    made: Any = PostgresSource(SETTINGS, context)
    made._feedback._stream = Driver()
    return made


def arrived(source: Any, start: int) -> None:
    source._feedback._stream.message(start)
    source._feedback.last_start = start


def streaming(source: Any, changes: Changes) -> ReplicationStream:
    """The stream of the driver, whose slot nobody watches."""
    watch: Any = SlotWatch(SETTINGS, source.context, None, None)  # type: ignore[arg-type]
    watch.look = lambda *_: None
    connection = SimpleNamespace(cursor=lambda: source._feedback._stream)
    return ReplicationStream(SETTINGS, connection, changes, watch, source._feedback)


def nothing_captured() -> Changes:
    return Changes(Origin("s", "d"), {"lsn": 5}, lambda _relation: None, Rules(lambda: 1))


def test_nothing_is_told_that_no_position_has(source: Any) -> None:
    arrived(source, 100)
    source.committed({}, {"lsn": 110})
    assert source._feedback._stream.said == [110]
    source._feedback._stream.keepalive(500)  # and the driver would say 500 from now on
    source._feedback.send()
    assert source._feedback._stream.said == [110]
    source.committed({}, {"lsn": 500})
    assert source._feedback._stream.said == [110, 500]


def test_it_is_told_while_more_comes_than_is_safe(source: Any) -> None:
    arrived(source, 100)
    source.committed({}, {"lsn": 110})
    arrived(source, 600)
    source._feedback._stream.keepalive(700)
    source.committed({}, {"lsn": 610})
    assert source._feedback._stream.said == [110, 610]


def test_where_a_server_that_stops_was_told_to_be_is_stored(source: Any) -> None:
    stream = source._feedback._stream

    def read_message() -> Any:
        stream.keepalive(900)  # which the driver answers by itself
        raise Retriable("it stops")

    stream.read_message = read_message
    batch, _, broken = streaming(source, nothing_captured()).read()
    assert batch == [Progress(position={"lsn": 900})]
    assert str(broken) == "it stops"


def test_a_step_ends_while_messages_come_of_which_no_record_is_made(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(0, 0.001)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(now)))
    insert = SimpleNamespace(data_start=100, payload=b"I" + bytes([0, 0, 0, 7]) + b"N" + bytes([0, 1]) + b"n")
    messages = itertools.chain(
        [SimpleNamespace(data_start=99, payload=b"B" + bytes(20))], itertools.repeat(insert, 9999)
    )
    source._feedback._stream.read_message = lambda: next(messages)
    changes = nothing_captured()
    changes.take(Relation(7, "public", "other", "d", ()), 0, [])
    stream = streaming(source, changes)
    assert [stream.read() for _ in range(3)] == [([], False, None)] * 3
    assert changes.in_transaction
