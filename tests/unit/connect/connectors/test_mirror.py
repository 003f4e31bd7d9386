"""What brokers' answers mean to the mirror."""

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.connect.api import ConnectError, Retriable
from ottla.connect.connectors import mirror, mirror_requests
from ottla.connect.connectors.mirror_settings import MirrorSettings


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
        mirror_requests.wait_for({"t": answer(failure)}, "making topics here")
    assert type(refused.value) is kind


def test_a_topic_has_no_id_only_where_it_is_gone() -> None:
    """Without an answer its id is unknown: it would pass for a topic that was made again."""
    told = {
        "here": answer(result=SimpleNamespace(topic_id="abc")),
        "gone": answer(refusal(KafkaError.UNKNOWN_TOPIC_OR_PART)),
    }
    admin: Any = SimpleNamespace(describe_topics=lambda *_, **__: told)
    assert mirror_requests.known_ids(admin, list(told)) == {"here": "abc"}
    told["slow"] = answer(refusal(KafkaError._TIMED_OUT))
    with pytest.raises(Retriable, match="asking for the id of topic slow"):
        mirror_requests.known_ids(admin, list(told))


def new_source() -> Any:
    given = {"source.cluster.bootstrap.servers": "there:1", "topics": "t", "sync.group.offsets.enabled": "true"}
    context: Any = SimpleNamespace(log=logging.getLogger("test"))
    return mirror.MirrorSource(MirrorSettings.model_validate(given), context)


def answers(ends: list[Any]) -> Any:
    """What `_ends` is to return, or raise, one after the other."""

    def answered(*_place: Any) -> Any:
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    return answered


def committed(source: Any, offset: int) -> None:
    """A commit of the position, after `read` has gone on."""
    source._turn += 1
    source.committed({"topic": "t", "partition": 0}, {"offset": offset})


def test_an_end_is_a_pair_only_when_a_later_commit_shows_that_no_other_worker_had_begun_to_copy() -> None:
    """A worker that was stopped for ten seconds moved groups past the 100 records that its successor had copied."""
    source = new_source()
    source._probe, source._ends = "some client", answers([(0, 105), (0, 205), (0, 206)])
    source._yielded["t", 0] = 5
    committed(source, 5)
    source.committed({"topic": "t", "partition": 0}, {"offset": 5})  # of the same commit
    assert source._translations == {}
    source._yielded["t", 0] = 6
    committed(source, 6)
    assert source._translations["t", 0].last == (5, 205)


def quiet(source: Any) -> Any:
    """What is yielded after a second without records."""
    for each in source._looks.values():
        each.due = 0
    return source._quiet()


def test_the_last_position_of_a_quiet_partition_is_committed_until_its_pair_is_known() -> None:
    """Groups never moved to the end of a topic that went quiet after one question without an answer."""
    source, ends = new_source(), [refusal(KafkaError._TIMED_OUT), (0, 105), (0, 106)]
    source._probe, source._ends = "some client", answers(ends)
    source._yielded["t", 0] = 5
    committed(source, 5)
    source._yielded["t", 0] = 6
    assert quiet(source) == [], "a record has been handed on since"
    source._yielded["t", 0] = 5
    found = []
    while quiet(source):
        committed(source, 5)
        found.append(source._translations["t", 0].here(5) if source._translations else None)
    assert found == [None, 105, 106], "the marker of a transaction may come after the commit"
    assert ends == []


def test_a_commit_of_another_partition_confirms_an_end_and_looks_for_the_marker() -> None:
    source, ends = new_source(), [(0, 105), (0, 106), (0, 7)]
    source._probe, source._ends = "some client", answers(ends)
    source._yielded["t", 0] = 5
    committed(source, 5)
    source._turn += 1
    source.committed({"topic": "t", "partition": 1}, {"offset": 7})
    assert source._translations["t", 0].last == (5, 105)
    assert source._looks["t", 0].here == 106


def test_records_of_another_producer_at_the_end_of_a_quiet_copy_are_not_counted() -> None:
    source, ends = new_source(), [(0, 105), (0, 305)]
    source._probe, source._ends = "some client", answers(ends)
    source._yielded["t", 0] = 5
    committed(source, 5)
    while quiet(source):
        committed(source, 5)
    assert source._translations["t", 0].last == (5, 105)
    assert ends == []


def test_pairs_of_a_copy_that_was_made_again_lead_no_group_past_its_records() -> None:
    """The new copy had grown beyond the last pair before anybody looked: its offsets alone gave nothing away."""
    source, forgotten, moved = new_source(), [], []
    source._syncs = SimpleNamespace(
        add=lambda *_: None, forget=lambda topic, partition: forgotten.append((topic, partition))
    )
    told = {"id": "first"}
    here: Any = SimpleNamespace(
        describe_topics=lambda topics, **_: {
            name: answer(result=SimpleNamespace(topic_id=told["id"])) for name in topics.topic_names
        }
    )
    there: Any = SimpleNamespace(
        list_consumer_groups=lambda **_: answer(result=SimpleNamespace(valid=[SimpleNamespace(group_id="g")]))
    )
    source._sync_group = lambda _there, _here, _group: moved.append(source._translations["t", 0].here(100))
    source._drop_pairs_of_replaced_copies(here, ["t"])
    source._pair("t", 0, 100, 90)
    source._sync_groups(there, here)
    told["id"] = "second"
    source._pair("t", 0, 150, 95)
    source._sync_groups(there, here)
    assert moved == [90, None]
    assert forgotten == [("t", 0)]
    source._pair("t", 0, 160, 100)
    source._sync_groups(there, here)
    assert source._translations["t", 0].here(160) == 100, "pairs of the new copy stay"
