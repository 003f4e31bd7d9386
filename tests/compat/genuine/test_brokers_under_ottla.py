"""Genuine brokers of Kafka 4.3.1 under a controller of Ottla."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from tests.support.eventually import eventually
from tests.support.genuine import kafka_tool
from tests.support.genuine_quorum import GenuineBroker, addresses
from tests.support.quorum_nodes import OttlaNode
from tests.support.steady_producer import ONE_IN_FLIGHT, SteadyProducer
from tests.support.whole_topic import read_in_group

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

CONTROLLER = 3000
SETTINGS = {
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


class Cluster(NamedTuple):
    controller: OttlaNode
    brokers: list[GenuineBroker]
    controller_port: int

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    quorum = addresses(CONTROLLER)
    with ExitStack() as stack:
        controller = stack.enter_context(OttlaNode(quorum[CONTROLLER], quorum, broker=False))
        brokers = [GenuineBroker(number, quorum, SETTINGS) for number in (1, 2)]
        for broker in brokers:
            stack.callback(broker.kill)
            broker.start(wait=False)
        for broker in brokers:
            broker.wait_until_ready()
        yield Cluster(controller, brokers, quorum[CONTROLLER].port)


def in_sync(cluster: Cluster, topic: str) -> list[int]:
    admin = cluster.admin
    partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
    return [len(partition.isrs) for partition in partitions]


def test_topics_settings_and_quorum_are_managed_through_them(cluster: Cluster) -> None:
    admin = cluster.admin
    admin.create_topics([NewTopic("managed", 2, 2)])["managed"].result(30)
    admin.create_partitions([NewPartitions("managed", 4)])["managed"].result(30)
    eventually(lambda: in_sync(cluster, "managed") == [2] * 4)
    resource = ConfigResource("topic", "managed")
    resource.add_incremental_config(ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([resource])[resource].result(30)

    def retention() -> str | None:
        described = admin.describe_configs([ConfigResource("topic", "managed")])
        found: str | None = next(iter(described.values())).result(30)["retention.ms"].value
        return found

    eventually(lambda: retention() == "60000")
    status = kafka_tool("MetadataQuorumCommand", "--bootstrap-server", cluster.bootstrap, "describe", "--status").stdout
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert int(fields["LeaderId"]) == CONTROLLER
    assert {each["id"] for each in json.loads(fields["CurrentObservers"])} == {1, 2}
    admin.delete_topics(["managed"])["managed"].result(30)
    eventually(lambda: "managed" not in admin.list_topics(timeout=20).topics)


def test_they_restart_in_order_and_are_killed_while_producers_write(cluster: Cluster) -> None:
    admin = cluster.admin
    admin.create_topics([NewTopic("steady", 2, 2)])["steady"].result(30)
    transactional = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t", "log_level": 0})
    transactional.init_transactions(60)
    with SteadyProducer(cluster.bootstrap, "steady", **ONE_IN_FLIGHT) as producer:
        for broker, ends in zip(cluster.brokers, ("stop", "kill"), strict=True):
            producer.until_acknowledged(50)
            getattr(broker, ends)()
            producer.until_acknowledged(50)
            broker.start()
            eventually(lambda: in_sync(cluster, "steady") == [2, 2])
            transactional.begin_transaction()
            transactional.produce("steady", f"transaction-{ends}".encode())
            transactional.commit_transaction(60)
        cluster.controller.stop()
        producer.until_acknowledged(50)
        cluster.controller.start()
        producer.until_acknowledged(50)
    assert producer.failed == []
    wanted = {value for _, value in producer.acknowledged} | {b"transaction-stop", b"transaction-kill"}
    assert set(read_in_group(cluster.bootstrap, "steady", "g", len(wanted))) >= wanted
    admin = cluster.admin
    admin.create_topics([NewTopic("after-all", 2, 2)])["after-all"].result(30)
