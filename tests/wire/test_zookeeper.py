"""One broker with its metadata in ZooKeeper: how it starts, what it does when ZooKeeper is away, and how that heals."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kazoo.client import KazooClient
from tests.support.broker_process import BrokerFailedError
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.unreliable_link import UnreliableLink
from tests.support.znodes import connected, tree
from tests.support.zookeeper import ZooKeeperServer

SESSION_MS = 2000


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as started:
        yield started


@pytest.fixture
def root() -> str:
    return f"/{uuid4()}"


@pytest.fixture
def client(server: ZooKeeperServer, root: str) -> Iterator[KazooClient]:
    with connected(server.connect + root) as other:
        yield other


def broker(connect: str, *, directory: Path | None = None, timeout_ms: int = 10_000, **properties: str) -> OttlaProcess:
    settings = {
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "zookeeper.connection.timeout.ms": str(timeout_ms),
        "offsets.topic.replication.factor": "1",
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    return OttlaProcess(directory, properties=settings)


def admin(of: OttlaProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": of.bootstrap, "log_level": 0})


def create(of: OttlaProcess, topic: str, *, timeout_s: float = 30.0, **configs: str) -> None:
    new = NewTopic(topic, 2, 1, config={name.replace("_", "."): value for name, value in configs.items()})
    asking = admin(of)  # its requests end with it
    asking.create_topics([new], operation_timeout=timeout_s, request_timeout=timeout_s)[topic].result()


def cluster_id_told_by(of: OttlaProcess) -> str:
    asking = admin(of)
    return str(asking.describe_cluster().result().cluster_id)


def topics(of: OttlaProcess) -> list[str]:
    return sorted(admin(of).list_topics(timeout=20).topics)


def produce(of: OttlaProcess, topic: str, value: str, *, acks: str = "all", timeout_ms: int = 20_000) -> None:
    """Produce a record and wait for its acknowledgement. Raises KafkaException."""
    failed: list[object] = []
    producer = Producer(
        {"bootstrap.servers": of.bootstrap, "acks": acks, "delivery.timeout.ms": timeout_ms, "log_level": 0}
    )
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(timeout_ms / 1000 + 5) == 0
    if failed[0] is not None:
        raise KafkaException(failed[0])


def consume(of: OttlaProcess, topic: str, count: int) -> list[str]:
    settings = {"bootstrap.servers": of.bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings)  # its end waits for no coordinator: without ZooKeeper there may be none
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = consumer.consume(count, timeout=20)
    consumer.close()
    return [(record.value() or b"").decode() for record in records]


def test_registers_decides_and_starts_again(server: ZooKeeperServer, root: str, client: KazooClient) -> None:
    # A session that a busy machine does not end: the epochs count every controller.
    with broker(server.connect + root, broker_rack="r1", zookeeper_session_timeout_ms="30000") as running:
        create(running, "orders", retention_ms="-1")
        produce(running, "orders", "one")
        nodes = tree(client)
        assert nodes["/brokers/ids/1"]["endpoints"] == [f"PLAINTEXT://{running.bootstrap}"]
        assert nodes["/brokers/ids/1"]["rack"] == "r1"
        assert nodes["/controller"]["brokerid"] == 1
        assert nodes["/controller_epoch"] == 1
        assert nodes["/brokers/topics/orders"]["partitions"] == {"0": [1], "1": [1]}
        assert nodes["/config/topics/orders"] == {"version": 1, "config": {"retention.ms": "-1"}}
        cluster_id = nodes["/cluster/id"]["id"]
        running.stop()
        nodes = tree(client)
        assert not {"/brokers/ids/1", "/controller"} & nodes.keys()
        running.start()
        assert tree(client)["/controller_epoch"] == 2
        assert tree(client)["/brokers/topics/orders/partitions/0/state"]["leader"] == 1
        assert cluster_id_told_by(running) == cluster_id
        produce(running, "orders", "two")
        assert consume(running, "orders", 2) == ["one", "two"]
        asking = admin(running)
        asking.delete_topics(["orders"])["orders"].result()
        eventually(lambda: not [path for path in tree(client) if "orders" in path])


def test_starts_at_once_after_it_was_killed(server: ZooKeeperServer, root: str) -> None:
    """Its nodes of before would stay for as long as the session's timeout says."""
    with broker(server.connect + root, zookeeper_session_timeout_ms="60000") as running:
        create(running, "orders")
        produce(running, "orders", "one")
        running.kill()
        began = time.monotonic()
        running.start()
        assert time.monotonic() - began < 20
        assert consume(running, "orders", 1) == ["one"]
        create(running, "more")


