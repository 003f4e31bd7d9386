"""Which answers of the brokers are believed at once."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.pipeline.failures import is_passing
from ottla.spark import metadata
from ottla.spark.errors import NotReadyError, UnknownTopicError, UnreachableError, refusal, unreachable
from ottla.spark.metadata import TopicMetadata
from ottla.spark.metadata_queries import Described
from ottla.spark.offsets import Partition
from ottla.spark.selection import Pattern, Topics

T = Partition("t", 0)
T_DESCRIBED = Described([0], None)
AWAY = unreachable("h:1", "topic 't'", "broken")
MISSING = refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't'", "h:1")
MOVED = refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "partition t-0", "h:1")


class FakeQueries:
    """Gives the `script`'s answers to all questions, one after the other, and the last for ever."""

    def __init__(self, script: list[Any]) -> None:
        self.script = script

    def _next(self) -> Any:
        return self.script[0] if len(self.script) == 1 else self.script.pop(0)

    def _raised(self) -> Any:
        answer = self._next()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def names(self, expected: Collection[str] = ()) -> list[str]:
        return list(self._raised())

    def describe(self, topics: Collection[str]) -> dict[str, Described]:
        return {each: self._raised() for each in topics}

    def offsets(self, places: Mapping[Partition, int]) -> dict[Partition, Any]:
        return {each: self._raised() if self.script[0] is AWAY else self._next() for each in places}


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
        monkeypatch.setattr(metadata, "_kept_queries", lambda *_: FakeQueries(list(script)))
        return TopicMetadata((("bootstrap.servers", "h:1"),), attempts=attempts, missing_s=missing_s)

    return answering


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE]
)
def test_a_partition_without_a_leader_is_asked_for_again(brokers: Callable[..., TopicMetadata], code: int) -> None:
    error = refusal(code, "partition t-0", "h:1")
    assert brokers(error, error, 7).latest([T]) == {T: 7}


def test_a_partition_that_stays_without_a_leader_ends_the_question(
    brokers: Callable[..., TopicMetadata], clock: Clock
) -> None:
    with pytest.raises(NotReadyError, match=re.escape("partition t-0 at h:1: ")) as raised:
        brokers(MOVED).latest([T])
    assert 240 <= clock.now < 245
    assert is_passing(str(raised.value))


def test_connections_that_break_at_once_do_not_use_up_the_patience(
    brokers: Callable[..., TopicMetadata], clock: Clock
) -> None:
    assert brokers(*[AWAY] * 20, 7).latest([T]) == {T: 7}
    assert 20 <= clock.now < 25
    with pytest.raises(UnreachableError, match="no broker at h:1 answers") as raised:
        brokers(AWAY).latest([T])
    assert 20 + 240 <= clock.now < 20 + 245
    assert is_passing(str(raised.value))


def test_a_broker_that_is_being_started_again_is_waited_for_without_patience(
    brokers: Callable[..., TopicMetadata], clock: Clock
) -> None:
    assert brokers(*[AWAY] * 5, 7, attempts=1).latest([T]) == {T: 7}
    with pytest.raises(UnreachableError):
        brokers(AWAY, attempts=1).latest([T])
    assert 5 + 10 <= clock.now < 5 + 12


def test_what_is_waited_for_is_said_now_and_then(
    brokers: Callable[..., TopicMetadata], caplog: pytest.LogCaptureFixture
) -> None:
    brokers(*[AWAY] * 20, 7).latest([T])
    assert [each.getMessage() for each in caplog.records] == [
        f"no broker at h:1 answers, asked about topic 't' (broken); asking again for {left} s at most"
        for left in (240, 225)
    ]


def test_a_running_query_asks_again_for_a_topic_that_a_broker_denies(brokers: Callable[..., TopicMetadata]) -> None:
    assert brokers(MISSING, MISSING, T_DESCRIBED).layout(Topics(("t",))).partitions == [T]


def test_a_topic_that_is_denied_for_long_is_believed_to_be_gone(
    brokers: Callable[..., TopicMetadata], clock: Clock
) -> None:
    with pytest.raises(UnknownTopicError, match="topic 't' does not exist"):
        brokers(MISSING).layout(Topics(("t",)))
    assert 30 <= clock.now < 35


def test_a_topic_that_was_not_denied_all_the_time_is_not_believed_to_be_gone(
    brokers: Callable[..., TopicMetadata],
) -> None:
    away = [MOVED] * 40
    assert brokers(MISSING, *away, MISSING, MISSING, 7).latest([T]) == {T: 7}


def test_without_patience_a_missing_topic_shows_at_once(brokers: Callable[..., TopicMetadata], clock: Clock) -> None:
    with pytest.raises(UnknownTopicError):
        brokers(MISSING, attempts=1, missing_s=0).layout(Topics(("t",)))
    assert clock.now == 0


def test_a_known_topic_vanishes_from_a_pattern_only_for_good(
    brokers: Callable[..., TopicMetadata], clock: Clock
) -> None:
    pattern = Pattern("t.*")
    assert brokers([], [], ["t"], T_DESCRIBED).layout(pattern, {"t", "other"}).partitions == [T]
    assert clock.now == 2
    assert brokers([]).layout(pattern, {"t"}).partitions == []
    assert clock.now >= 32
