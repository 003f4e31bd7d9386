"""What brokers' answers mean to the mirror."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.connect.api import ConnectError, Retriable
from ottla.connect.connectors import mirror


def answer(failure: Exception | None = None, result: Any = None) -> Future[Any]:
    answered: Future[Any] = Future()
    if failure is not None:
        answered.set_exception(failure)
    else:
        answered.set_result(result)
    return answered


def refusal(code: int) -> Exception:
    return KafkaException(KafkaError(code))


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (TimeoutError(), Retriable),
        (refusal(KafkaError._TIMED_OUT), Retriable),
        (refusal(KafkaError.NOT_CONTROLLER), Retriable),
        (refusal(KafkaError.INVALID_CONFIG), ConnectError),
        (refusal(KafkaError.CLUSTER_AUTHORIZATION_FAILED), ConnectError),
    ],
)
def test_an_answer_that_does_not_come_is_waited_for_and_a_refusal_is_not(
    failure: Exception, kind: type[ConnectError]
) -> None:
    with pytest.raises(ConnectError, match="making topics here failed") as refused:
        mirror._wait({"t": answer(failure)}, "making topics here")
    assert type(refused.value) is kind


def test_a_topic_has_no_id_only_where_it_is_gone() -> None:
    """Without an answer its id is unknown: it would pass for a topic that was made again."""
    told = {
        "here": answer(result=SimpleNamespace(topic_id="abc")),
        "gone": answer(refusal(KafkaError.UNKNOWN_TOPIC_OR_PART)),
    }
    admin: Any = SimpleNamespace(describe_topics=lambda *_, **__: told)
    assert mirror._ids(admin, list(told)) == {"here": "abc"}
    told["slow"] = answer(refusal(KafkaError._TIMED_OUT))
    with pytest.raises(Retriable, match="asking for the id of topic slow"):
        mirror._ids(admin, list(told))
