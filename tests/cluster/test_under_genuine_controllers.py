"""An Ottla broker in a cluster of genuine Kafka 4.3.1: it registers, follows, leads, is reassigned to and from, is
killed and returns, and shuts down in order, while producers go on; nothing acknowledged is lost."""

import os
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.errors import ErrorCode
from ottla.protocol.messages import alter_partition_reassignments as reassign
from ottla.protocol.messages import create_topics, delete_topics, elect_leaders
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.schema import Message, Struct, fields_of
from tests.support.broker_process import BrokerFailedError
from tests.support.eventually import eventually
from tests.support.evidence import check_exactly_once
from tests.support.mixed_broker_quorum import KAFKA, OTTLA, SESSION_S, QuorumCluster, moves
from tests.support.mixed_cluster import TIMEOUT_S
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import RawConnection, ask, errors_in
from tests.support.steady_producer import ONE_IN_FLIGHT, SteadyProducer
from tests.support.transactional_load import TransactionalLoad


def asked_patiently(bootstrap: str, request: Message, version: int) -> Any:
    """The answer of a broker; a genuine one waits for a controller for 60 s, whatever its settings."""
    with RawConnection(bootstrap, timeout_s=120) as connection:
        return connection.ask(request, version)


def without_messages(found: Any) -> Any:
    """A response without the sentences for its errors."""
    if isinstance(found, list):
        return [without_messages(each) for each in found]
    if not isinstance(found, (Message, Struct)):
        return found
    fields = [field.name for field in fields_of(type(found)) if field.name != "error_message"]
    return {name: without_messages(getattr(found, name)) for name in fields}


@pytest.fixture(scope="module")
def cluster() -> Iterator[QuorumCluster]:
    with QuorumCluster(apart=False, properties={"log.cleaner.backoff.ms": "100"}) as started:
        yield started


def elect_first(cluster: QuorumCluster, topic: str) -> None:
    parts = [TopicPartition(topic, number) for number in cluster.partitions(topic)]
    admin = AdminClient({"bootstrap.servers": cluster.ottla.bootstrap, "log_level": 0})
    admin.elect_leaders(ElectionType.PREFERRED, parts).result(30)


def check_nothing_lost(
    cluster: QuorumCluster, topic: str, producer: SteadyProducer, committed: Collection[bytes]
) -> None:
    """What was acknowledged or committed is there, once."""
    assert producer.failed == []
    values = {value for _, value in producer.acknowledged} | set(committed)
    log_dirs = {number: broker.log_dir for number, broker in cluster.brokers.items()}
    check_exactly_once(cluster.bootstrap, topic, values, log_dirs, timeout_s=TIMEOUT_S)


@pytest.mark.timeout(120)
def test_it_follows_leads_and_is_reassigned_to_and_from_under_load(cluster: QuorumCluster, tmp_path: Path) -> None:
    cluster.create("moving", [[KAFKA], [KAFKA]])
    file = tmp_path / "moves.json"
    with (
        SteadyProducer(cluster.bootstrap, "moving", **ONE_IN_FLIGHT) as producer,
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
    check_nothing_lost(cluster, "moving", producer, load.committed())


@pytest.mark.timeout(180)
def test_its_copy_of_a_compacted_log_knows_where_the_genuine_leaders_epochs_began(cluster: QuorumCluster) -> None:
    """Though no record is left of some of them: it asks, since another log may be compared with its own one day."""
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "500"}
    cluster.create("compacted", [[KAFKA, OTTLA]], **settings)

    def epochs(number: int) -> list[str]:
        file = cluster.brokers[number].log_dir / "compacted-0" / "leader-epoch-checkpoint"
        return file.read_text().splitlines()[2:] if file.exists() else []

    def size() -> int:
        files = (cluster.brokers[KAFKA].log_dir / "compacted-0").glob("*.log")
        return sum(file.stat().st_size for file in files)

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})

    def write(count: int) -> None:
        for number in range(count):
            producer.produce("compacted", os.urandom(1000), key=b"%d" % (number % 10))
            assert producer.flush(30) == 0

    for leader in (KAFKA, OTTLA) * 3:
        cluster.move("compacted", {0: [leader, KAFKA + OTTLA - leader]})
        elect_first(cluster, "compacted")
        cluster.until_led_by("compacted", leader)
        write(30)
    cluster.move("compacted", {0: [KAFKA]})
    eventually(lambda: not (cluster.ottla.log_dir / "compacted-0").exists())

    def is_compacted() -> bool:
        write(1)  # the active segment is not compacted
        return size() < 60_000

    eventually(is_compacted, timeout_s=TIMEOUT_S, interval_s=0.5)
    cluster.move("compacted", {0: [KAFKA, OTTLA]})
    assert len(epochs(KAFKA)) > 6
    eventually(lambda: epochs(OTTLA) == epochs(KAFKA), timeout_s=TIMEOUT_S)


