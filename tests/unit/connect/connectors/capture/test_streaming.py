"""The loop of a capture: batches, heartbeats between transactions, and the reason of the end."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.api import Progress, Retriable, SourceRecord
from ottla.connect.connectors.capture.selection import CaptureSettings
from ottla.connect.connectors.capture.streaming import Arrived, Heartbeats, follow


def heartbeats(queries: list[str], **settings: str) -> Heartbeats:
    given = {"topic.prefix": "shop"} | {name.replace("_", "."): value for name, value in settings.items()}
    return Heartbeats(CaptureSettings.model_validate(given), queries.append, lambda: 7_000_000, 0.0)


def test_heartbeats_come_between_transactions_as_often_as_configured() -> None:
    place: Any = SimpleNamespace(in_transaction=False, position=lambda: {"lsn": 5})
    queries: list[str] = []
    clock = iter([0.0, 0.5, 1.0, 1.5])
    beats = heartbeats(queries, heartbeat_interval_ms="1000", heartbeat_action_query="UPDATE beats")
    following = follow(lambda: Arrived([]), place, beats, lambda: next(clock), None)
    first, second, third = (next(following) for _ in range(3))
    assert second is None
    for batch in (first, third):
        assert isinstance(batch, list)
        (record,) = batch
        assert isinstance(record, SourceRecord)
        assert (record.topic, record.value, record.position) == (
            "__debezium-heartbeat.shop", {"ts_ms": 7}, {"lsn": 5},
        )  # fmt: skip
    place.in_transaction = True
    assert next(following) is None
    assert queries == ["UPDATE beats"] * 2
    silent = follow(lambda: Arrived([]), place, heartbeats([]), lambda: 9.0, None)
    place.in_transaction = False
    assert next(silent) is None


def test_what_came_before_the_end_is_handed_on_and_chunks_are_read_between_transactions() -> None:
    place: Any = SimpleNamespace(in_transaction=True, position=dict)
    record, progress = SourceRecord(topic="t", value=1), Progress(position={"lsn": 1})
    come = iter([Arrived([record], at_end=True), Arrived([progress]), Arrived([record], broken=Retriable("it stops"))])
    between: list[int] = []
    signals: Any = SimpleNamespace(go_on=lambda: between.append(1))
    following = follow(lambda: next(come), place, heartbeats([]), lambda: 0.0, signals)
    assert next(following) == [record]
    assert next(following) is None, "a waiting runtime need not wait for the next event"
    assert between == []
    place.in_transaction = False
    assert next(following) == [progress]
    assert between == [1]
    assert next(following) == [record]
    with pytest.raises(Retriable, match="it stops"):
        next(following)
    assert between == [1, 1]
