"""A leader that ZooKeeper does not hear of stops leading before another begins, though clients still reach it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from ottla.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import Record, encode_batch
from tests.support.eventually import eventually
from tests.support.ottla_cluster import OttlaCluster
from tests.support.raw_client import ClosedError, RawConnection
from tests.support.unreliable_link import UnreliableLink
from tests.support.znodes import connected
from tests.support.zookeeper import ZooKeeperServer

VERSION = 9
HELD_UP_S = 0.2
PRODUCE_TIMEOUT_MS = 10_000
"""Followers wait for a busy disk too; a follower that waits for ZooKeeper's connection takes 20 s."""


@pytest.fixture
def root() -> str:
    return f"/{uuid4()}"


@pytest.fixture
def link(zookeeper: ZooKeeperServer) -> Iterator[UnreliableLink]:
    """Between broker 1 and ZooKeeper."""
    with UnreliableLink(zookeeper.port) as between:
        yield between


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, root: str, link: UnreliableLink) -> Iterator[OttlaCluster]:
    """Three brokers with a topic `t` that broker 1 leads."""
    brokers = OttlaCluster(zookeeper.connect + root)
    brokers.brokers[1].properties["zookeeper.connect"] = f"127.0.0.1:{link.port}{root}"
    with brokers:
        create_led_by_1(brokers)
        yield brokers


def create_led_by_1(cluster: OttlaCluster) -> None:
    """The topic `t` with one partition."""
    admin = cluster.admin()
    admin.create_topics([NewTopic("t", 1, replica_assignment=[[1, 2, 3]])])["t"].result(30)
    eventually(lambda: cluster.leader("t") == 1)


def values(cluster: OttlaCluster, at_least: int) -> list[str]:
    """What is in the partition, once there is so much."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "r", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("t", 0, 0)])
    found = consumer.consume(at_least, timeout=60)
    found += consumer.consume(1000, timeout=1)
    consumer.close()
    return [(record.value() or b"").decode() for record in found]


def produce_request(value: str, acks: int) -> ProduceRequest:
    batch = bytes(encode_batch([Record(0, int(time.time() * 1000), None, value.encode())]))
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[data])


@contextmanager
def client_of_1(cluster: OttlaCluster) -> "Iterator[Client]":
    with RawConnection(cluster.brokers[1].bootstrap, timeout_s=30) as connection:
        yield Client(connection)


class Client:
    """A client of broker 1 alone, leader or not."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection

    def produce(self, value: str, acks: int = 1) -> ErrorCode:
        request = produce_request(value, acks)
        self._connection.send(request, VERSION)
        return self.answer(request)

    def send(self, value: str, acks: int) -> ProduceRequest:
        request = produce_request(value, acks)
        self._connection.send(request, VERSION)
        return request

    def answer(self, request: ProduceRequest) -> ErrorCode:
        try:
            response = self._connection.receive(request, VERSION)
        except ClosedError:
            return ErrorCode.NETWORK_EXCEPTION
        return ErrorCode(response.responses[0].partition_responses[0].error_code)


@pytest.mark.timeout(240)
def test_a_broker_cut_off_from_zookeeper_takes_nothing_any_more_before_another_leads(
    cluster: OttlaCluster, link: UnreliableLink, zookeeper: ZooKeeperServer, root: str
) -> None:
    taken = ["before"]
    with client_of_1(cluster) as client, connected(zookeeper.connect + root) as looking:
        assert client.produce("before", acks=-1) is ErrorCode.NONE
        link.refuse()
        while looking.exists("/brokers/ids/1"):  # broker 1 may be replaced from the moment its node goes
            value = f"after {len(taken)}"
            asked = time.monotonic()
            if client.produce(value) is ErrorCode.NONE:
                taken.append(value)
                # Then it was taken before the node went, by a good part of the session's timeout: it has to be there
                # still, unless this process was held up for so long.
                assert looking.exists("/brokers/ids/1") or time.monotonic() - asked > HELD_UP_S
        assert len(taken) > 1, "it goes on for a while"
        assert client.produce("too late") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        # What every follower still copies in the old leader's epoch is safe, until one of them is elected. Copied too
        # late to be acknowledged, it may be there as well, above the new leader's first high watermark.
        by_all = client.produce("by all", acks=-1)
    allowed = [[*taken, "by all"]] if by_all is ErrorCode.NONE else [[*taken, "by all"], taken]
    cluster.until_led_by("t", {2, 3})
    found = values(cluster, len(allowed[-1]))
    assert found in allowed
    link.restore()
    cluster.until_in_sync("t", 1, 2, 3)
    found_later = values(cluster, len(found))
    assert found_later in allowed
    assert found_later[: len(found)] == found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("acks", [1, -1])
def test_a_broker_that_was_stopped_knows_that_it_may_not_lead_any_more(cluster: OttlaCluster, acks: int) -> None:
    """What came in while it was stopped is the first thing it looks at."""
    with client_of_1(cluster) as client:
        assert client.produce("before", acks=-1) is ErrorCode.NONE
        stopped = cluster.brokers[1]
        stopped.pause()
        try:
            late = client.send("late", acks)
            cluster.until_led_by("t", {2, 3})
        finally:
            stopped.resume()
        assert client.answer(late) is not ErrorCode.NONE
    cluster.until_in_sync("t", 1, 2, 3)
    assert values(cluster, 1) == ["before"]


@pytest.mark.timeout(240)
def test_brokers_serve_on_while_zookeeper_is_away(root: str) -> None:
    """Nobody can be elected then, and followers that go on fetching say so."""
    with ZooKeeperServer() as own, OttlaCluster(own.connect + root) as cluster:
        create_led_by_1(cluster)
        taken = ["0"]
        with client_of_1(cluster) as client:
            assert client.produce("0", acks=-1) is ErrorCode.NONE  # so that its followers have found it
            own.kill()
            before = time.monotonic()
            while time.monotonic() < before + 6:  # three times the session's timeout
                taken.append(str(len(taken)))
                assert client.produce(taken[-1], acks=-1) is ErrorCode.NONE
                time.sleep(0.05)
            assert client.produce("risky", acks=1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        own.start()
        cluster.until_in_sync("t", 1, 2, 3)
        eventually(lambda: _creates(cluster), timeout_s=60)
        assert values(cluster, len(taken)) == taken


@pytest.mark.timeout(240)
def test_a_follower_that_learns_of_a_topic_while_zookeeper_is_away_copies_it(root: str) -> None:
    """It cannot read the topic's settings then; and the leader cannot do without it in the in-sync set."""
    with ZooKeeperServer() as own, OttlaCluster(own.connect + root, controller=1) as cluster:
        follower = cluster.brokers[3]
        follower.pause()
        try:
            create_led_by_1(cluster)
            own.kill()
        finally:
            follower.resume()
        with client_of_1(cluster) as client:
            assert client.produce("0", acks=-1) is ErrorCode.NONE


def _creates(cluster: OttlaCluster) -> bool:
    try:
        cluster.create("again", partitions=1)
    except KafkaException as refused:
        return "ALREADY_EXISTS" in str(refused)
    return True
