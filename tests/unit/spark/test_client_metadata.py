"""What is made of the client library's answers, without brokers."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.spark import client_metadata
from ottla.spark.client_metadata import ClientMetadata
from ottla.spark.errors import NotReadyError, OptionError, SourceError, UnknownTopicError, UnreachableError
from ottla.spark.offsets import LATEST, Partition

T = Partition("t", 0)
SERVERS = ("bootstrap.servers", "h:1")


class FakeAdmin:
    """Gives the same `answer` to all queries: an offset, an error code, None for nothing at all."""

    made = 0
    answer: Any = None

    def __init__(self, settings: dict[str, Any]) -> None:
        FakeAdmin.made += 1
        self.settings = settings

    def _future(self, value: Any) -> Future[Any]:
        future = Future[Any]()
        if isinstance(self.answer, KafkaError):
            future.set_exception(KafkaException(self.answer))
        elif self.answer is not None:
            future.set_result(value)
        return future

    def list_offsets(self, request: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        return {each: self._future(SimpleNamespace(offset=self.answer)) for each in request}

    def describe_topics(self, _: Any, **__: Any) -> dict[str, Future[Any]]:
        bits = SimpleNamespace(get_most_significant_bits=lambda: -1, get_least_significant_bits=lambda: 2)
        described = SimpleNamespace(partitions=[SimpleNamespace(id=1), SimpleNamespace(id=0)], topic_id=bits)
        return {"t": self._future(described)}

    def list_topics(self, **_: Any) -> SimpleNamespace:
        if isinstance(self.answer, KafkaError):
            raise KafkaException(self.answer)
        return SimpleNamespace(topics={"u": 0, "t": 0})


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], ClientMetadata]:
    monkeypatch.setattr(client_metadata, "AdminClient", FakeAdmin)
    monkeypatch.setattr(client_metadata, "_GRACE_S", 0.0)

    def of(answer: Any) -> ClientMetadata:
        monkeypatch.setattr(FakeAdmin, "answer", answer)
        monkeypatch.setattr(FakeAdmin, "made", 0)
        return ClientMetadata((SERVERS, ("group.id", "g"), ("security.protocol", "ssl")), 0.01)

    return of


def test_answers_come_in_our_words(answering: Callable[[Any], ClientMetadata]) -> None:
    queries = answering(7)
    assert queries.names() == ["t", "u"]
    assert queries.offsets({T: LATEST}) == {T: 7}
    described = queries.describe(["t"])["t"]
    assert described == ([0, 1], UUID(int=(2**64 - 1) << 64 | 2))
    assert (queries.offsets({}), queries.describe([])) == ({}, {})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopicError),
        (KafkaError.NOT_LEADER_FOR_PARTITION, NotReadyError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, SourceError),
        (KafkaError._AUTHENTICATION, SourceError),
    ],
)
def test_a_refusal_is_of_one_partition(
    answering: Callable[[Any], ClientMetadata], code: int, kind: type[SourceError]
) -> None:
    queries = answering(KafkaError(code))
    assert type(queries.offsets({T: LATEST})[T]) is kind
    with pytest.raises(kind, match="topic 't'"):
        queries.describe(["t"])


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN])
def test_no_connection_is_of_all(answering: Callable[[Any], ClientMetadata], code: int) -> None:
    queries = answering(KafkaError(code))
    for ask in (lambda: queries.offsets({T: LATEST}), lambda: queries.describe(["t"]), queries.names):
        with pytest.raises(UnreachableError, match="no broker at h:1 answers"):
            ask()


def test_old_leader_epochs_are_forgotten_with_the_client_that_has_them(
    answering: Callable[[Any], ClientMetadata],
) -> None:
    queries = answering(KafkaError(KafkaError.FENCED_LEADER_EPOCH))
    queries.offsets({T: LATEST})
    assert FakeAdmin.made == 1
    queries.offsets({T: LATEST})
    assert FakeAdmin.made == 2


def test_a_question_that_is_never_answered_is_given_up(answering: Callable[[Any], ClientMetadata]) -> None:
    queries = answering(None)
    for made in (1, 2):
        with pytest.raises(UnreachableError, match="not within"):
            queries.offsets({T: LATEST})
        assert FakeAdmin.made == made


def test_wrong_settings_show_when_the_client_is_made() -> None:
    with pytest.raises(OptionError, match="the client refuses its settings"):
        ClientMetadata((SERVERS, ("security.protocol", "hope")), 1.0)
