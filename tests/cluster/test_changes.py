"""Brokers that come, go, and lose their sessions: elections, controllers in turn, and who may still write."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition

from ottla.errors import ErrorCode
from ottla.protocol.messages import produce as produce_messages
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.records.record import Record, encode_batch
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.raw_client import ask
from tests.support.whole_topic import read_all


@pytest.fixture
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(leader_imbalance_check_interval_seconds="1") as started:
        yield started


def values(first: int, count: int) -> list[bytes]:
    return [f"{number}".encode() for number in range(first, first + count)]


def produce_to(cluster: ClusterInProcess, broker: int, topic: str, acks: int) -> ErrorCode:
    """Produce one record to one broker, leader or not."""
    request = produce_messages.ProduceRequest(
        acks=acks,
        timeout_ms=3000,
        topic_data=[
            produce_messages.TopicProduceData(
                name=topic,
                partition_data=[
                    produce_messages.PartitionProduceData(
                        index=0, records=bytes(encode_batch([Record(0, int(time.time() * 1000), None, b"v")]))
                    )
                ],
            )
        ],
    )
    return ErrorCode(ask(cluster.address(broker), request, 9).responses[0].partition_responses[0].error_code)


def test_a_broker_that_stops_hands_over_and_leads_again_by_election(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    cluster.produce("t", values(0, 50))
    cluster.stop(1)
    assert {cluster.partition("t", number).leader for number in range(3)} <= {2, 3}
    assert cluster.partition("t").isr == (2, 3)
    cluster.produce("t", values(50, 50))
    cluster.start(1)
    eventually(lambda: all(set(cluster.partition("t", number).isr) == {1, 2, 3} for number in range(3)))
    assert cluster.partition("t").leader == 2
    admin = cluster.admin()
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)]).result(20)
    assert [error for error in elected.values() if error is not None] == []
    eventually(lambda: cluster.partition("t").leader == 1)
    assert read_all(cluster.bootstrap, "t", 100) == values(0, 100)
    leaders = cluster.log_bytes(1, "t")
    eventually(lambda: cluster.log_bytes(2, "t") == leaders == cluster.log_bytes(3, "t"))


def test_another_broker_is_the_controller_when_it_stops_or_loses_its_session(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[1, 2, 3]])
    assert cluster.controller == 1
    epoch = int(cluster.tree.nodes["/controller_epoch"].data)
    cluster.lose_session(1)
    eventually(
        lambda: (
            cluster.image(2).controller_id in (2, 3)
            and cluster.image(2).controller_id == cluster.image(3).controller_id
        )
    )
    assert int(cluster.tree.nodes["/controller_epoch"].data) == epoch + 1
    cluster.begin_session(1)
    second = cluster.controller
    eventually(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
    cluster.stop(second)
    third = cluster.controller
    assert third != second
    cluster.create("u", [list(cluster.brokers)])
    cluster.produce("u", values(0, 10))


def test_a_leader_whose_session_is_lost_writes_no_more_and_takes_part_again_in_a_new_one(
    cluster: ClusterInProcess,
) -> None:
    cluster.create("t", [[2, 3, 1]])
    cluster.produce("t", values(0, 20))
    cluster.lose_session(2)
    eventually(lambda: cluster.partition_at(1, "t").leader == 3)
    for acks in (1, -1):  # broker 2 has heard of nothing: nobody speaks to a broker that is not there
        eventually(lambda acks=acks: produce_to(cluster, 2, "t", acks) is ErrorCode.NOT_LEADER_OR_FOLLOWER)
    at_three: dict[str, Any] = {"bootstrap.servers": cluster.address(3)}
    cluster.produce("t", values(20, 20), **at_three)
    cluster.begin_session(2)
    eventually(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
    assert cluster.partition("t").leader == 3
    assert read_all(cluster.bootstrap, "t", 40) == values(0, 40)
    leaders = cluster.log_bytes(3, "t")
    eventually(lambda: cluster.log_bytes(2, "t") == leaders)


def test_without_a_replica_in_sync_nobody_leads_unless_an_unclean_election_is_allowed(
    cluster: ClusterInProcess,
) -> None:
    cluster.create("t", [[3, 2]], min_insync_replicas="1")
    cluster.produce("t", values(0, 10))
    cluster.stop(2)
    eventually(lambda: cluster.partition("t").isr == (3,))
    cluster.produce("t", values(10, 10))
    cluster.lose_session(3)
    cluster.start(2)
    eventually(lambda: cluster.partition_at(1, "t").leader == -1)
    assert cluster.partition_at(1, "t").isr == (3,)
    assert produce_to(cluster, 2, "t", 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.alter("t", "unclean.leader.election.enable", "true")
    eventually(lambda: cluster.partition_at(1, "t").leader == 2)
    assert cluster.partition_at(1, "t").isr == (2,)
    cluster.begin_session(3)
    eventually(lambda: set(cluster.partition("t").isr) == {2, 3})
    assert cluster.log_bytes(3, "t") == cluster.log_bytes(2, "t")  # what nobody else had is gone
    assert read_all(cluster.bootstrap, "t", 10) == values(0, 10)


def test_a_follower_that_is_stuck_leaves_the_in_sync_set_and_comes_back(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[1, 2, 3]])
    cluster.produce("t", values(0, 5))
    cluster.stop_copying(3, "t")
    cluster.produce_without_waiting("t", values(5, 5))
    eventually(lambda: cluster.partition("t").isr == (1, 2))
    cluster.produce("t", values(10, 5))
    cluster.resume_copying(3, "t")
    eventually(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
    assert read_all(cluster.bootstrap, "t", 15) == values(0, 15)


def test_coordinators_keep_their_state_on_as_many_brokers_as_asked_for_or_nowhere() -> None:
    """Who comes first must not make a topic of one replica that stays like this for ever."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    with ClusterInProcess(brokers=2) as cluster:
        (found,) = ask(cluster.address(1), request, 4).coordinators
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "only 2 broker" in found.error_message
        cluster.start(3)
        eventually(lambda: ask(cluster.address(1), request, 4).coordinators[0].error_code == 0)
        assert len(cluster.partition("__consumer_offsets").replicas) == 3
