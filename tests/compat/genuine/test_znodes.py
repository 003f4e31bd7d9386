"""Actions leave the same in ZooKeeper whether Kafka 3.9 carries them out or Ottla, and each goes on from the other."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine39 import GenuineKafka39
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask, errors_in
from tests.support.znodes import connected, tree
from tests.support.zookeeper import ZooKeeperServer

from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

SETTINGS = {
    "broker.id": "1",
    "broker.rack": "here",
    "zookeeper.session.timeout.ms": "6000",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as started:
        yield started


def genuine(connect: str, directory: Path | None = None, port: int | None = None) -> BrokerProcess:
    return GenuineKafka39(connect, directory, properties=SETTINGS, port=port)


def ours(connect: str, directory: Path | None = None, port: int | None = None) -> BrokerProcess:
    return OttlaProcess(directory, properties={**SETTINGS, "zookeeper.connect": connect}, port=port)


Start = Callable[..., BrokerProcess]


def act(bootstrap: str) -> None:
    """What leaves something behind in ZooKeeper."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def done(futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(timeout=60)

    orders = NewTopic("orders", 3, 1, config={"retention.ms": "-1", "cleanup.policy": "compact,delete"})
    done(admin.create_topics([orders, NewTopic("plain", 1, 1), NewTopic("gone", 2, 1)]))
    edits = [ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)]
    done(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, "plain", incremental_configs=edits)]))
    edits = [ConfigEntry("retention.ms", "", incremental_operation=AlterConfigOpType.DELETE)]
    done(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, "plain", incremental_configs=edits)]))
    for broker_id in ("", "1"):
        configs = [AlterableConfig(name="log.retention.ms", config_operation=0, value="86400000")]
        resource = AlterConfigsResource(
            resource_type=ResourceType.BROKER.value, resource_name=broker_id, configs=configs
        )
        change = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        assert errors_in(ask(bootstrap, change, 1)) == set()
    done(admin.create_partitions([NewPartitions("plain", 3)]))
    done(admin.delete_topics(["gone"]))
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", "kept", key="k", partition=0)
    producer.commit_transaction(60)


def written(start: Start, connect: str) -> dict[str, Any]:
    """The tree that a broker leaves while it lives, without what differs from one run to the next."""
    with start(connect) as broker, connected(connect) as client:
        act(broker.bootstrap)
        eventually(lambda: not any("gone" in path for path in tree(client)))
        nodes = {path: value for path, value in tree(client).items() if path != "/"}
        for path, value in nodes.items():
            if isinstance(value, dict):
                for name in ("timestamp", "topic_id", "id"):
                    if name in value:
                        assert isinstance(value[name], str)
                        value[name] = len(value[name])
                if path == "/brokers/ids/1":
                    assert value.pop("port") == broker.port
                    assert value.pop("endpoints") == [f"PLAINTEXT://{broker.bootstrap}"]
                    assert value.pop("confirms_leadership", True)  # Ottla's own
        return nodes


@pytest.mark.timeout(300)  # virtual machines start slowly beside other tests
def test_the_same_actions_leave_the_same_nodes(server: ZooKeeperServer) -> None:
    theirs = written(genuine, f"{server.connect}/theirs")
    mine = written(ours, f"{server.connect}/mine")
    # Feature levels: Kafka has none with ZooKeeper, and says so; a cluster of Ottla alone begins with those it knows.
    assert theirs.pop("/feature") == {"version": 2, "status": 1, "features": {}}
    # Which disks a broker has had, which Kafka does not look at (ADR 21).
    assert mine.pop("/ottla", ...) is mine.pop("/ottla/log_directories", ...) is None
    assert set(mine.pop("/ottla/log_directories/1")) == {"version", "directories"}
    assert mine == theirs


def partitions(admin: AdminClient) -> dict[str, int]:
    """How many each topic of a client has that is led."""
    topics = admin.list_topics(timeout=60).topics
    return {
        name: sum(partition.leader == 1 for partition in topic.partitions.values())
        for name, topic in topics.items()
        if not name.startswith("__")
    }


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": "read_committed", "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = consumer.consume(count, timeout=60)
    consumer.close()
    return [record.value() for record in records]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("first", "second"),
    [pytest.param(genuine, ours, id="to Ottla", marks=pytest.mark.soak), pytest.param(ours, genuine, id="to Kafka")],
)
def test_each_goes_on_from_what_the_other_left(
    first: Start, second: Start, server: ZooKeeperServer, tmp_path: Path
) -> None:
    """One and the same log directory, one and the same path in ZooKeeper."""
    connect = f"{server.connect}/{tmp_path.name}"
    before = first(connect, tmp_path / "first")
    with before, connected(connect) as client:
        act(before.bootstrap)
        before.stop()
        eventually(lambda: not client.exists("/brokers/ids/1"))
        stood = tree(client)
        shutil.copytree(before.log_dir, tmp_path / "second" / "data")
        with second(connect, tmp_path / "second", before.port) as after:
            admin = AdminClient({"bootstrap.servers": after.bootstrap, "log_level": 0})
            assert admin.list_topics(timeout=60).cluster_id == stood["/cluster/id"]["id"]
            eventually(lambda: partitions(admin) == {"orders": 3, "plain": 3}, timeout_s=60)
            assert tree(client)["/controller_epoch"] == stood["/controller_epoch"] + 1
            resource = ConfigResource(ResourceType.TOPIC, "orders")
            settings = admin.describe_configs([resource])[resource].result(timeout=60)
            assert settings["cleanup.policy"].value == "compact,delete"
            assert read(after.bootstrap, "orders", 1) == [b"kept"]
            producer = Producer({"bootstrap.servers": after.bootstrap, "enable.idempotence": True, "log_level": 0})
            producer.produce("orders", "more", key="k", partition=0)
            assert producer.flush(60) == 0
            assert read(after.bootstrap, "orders", 2) == [b"kept", b"more"]
            admin.create_topics([NewTopic("new", 1, 1)])["new"].result(timeout=60)
            now = tree(client)
            assert now["/brokers/topics/orders"] == stood["/brokers/topics/orders"]
            assert int(now["/latest_producer_id_block"]["block_start"]) > int(
                stood["/latest_producer_id_block"]["block_start"]
            )
