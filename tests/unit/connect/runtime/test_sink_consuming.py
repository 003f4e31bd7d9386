"""What a sink's task makes of what it consumed: records in their order, and how far each partition is."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from ottla.connect.api import BadRecord, ConnectError, SinkRecord, TopicPartition
from ottla.connect.converters.base import Converter
from ottla.connect.herder.state import TaskId
from ottla.connect.runtime.chain import Chain
from ottla.connect.runtime.secrets import Secrets
from ottla.connect.runtime.sink_task import SinkTask, _liveness
from ottla.connect.runtime.worker_settings import WorkerSettings

CONVERTERS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "header.converter": "org.apache.kafka.connect.storage.StringConverter",
}
AT: tuple[int, int] = (1, 1_760_000_000_000)


class Skipping:
    """Tolerates what cannot be used."""

    def __init__(self) -> None:
        self.skipped: list[tuple[str, Any]] = []

    def handle(self, stage: str, _where: str, _error: Exception, record: Any) -> None:
        self.skipped.append((stage, (record.origin, record.offset, record.raw_value)))


def message(topic: str, partition: int, offset: int, value: bytes | None = b'{"a":1}', **more: Any) -> Message:
    given = {"key": b"k", "timestamp": AT, "headers": None, "error": None, **more}
    return Message(topic=topic, partition=partition, offset=offset, value=value, **given)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def task(told: list[str]) -> Any:
    environment: Any = SimpleNamespace(
        tracer=None, settings=SimpleNamespace(offset_flush_interval_ms=0), secrets=Secrets({})
    )
    return SinkTask(TaskId("tested", 0), {}, environment, lambda *_: None, lambda _, topic: told.append(topic))


def chain(tolerance: Any) -> Chain:
    return Chain(CONVERTERS, {}, tolerance)


@pytest.mark.parametrize(
    ("worker", "client", "expected"),
    [
        ({}, {}, (10_000, 3_000)),
        ({"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}, {}, (6_000, 500)),
        ({}, {"session.timeout.ms": "3000"}, (3_000, 1_000)),
        ({}, {"heartbeat.interval.ms": "700"}, (10_000, 700)),
        ({"session.timeout.ms": 900_000}, {}, (300_000, 3_000)),
        ({"session.timeout.ms": 900_000}, {"max.poll.interval.ms": "60000"}, (60_000, 3_000)),
    ],
    ids=["defaults", "worker's", "client's session", "client's heartbeat", "longer than polls", "than given polls"],
)
def test_a_group_gives_up_a_task_when_workers_give_up_its_worker(
    worker: dict[str, Any], client: dict[str, Any], expected: tuple[int, int]
) -> None:
    settings = _liveness(WorkerSettings.model_validate(worker), client) | client
    assert (int(settings["session.timeout.ms"]), int(settings["heartbeat.interval.ms"])) == expected
    SinkTask._new_consumer(settings, "g").close()  # the client library takes them together


def test_records_of_several_partitions_come_as_they_were_consumed(task: Any, told: list[str]) -> None:
    batch, seen = task._decoded(
        [
            message("one", 0, 5, headers=[("h", b"x"), ("none", None)]),
            message("two", 0, 7, key=None, timestamp=(0, -1)),
            message("one", 1, 0, None),
            message("one", 0, 6),
            message("two", 0, 9, None, error=KafkaError(KafkaError._PARTITION_EOF)),
            message("three", 0, 4, None, error=KafkaError(KafkaError._PARTITION_EOF)),
        ],
        chain(Skipping()),
    )
    places = [(record.origin, record.offset, record.topic, record.partition) for record in batch]
    assert places == [
        (("one", 0), 5, "one", 0), (("two", 0), 7, "two", 0), (("one", 1), 0, "one", 1), (("one", 0), 6, "one", 0),
    ]  # fmt: skip
    assert seen == {("one", 0): 7, ("two", 0): 9, ("one", 1): 1, ("three", 0): 4}
    assert batch[0].origin is batch[3].origin
    assert told == ["one", "two"], "of what was read, once"
    first, second, third, _ = batch
    assert (first.key, first.value, first.timestamp) == ("k", {"a": 1}, AT[1])
    assert [(each.key, each.value) for each in first.headers] == [("h", "x"), ("none", None)]
    assert first.raw_headers == (("h", b"x"), ("none", None))
    assert (second.key, second.timestamp, second.raw_key) == (None, None, None)
    assert (third.value, third.raw_value) == (None, None)


def test_a_record_is_whole_however_it_was_made(task: Any) -> None:
    (made,), _ = task._decoded([message("one", 0, 5)], chain(Skipping()))
    names = [name for kind in reversed(SinkRecord.__mro__) for name in getattr(kind, "__slots__", ())]
    same = SinkRecord(**{name: getattr(made, name) for name in names})
    assert made == same
    assert made.replaced(topic="x").topic == "x"


def test_what_cannot_be_read_is_passed_over_and_named(task: Any) -> None:
    skipping = Skipping()
    batch, seen = task._decoded([message("t", 0, 0), message("t", 0, 1, b"{"), message("t", 0, 2)], chain(skipping))
    assert [record.offset for record in batch] == [0, 2]
    assert skipping.skipped == [("VALUE_CONVERTER", (TopicPartition("t", 0), 1, b"{"))]
    assert seen == {("t", 0): 3}


def test_a_refusal_names_its_stage() -> None:
    class Refusing(Converter):
        def to_bytes(self, topic: str, schema: Any, value: Any) -> bytes | None:
            raise AssertionError

        def to_value(self, topic: str, payload: bytes | None) -> Any:
            raise BadRecord("not today")

    skipping = Skipping()
    refusing = chain(skipping)
    refusing._key = Refusing()
    assert refusing.decode(TopicPartition("t", 0), 3, b"k", b"{}", (), None) is None
    assert [stage for stage, _ in skipping.skipped] == ["KEY_CONVERTER"]


def test_a_sink_that_may_not_read_fails(task: Any) -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ConnectError, match="do not let this sink read"):
        task._decoded([message("t", 0, 0, None, error=error)], chain(Skipping()))


def test_a_log_that_begins_again_is_refused_where_the_target_would_take_it_for_written(task: Any) -> None:
    again = [message("t", 1, 3), message("t", 0, 0)]
    task._next = {TopicPartition("t", 0): 7, TopicPartition("t", 1): 3}
    assert len(task._decoded(again, chain(Skipping()))[0]) == 2, "the group's offset goes back by itself"
    task._target_keeps = True
    with pytest.raises(ConnectError, match="before offset 7 of t-0, whose end offset is 0"):
        task._decoded(again, chain(Skipping()))
