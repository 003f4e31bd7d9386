"""Which answers of the brokers are believed at once."""

import re
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.pipeline.failures import is_passing
from ottla.spark import metadata
from ottla.spark.errors import NotReadyError, UnknownTopicError, UnreachableError
from ottla.spark.metadata import TopicMetadata
from ottla.spark.offsets import Partition
from ottla.spark.selection import Pattern, Topics

T = Partition("t", 0)


class FakeAdmin:
    """Gives the `script`'s answers to all questions, one after the other, and the last for ever."""

    def __init__(self, script: list[Any]) -> None:
        self.script = script
        self.asked = 0

    def _next(self) -> Any:
        self.asked += 1
        return self.script[0] if len(self.script) == 1 else self.script.pop(0)

    def _future(self, value: Callable[[Any], Any]) -> Future[Any]:
        answer, future = self._next(), Future[Any]()
        if isinstance(answer, int):
            future.set_exception(KafkaException(KafkaError(answer)))
        else:
            future.set_result(value(answer))
        return future

    def list_offsets(self, request: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        return {each: self._future(lambda answer: answer) for each in request}

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        described = SimpleNamespace(partitions=[SimpleNamespace(id=0)], topic_id=None)
        return {each: self._future(lambda _: described) for each in ("t",)}

    def list_topics(self, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(topics=dict.fromkeys(self._next()))


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 1
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(metadata, "time", clock)
    return clock


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TopicMetadata]:
    def answering(*script: Any, attempts: int = 4, missing_s: float = 30.0) -> TopicMetadata:
        monkeypatch.setattr(metadata, "admin_client", lambda *_: FakeAdmin(list(script)))
        return TopicMetadata((("bootstrap.servers", "h:1"),), attempts=attempts, missing_s=missing_s)

    return answering


@pytest.mark.parametrize(
    "code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.OFFSET_NOT_AVAILABLE]
)
def test_a_partition_without_a_leader_is_asked_for_again(brokers: Callable[..., TopicMetadata], code: int) -> None:
    assert brokers(code, code, SimpleNamespace(offset=7)).latest([T]) == {T: 7}


def test_a_partition_that_stays_without_a_leader_ends_the_question(
    brokers: Callable[..., TopicMetadata], clock: Clock
) -> None:
    with pytest.raises(NotReadyError, match=re.escape("partition t-0 at h:1: ")) as raised:
        brokers(KafkaError.NOT_LEADER_FOR_PARTITION).latest([T])
    assert 240 <= clock.now < 245
    assert is_passing(str(raised.value))


def test_connections_that_break_at_once_do_not_use_up_the_patience(
    brokers: Callable[..., TopicMetadata], clock: Clock
) -> None:
    broken = KafkaError._TRANSPORT
    assert brokers(*[broken] * 20, SimpleNamespace(offset=7)).latest([T]) == {T: 7}
    with pytest.raises(UnreachableError, match="no broker at h:1 answers"):
        brokers(broken).latest([T])
    assert 20 + 240 <= clock.now < 20 + 245
    with pytest.raises(UnreachableError):
        brokers(broken, attempts=1).latest([T])
    assert clock.now < 20 + 245


def test_a_running_query_asks_again_for_a_topic_that_a_broker_denies(brokers: Callable[..., TopicMetadata]) -> None:
    missing = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert brokers(missing, missing, None).layout(Topics(("t",))).partitions == [T]


def test_a_topic_that_is_denied_for_long_is_believed_to_be_gone(
    brokers: Callable[..., TopicMetadata], clock: Clock
) -> None:
    with pytest.raises(UnknownTopicError, match="topic 't' does not exist"):
        brokers(KafkaError.UNKNOWN_TOPIC_OR_PART).layout(Topics(("t",)))
    assert 30 <= clock.now < 35


def test_without_patience_a_missing_topic_shows_at_once(brokers: Callable[..., TopicMetadata], clock: Clock) -> None:
    with pytest.raises(UnknownTopicError):
        brokers(KafkaError.UNKNOWN_TOPIC_OR_PART, attempts=1, missing_s=0).layout(Topics(("t",)))
    assert clock.now == 0


def test_a_known_topic_vanishes_from_a_pattern_only_for_good(
    brokers: Callable[..., TopicMetadata], clock: Clock
) -> None:
    pattern = Pattern("t.*")
    assert brokers([], [], ["t"], None).layout(pattern, {"t", "other"}).partitions == [T]
    assert clock.now == 2
    assert brokers([]).layout(pattern, {"t"}).partitions == []
    assert clock.now >= 32
