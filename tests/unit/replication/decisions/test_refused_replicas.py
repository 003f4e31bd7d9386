"""Which replicas are tried again that could not be made, and when."""

from uuid import UUID

import pytest

from ottla.ids import PartitionId, TopicId, TopicName, TopicPartition
from ottla.replication.decisions.refused_replicas import RETRY_S, RefusedReplicas

TOPIC, ANOTHER = TopicId(UUID(int=1 << 80)), TopicId(UUID(int=1 << 81))


def t(number: int) -> TopicPartition:
    return TopicPartition(TopicName("t"), PartitionId(number))


@pytest.fixture
def refused() -> RefusedReplicas:
    """Two at the time 0, of which one was held here before."""
    found = RefusedReplicas()
    found.refuse(t(0), TOPIC, is_new=True)
    found.refuse(t(1), TOPIC, is_new=False)
    return found


def test_one_after_another_is_tried_while_all_are_refused(refused: RefusedReplicas) -> None:
    tried = []
    for second in range(4):
        now = second * RETRY_S
        assert refused.wait_s(now) == 0
        ((_, number),) = refused.take_due(now)
        refused.refuse(t(number), TOPIC, is_new=refused.is_new(t(number), TOPIC))
        assert refused.take_due(now + RETRY_S / 4) == []
        assert refused.wait_s(now + RETRY_S / 4) == RETRY_S * 3 / 4
        tried.append(number)
    assert tried == [0, 1, 0, 1]


def test_more_and_more_are_tried_once_one_is_made(refused: RefusedReplicas) -> None:
    refused.refuse(t(2), TOPIC, is_new=True)
    assert refused.take_due(0) == [(TOPIC, 0)]
    refused.end(t(0), is_made=True)
    assert refused.wait_s(0) == 0
    assert refused.take_due(0) == [(TOPIC, 1), (TOPIC, 2)]
    refused.end(t(1), is_made=True)
    refused.refuse(t(2), TOPIC, is_new=True)
    assert refused.take_due(0) == []
    refused.end(t(2), is_made=True)
    assert refused.wait_s(0) is None
    assert refused.take_due(9) == []


def test_the_next_one_is_tried_at_once_when_there_may_be_room(refused: RefusedReplicas) -> None:
    refused.take_due(0)
    assert refused.take_due(0) == []
    refused.hurry()
    assert refused.wait_s(0) == 0
    assert len(refused.take_due(0)) == 1


def test_only_one_that_was_never_made_is_new(refused: RefusedReplicas) -> None:
    assert refused.is_new(t(0), TOPIC)
    assert not refused.is_new(t(1), TOPIC)
    assert not refused.is_new(t(0), ANOTHER), "the topic was deleted and created again"
    assert not refused.is_new(t(2), TOPIC)


def test_one_that_is_deleted_is_not_tried_and_says_nothing_about_room(refused: RefusedReplicas) -> None:
    refused.take_due(0)
    refused.end(t(0))
    refused.end(t(5), is_made=True)
    assert refused.take_due(0) == []
    assert refused.take_due(RETRY_S) == [(TOPIC, 1)]


def test_little_room_costs_few_attempts() -> None:
    """Room for one replica of a thousand each second: none of the others is tried in vain more than once then."""
    refused = RefusedReplicas()
    for number in range(1000):
        refused.refuse(t(number), TOPIC, is_new=True)
    tried = made = 0
    for second in range(50):
        room = 1
        while due := refused.take_due(second * RETRY_S):
            for _, number in due:
                tried += 1
                if room:
                    room, made = room - 1, made + 1
                    refused.end(t(number), is_made=True)
                else:
                    refused.refuse(t(number), TOPIC, is_new=True)
    assert made == 50
    assert tried <= 4 * made


def test_much_room_is_used_at_once() -> None:
    refused = RefusedReplicas()
    for number in range(1000):
        refused.refuse(t(number), TOPIC, is_new=True)
    looks = 0
    while due := refused.take_due(0):
        looks += 1
        for _, number in due:
            refused.end(t(number), is_made=True)
    assert refused.wait_s(0) is None
    assert looks <= 10


def test_one_of_which_nothing_is_heard_holds_up_no_other(refused: RefusedReplicas) -> None:
    assert [refused.take_due(second * RETRY_S) for second in range(3)] == [[(TOPIC, 0)], [(TOPIC, 1)], [(TOPIC, 0)]]
    refused.end(t(1), is_made=True)
    assert refused.wait_s(2 * RETRY_S) == 0
    refused.take_due(2 * RETRY_S)
    assert refused.wait_s(2 * RETRY_S) == RETRY_S