def test_takes_part_in_the_cluster_that_is_there(server: ZooKeeperServer, root: str, client: KazooClient) -> None:
    client.ensure_path("/")
    client.create("/cluster/id", b'{"version":"1","id":"b3R0bGFfZ2VudWluZV8wMQ"}', makepath=True)
    with broker(server.connect + root) as running:
        assert cluster_id_told_by(running) == "b3R0bGFfZ2VudWluZV8wMQ"
        assert "cluster.id=b3R0bGFfZ2VudWluZV8wMQ" in (running.log_dir / "meta.properties").read_text()


def test_refuses_the_directory_of_another_cluster(server: ZooKeeperServer, root: str, tmp_path: Path) -> None:
    with broker(server.connect + root, directory=tmp_path) as first:
        first.stop()
        with pytest.raises(BrokerFailedError, match="belong"):
            broker(f"{server.connect}{root}-other", directory=tmp_path).start()


def test_two_brokers_cannot_have_one_number(server: ZooKeeperServer, root: str) -> None:
    with broker(server.connect + root):
        second = broker(server.connect + root)
        with pytest.raises(BrokerFailedError, match=r"broker 1 is running already: give this one another node\.id"):
            second.start()
        second.remove()


def test_hears_what_others_change_in_its_settings(server: ZooKeeperServer, root: str, client: KazooClient) -> None:
    with broker(server.connect + root) as running:
        create(running, "orders")
        client.set("/config/topics/orders", b'{"version":1,"config":{"retention.ms":"12345"}}')
        notification = b'{"version":2,"entity_path":"topics/orders"}'
        client.create("/config/changes/config_change_", notification, sequence=True)
        resource = ConfigResource(ResourceType.TOPIC, "orders")
        asking = admin(running)
        eventually(lambda: asking.describe_configs([resource])[resource].result()["retention.ms"].value == "12345")


def test_serves_on_while_zookeeper_is_away(root: str) -> None:
    with ZooKeeperServer() as own, broker(own.connect + root, timeout_ms=1000) as running:
        create(running, "orders")
        produce(running, "orders", "before")
        own.kill()
        produce(running, "orders", "at once")
        time.sleep(SESSION_MS / 1000)
        produce(running, "orders", "after the session's timeout", acks="1")
        produce(running, "orders", "and with acks=all")
        assert len(consume(running, "orders", 4)) == 4
        with pytest.raises(KafkaException, match=r"(NOT_CONTROLLER|REQUEST_TIMED_OUT).*ZooKeeper"):
            create(running, "refused", timeout_s=5)
        own.start()
        eventually(lambda: _created(running, "healed"))
        produce(running, "healed", "x")
        assert topics(running) == ["healed", "orders"]


def _created(running: OttlaProcess, topic: str) -> bool:
    try:
        create(running, topic, timeout_s=3)
    except KafkaException as refused:
        return "ALREADY_EXISTS" in str(refused)
    return True


def test_a_change_waits_for_zookeeper(root: str) -> None:
    with ZooKeeperServer() as own, broker(own.connect + root, timeout_ms=30_000) as running:
        create(running, "orders")
        own.pause()
        asking = admin(running)
        waiting = asking.create_topics([NewTopic("late", 1, 1)], request_timeout=60)["late"]
        time.sleep(0.5)
        assert not waiting.done()
        own.resume()
        waiting.result(timeout=60)
        assert topics(running) == ["late", "orders"]


def test_heals_from_the_end_of_its_session(server: ZooKeeperServer, root: str, client: KazooClient) -> None:
    with UnreliableLink(server.port) as link, broker(f"127.0.0.1:{link.port}{root}", timeout_ms=1000) as running:
        create(running, "orders")
        produce(running, "orders", "one")
        link.refuse()
        eventually(lambda: not client.exists("/brokers/ids/1"))
        assert not client.exists("/controller")
        produce(running, "orders", "two")  # nobody else has a replica, so nobody else can lead
        link.restore()
        eventually(lambda: client.exists("/brokers/ids/1") and client.exists("/controller"))
        eventually(lambda: _created(running, "more"))
        assert json.loads(client.get("/controller_epoch")[0]) == 2
        assert json.loads(client.get("/brokers/topics/orders/partitions/0/state")[0])["leader"] == 1
        produce(running, "orders", "three")
        assert consume(running, "orders", 3) == ["one", "two", "three"]


def test_says_that_zookeeper_cannot_be_reached(tmp_path: Path) -> None:
    lost = broker("127.0.0.1:1/kafka", directory=tmp_path, timeout_ms=500)
    with pytest.raises(BrokerFailedError, match=r"ZooKeeper at 127\.0\.0\.1:1/kafka: it cannot be reached"):
        lost.start()
