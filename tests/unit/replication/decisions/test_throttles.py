"""How fast what has to catch up is copied, and which replicas that is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.ids import BrokerId, PartitionId, TopicName, TopicPartition
from ottla.replication.decisions.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    ByteRate,
    Throttles,
    throttled_partitions,
)


def at(topic: str, number: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionId(number))


def test_what_goes_beyond_a_second_of_the_rate_is_waited_for() -> None:
    rate = ByteRate(100)
    rate.spend(100, 0.0)
    assert rate.wait_s(0.0) == 0
    rate.spend(250, 0.0)
    assert rate.wait_s(0.0) == pytest.approx(2.5)
    assert rate.wait_s(1.0) == pytest.approx(1.5)
    assert rate.wait_s(2.5) == 0
    assert rate.wait_s(2.0) == 0  # a clock that hesitates


def test_what_was_not_spent_long_ago_is_not_saved_up() -> None:
    rate = ByteRate(100)
    rate.spend(350, 1000.0)
    assert rate.wait_s(1000.0) == pytest.approx(2.5)


def test_what_is_spent_is_repaid_at_the_rate_of_its_time() -> None:
    rate = ByteRate(10)
    rate.spend(1000, 0.0)
    assert rate.wait_s(0.0) == pytest.approx(99)
    rate.change(1000, 0.0)
    assert rate.wait_s(0.0) == 0
    rate.spend(5000, 0.0)
    rate.change(1, 6.0)  # all of that has been allowed
    assert rate.wait_s(6.0) == 0


def test_a_rate_of_nothing_stops_after_the_first() -> None:
    rate = ByteRate(0)
    assert rate.wait_s(0.0) == 0
    rate.spend(1, 0.0)
    assert rate.wait_s(1e9) == float("inf")


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 5000)), max_size=40), st.integers(1, 2000))
def test_the_average_is_held_whatever_comes_when(steps: list[tuple[float, int]], limit: int) -> None:
    """If every spender waits as long as it has to, all but the last spending fits into the time that has passed."""
    rate = ByteRate(limit)
    now, spent, last = 0.0, 0, 0
    for pause, size in steps:
        now += max(pause, rate.wait_s(now))
        assert spent - last <= limit * (now + 1.0) + 1e-3
        rate.spend(size, now)
        spent, last = spent + size, size


def test_which_partitions_a_setting_names_on_a_broker() -> None:
    assert throttled_partitions("*", BrokerId(1)) is None
    assert throttled_partitions("0:1, 2:1,3:12,4:2", BrokerId(1)) == frozenset((0, 2))
    assert throttled_partitions("none", BrokerId(1)) == frozenset()


def test_each_side_throttles_what_its_own_setting_names() -> None:
    image = with_topic(cluster(1, 2), "t", partition(0, 1, (1, 2)), **{LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "*"})
    image = with_topic(image, "u", partition(0, 1, (1, 2)))
    throttles = Throttles(BrokerId(1))
    for throttle in (throttles.leader, throttles.follower):
        throttle.rate.change(10, 0.0)
    throttles.read_topics(image)
    for name, number in (("t", 0), ("t", 1), ("u", 0)):
        throttles.leader.spend(at(name, number), 100, 0.0)
    assert throttles.leader.wait_s(at("t", 0), 0.0) == pytest.approx(9)  # the hundred bytes of t-0 alone
    assert throttles.leader.wait_s(at("t", 1), 0.0) == 0
    assert throttles.follower.wait_s(at("t", 1), 0.0) == 0
    throttles.follower.spend(at("t", 1), 100, 0.0)
    assert throttles.follower.wait_s(at("t", 7), 0.0) > 0
    throttles.read_topics(cluster(1, 2))
    assert throttles.leader.wait_s(at("t", 0), 0.0) == 0