def test_it_answers_for_the_cluster_as_a_genuine_broker_does(cluster: QuorumCluster) -> None:
    """Features, brokers and settings; console tools that change metadata work by way of it."""

    def features(at: int) -> tuple[object, ...]:
        answer = ask(cluster.brokers[at].bootstrap, ApiVersionsRequest(), 4)
        return (
            {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features},
            {each.name for each in answer.supported_features} - {"ottla.leadership.confirmation"},
            answer.finalized_features_epoch > 0,
        )

    def brokers(at: int) -> list[tuple[int, int]]:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
        answer = ask(cluster.brokers[at].bootstrap, request, 2)
        return sorted((each.broker_id, each.port) for each in answer.brokers)

    assert features(OTTLA) == features(KAFKA)
    assert brokers(OTTLA) == brokers(KAFKA)
    cluster.tool("TopicCommand", "--create", "--topic", "by-tool", "--partitions", "2", "--replication-factor", "2")
    cluster.tool(
        "ConfigCommand",
        "--alter",
        "--entity-type",
        "topics",
        "--entity-name",
        "by-tool",
        "--add-config",
        "retention.ms=12345",
    )
    described = cluster.tool("TopicCommand", "--describe", "--topic", "by-tool")
    assert "retention.ms=12345" in described
    assert "CurrentObservers:" in cluster.tool("MetadataQuorumCommand", "describe", "--status")


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_nothing_is_lost_when_brokers_are_killed_and_controllers_are_away() -> None:
    """While the controller is away for longer than a session, what followers have is acknowledged."""
    with QuorumCluster(apart=True) as cluster:
        controller = cluster.genuine_controller
        assert controller is not None
        cluster.create("kept", [[KAFKA, OTTLA], [OTTLA, KAFKA]])
        with (
            SteadyProducer(cluster.bootstrap, "kept", **ONE_IN_FLIGHT) as producer,
            TransactionalLoad(cluster.bootstrap, "kept", 1) as load,
        ):
            producer.until_acknowledged(100)
            for victim, other in ((OTTLA, KAFKA), (KAFKA, OTTLA)):
                for _ in range(2):
                    cluster.brokers[victim].kill()
                    cluster.until_led_by("kept", other)
                    producer.until_acknowledged(100)
                    cluster.brokers[victim].start()
                    cluster.until_in_sync("kept", KAFKA, OTTLA)
                    elect_first(cluster, "kept")
                    producer.until_acknowledged(100)
            controller.kill()
            away_until = time.monotonic() + 3 * SESSION_S
            while time.monotonic() < away_until:
                producer.until_acknowledged(50)
            controller.start()
            cluster.create("later", [[OTTLA, KAFKA]])
            producer.until_acknowledged(100)
            cluster.ottla.stop()
            cluster.until_led_by("kept", KAFKA)
            cluster.ottla.start()
            cluster.until_in_sync("kept", KAFKA, OTTLA)
        check_nothing_lost(cluster, "kept", producer, load.committed())


@pytest.mark.soak
@pytest.mark.timeout(200)
def test_what_nobody_decides_is_answered_as_by_genuine_brokers() -> None:
    """Each thing that was to be changed has an answer of its own when the time for it is over."""
    timeout = {"request.timeout.ms": "3000", "controller.quorum.request.timeout.ms": "1000"}
    topic = create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    requests: list[tuple[Message, int]] = [
        (create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7),
        (delete_topics.DeleteTopicsRequest(topic_names=["t"], topics=[], timeout_ms=1000), 5),
        (
            elect_leaders.ElectLeadersRequest(
                topic_partitions=[elect_leaders.TopicPartitions(topic="t", partitions=[0, 1])]
            ),
            2,
        ),
        (
            reassign.AlterPartitionReassignmentsRequest(
                topics=[
                    reassign.ReassignableTopic(
                        name="t", partitions=[reassign.ReassignablePartition(partition_index=0, replicas=[1])]
                    )
                ]
            ),
            0,
        ),
        (UnregisterBrokerRequest(broker_id=7), 0),
    ]
    with QuorumCluster(apart=True, properties=timeout) as cluster, ThreadPoolExecutor(16) as threads:
        assert cluster.genuine_controller is not None
        cluster.genuine_controller.kill()
        try:
            answers = [
                [threads.submit(asked_patiently, cluster.brokers[at].bootstrap, *each) for at in (KAFKA, OTTLA)]
                for each in requests
            ]
            for genuine, own in ([each.result() for each in both] for both in answers):
                assert errors_in(genuine) == errors_in(own) == {ErrorCode.REQUEST_TIMED_OUT}
                assert without_messages(genuine) == without_messages(own)
        finally:
            cluster.brokers[KAFKA].kill()  # it would wait for a controller to let it stop


@pytest.mark.soak
@pytest.mark.timeout(200)
def test_a_number_taken_and_directories_of_another_cluster_are_refused(tmp_path: Path) -> None:
    with QuorumCluster(apart=False) as cluster:
        twin = OttlaProcess(
            tmp_path / "twin",
            properties={**cluster.ottla.properties, "initial.broker.registration.timeout.ms": "4000"},
        )
        with pytest.raises(BrokerFailedError, match=r"another broker with this node\.id is running"):
            twin.start()
        stranger = OttlaProcess(tmp_path / "stranger", properties={**twin.properties, "node.id": "3"})
        stranger.log_dir.mkdir(parents=True)
        (stranger.log_dir / "meta.properties").write_text("version=1\nnode.id=3\ncluster.id=b3R0bGFfZ2VudWluZV85OQ\n")
        with pytest.raises(BrokerFailedError, match=r"and the controllers at .* to another one"):
            stranger.start()
        assert set(cluster.admin().list_topics(timeout=10).brokers) == {KAFKA, OTTLA}
