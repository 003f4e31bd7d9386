"""An Ottla broker in a cluster of genuine Kafka 4.3.1: it registers, follows, leads, is reassigned to and from, is
killed and returns, and shuts down in order, while producers go on; nothing acknowledged is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.eventually import eventually
from tests.support.mixed_broker_quorum import KAFKA, OTTLA, QuorumCluster, moves
from tests.support.mixed_cluster import TIMEOUT_S
from tests.support.steady_producer import SteadyProducer
from tests.support.transactional_load import TransactionalLoad
from tests.support.whole_topic import read_all


@pytest.fixture(scope="module")
def cluster() -> Iterator[QuorumCluster]:
    with QuorumCluster(apart=False) as started:
        yield started


def elect_first(cluster: QuorumCluster, topic: str) -> None:
    parts = [TopicPartition(topic, number) for number in cluster.partitions(topic)]
    admin = AdminClient({"bootstrap.servers": cluster.ottla.bootstrap, "log_level": 0})
    admin.elect_leaders(ElectionType.PREFERRED, parts).result(30)


@pytest.mark.timeout(120)
def test_it_follows_leads_and_is_reassigned_to_and_from_under_load(cluster: QuorumCluster, tmp_path: Path) -> None:
    cluster.create("moving", [[KAFKA], [KAFKA]])
    file = tmp_path / "moves.json"
    with (
        SteadyProducer(cluster.bootstrap, "moving", **{"enable.idempotence": True}) as producer,
        TransactionalLoad(cluster.bootstrap, "moving", 1) as load,
    ):
        producer.until_acknowledged(100)
        file.write_text(moves("moving", dict.fromkeys((0, 1), (OTTLA, KAFKA))))
        cluster.tool("ReassignPartitionsCommand", "--reassignment-json-file", str(file), "--execute")
        cluster.until_in_sync("moving", KAFKA, OTTLA)
        elect_first(cluster, "moving")
        cluster.until_led_by("moving", OTTLA)
        producer.until_acknowledged(100)
        cluster.ottla.stop()
        cluster.until_led_by("moving", KAFKA)
        producer.until_acknowledged(100)
        cluster.ottla.start()
        cluster.until_in_sync("moving", KAFKA, OTTLA)
        cluster.move("moving", {0: [OTTLA], 1: [OTTLA]})
        producer.until_acknowledged(100)
        cluster.move("moving", {0: [KAFKA], 1: [OTTLA]})
        producer.until_acknowledged(100)
        eventually(lambda: len(load.committed()) > 30, timeout_s=TIMEOUT_S)
    found = read_all(cluster.bootstrap, "moving", len(producer.acknowledged) + len(load.committed()))
    assert producer.failed == []
    assert {value for _, value in producer.acknowledged} | set(load.committed()) <= set(found)
    assert len(found) == len(set(found))
