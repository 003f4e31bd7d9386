"""Brokers learn of new partitions when the leaders serve them."""

from typing import Any

from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.announcements import Announcements
from ottla.cluster.commands import SetPartitions, apply
from ottla.cluster.commit_parts import without_state
from ottla.cluster.controller_requests import Sender, announcements, requests_after
from ottla.cluster.image import MetadataImage
from ottla.ids import BrokerId, PartitionId, TopicId, TopicName
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest

SENDER = Sender(BrokerId(1), 3, "PLAINTEXT")
NAME = TopicName("t")
BEFORE = cluster(1, 2, 3)
AFTER = with_topic(BEFORE, "t", partition(0, 1, (1, 2)), partition(1, 2, (2, 1)))
TOPIC_ID = AFTER.topics[NAME].topic_id


def requests(waiting: Announcements, old: MetadataImage, new: MetadataImage) -> dict[int, list[Any]]:
    """What is sent after a change, by broker."""
    waiting.begin(old, new)
    return {broker: list(sent) for broker, sent in requests_after(SENDER, old, new, waiting.withheld).items()}


def shown(sent: list[Any]) -> list[int]:
    """The partitions of which a broker learns."""
    return [
        state.partition_index
        for request in sent
        if isinstance(request, UpdateMetadataRequest)
        for topic in request.topic_states
        for state in topic.partition_states
    ]


def answer(waiting: Announcements, sent: dict[int, list[Any]], broker: int) -> set[TopicId]:
    (request,) = (request for request in sent[broker] if isinstance(request, LeaderAndIsrRequest))
    return waiting.answered(BrokerId(broker), request)


def test_a_topic_is_announced_when_all_of_its_leaders_have_answered() -> None:
    waiting = Announcements()
    sent = requests(waiting, BEFORE, AFTER)
    assert {broker: shown(some) for broker, some in sent.items()} == {1: [], 2: []}
    assert answer(waiting, sent, 1) == set()
    assert answer(waiting, sent, 2) == {TOPIC_ID}
    announced = announcements(SENDER, AFTER, waiting.end({TOPIC_ID}))
    assert {broker: shown(list(some)) for broker, some in announced.items()} == {1: [0, 1], 2: [0, 1], 3: [0, 1]}
    assert waiting.end({TOPIC_ID}) == {}, "once"
    assert announcements(SENDER, AFTER, {}) == {}


def test_what_was_announced_is_told_at_once() -> None:
    waiting = Announcements()
    requests(waiting, BEFORE, AFTER)
    waiting.end({TOPIC_ID})
    fewer = apply(AFTER, [SetPartitions(NAME, (partition(0, 1, (1, 2), (1,)),))])
    assert shown(requests(waiting, AFTER, fewer)[3]) == [0]


def test_what_happens_to_a_topic_before_it_is_announced_is_told_with_it() -> None:
    waiting = Announcements()
    requests(waiting, BEFORE, AFTER)
    moved = apply(AFTER, [SetPartitions(NAME, (partition(1, 1, (2, 1), (1,))._replace(leader_epoch=6),))])  # type: ignore[arg-type]
    sent = requests(waiting, AFTER, moved)
    assert shown(sent[1]) == []
    announced = announcements(SENDER, moved, waiting.end({TOPIC_ID}))
    (request,) = announced[BrokerId(3)]
    assert isinstance(request, UpdateMetadataRequest)
    assert [state.leader for state in request.topic_states[0].partition_states] == [1, 1]


def test_a_leader_elected_meanwhile_is_waited_for() -> None:
    waiting = Announcements()
    requests(waiting, BEFORE, AFTER)
    moved = apply(AFTER, [SetPartitions(NAME, (partition(0, 2, (1, 2), (2,))._replace(leader_epoch=6),))])  # type: ignore[arg-type]
    first = answer(waiting, requests(Announcements(), BEFORE, AFTER), 2)
    assert first == set(), "partition 0 has had its old leader in that request"
    assert answer(waiting, requests(waiting, AFTER, moved), 2) == {TOPIC_ID}


def test_new_partitions_of_a_topic_are_announced_together_and_the_others_as_ever() -> None:
    waiting = Announcements()
    grown = apply(AFTER, [SetPartitions(NAME, (partition(2, 3, (3,)), partition(3, 1, (1,))))])
    sent = requests(waiting, AFTER, grown)
    assert waiting.withheld == {TOPIC_ID: {2, 3}}
    assert answer(waiting, sent, 1) == set()
    changed = apply(grown, [SetPartitions(NAME, (partition(0, 1, (1, 2), (1,)),))])
    assert shown(requests(waiting, grown, changed)[2]) == [0]
    assert answer(waiting, sent, 3) == {TOPIC_ID}


def test_a_large_topic_waits_for_its_states() -> None:
    """It is committed without them first."""
    waiting = Announcements()
    parts = AFTER.topics[NAME].partitions
    unled = with_topic(BEFORE, "t", *map(without_state, parts))
    assert requests(waiting, BEFORE, unled) == {}
    sent = requests(waiting, unled, apply(unled, [SetPartitions(NAME, parts)]))
    assert shown(sent[2]) == []
    assert answer(waiting, sent, 1) == set()
    assert answer(waiting, sent, 2) == {TOPIC_ID}


def test_a_topic_that_is_deleted_before_it_is_announced_is_not() -> None:
    waiting = Announcements()
    requests(waiting, BEFORE, AFTER)
    assert announcements(SENDER, BEFORE, waiting.end({TOPIC_ID})) == {}


def test_a_broker_that_has_come_is_told_everything() -> None:
    waiting = Announcements()
    sent = requests(waiting, BEFORE, AFTER)
    without_3 = AFTER._replace(brokers={number: AFTER.brokers[number] for number in (BrokerId(1), BrokerId(2))})
    assert shown(requests(waiting, without_3, AFTER)[3]) == [0, 1]
    assert PartitionId(0) in waiting.withheld[TOPIC_ID]
    assert answer(waiting, sent, 1) == set()


def test_a_topic_that_was_announced_does_not_wait_for_answers_about_another() -> None:
    waiting = Announcements()
    first = requests(waiting, BEFORE, AFTER)
    waiting.end({TOPIC_ID})
    both = with_topic(AFTER, "u", partition(0, 3, (3,)))
    sent = requests(waiting, AFTER, both)
    assert answer(waiting, first, 1) == set()
    assert answer(waiting, sent, 3) == {both.topics[TopicName("u")].topic_id}
