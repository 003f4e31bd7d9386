"""Settings by which an operator limits topics and disks of a cluster: policies, cordoned directories, preallocation."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.protocol.messages import alter_replica_log_dirs as alter
from ottla.protocol.messages import create_partitions as cp
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.policies import install
from tests.support.raw_client import ask
from tests.support.whole_topic import read_all

BROKERS = (1, 2, 3)
SEGMENT = 1 << 20
_NOTING = """
# POLICY noting = noting:NotingRules
from house import HouseRules

asked = []


class NotingRules(HouseRules):
    def configure(self, settings):
        super().configure(settings)
        self.broker = int(settings["node.id"])

    def validate(self, request):
        asked.append((self.broker, request.topic))
        super().validate(request)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterInProcess]:
    installed = str(install(tmp_path_factory.mktemp("policies"), noting=_NOTING))
    sys.path.insert(0, installed)
    settings: dict[str, Any] = {"create.topic.policy.class.name": "noting", "house.teams": "orders"}
    try:
        with ClusterInProcess(log_directories=("a", "b"), min_insync_replicas="1", **settings) as started:
            yield started
    finally:
        sys.path.remove(installed)


def new(name: str, factor: int = 3, count: int = 1) -> ct.CreatableTopic:
    return ct.CreatableTopic(name=name, num_partitions=count, replication_factor=factor, assignments=[], configs=[])


def create(cluster: ClusterInProcess, through: int, *topics: ct.CreatableTopic) -> list[tuple[ErrorCode, str | None]]:
    """As clients do: any broker names the controller, which creates topics; the others only say that they do not."""
    request = ct.CreateTopicsRequest(topics=list(topics), validate_only=False)
    named = ask(cluster.address(through), MetadataRequest(topics=[]), 12).controller_id
    if through != named:
        refused = ask(cluster.address(through), request, 7).topics
        assert {topic.error_code for topic in refused} == {ErrorCode.NOT_CONTROLLER}
    answer = ask(cluster.address(named), request, 7)
    return [(ErrorCode(topic.error_code), topic.error_message) for topic in answer.topics]


def test_the_controller_asks_its_policy_whichever_broker_is_asked(cluster: ClusterInProcess) -> None:
    import noting  # type: ignore[import-not-found]  # installed by the fixture

    def refused_through_each(round_: str) -> None:
        for broker in BROKERS:
            name = f"strangers.{round_}{broker}"
            refusal = f"Topic {name} must begin with one of orders"
            assert create(cluster, broker, new(name), new(f"orders.{round_}{broker}")) == [
                (ErrorCode.POLICY_VIOLATION, refusal),
                (ErrorCode.NONE, None),
            ]
            used = MetadataRequest(
                topics=[MetadataRequestTopic(name=f"strangers.used{broker}")], allow_auto_topic_creation=True
            )
            ask(cluster.address(broker), used, 12)

    noting.asked.clear()
    first = cluster.controller
    refused_through_each("first")
    eventually(lambda: {(first, f"strangers.used{broker}") for broker in BROKERS} <= set(noting.asked))
    assert {broker for broker, _ in noting.asked} == {first}
    cluster.lose_session(first)
    cluster.begin_session(first)
    eventually(lambda: cluster.controller != first and all(len(cluster.image(each).brokers) == 3 for each in BROKERS))
    noting.asked.clear()
    refused_through_each("second")
    assert {broker for broker, _ in noting.asked} == {cluster.controller}
    assert not [name for name in cluster.image(cluster.controller).topics if name.startswith("strangers")]


@contextmanager
def cordon(cluster: ClusterInProcess, broker: int, value: str) -> Iterator[None]:
    wanted = {"a", "b"} if value == "*" else {Path(value).name}
    try:
        set_cordoned(cluster, broker, value)
        eventually(lambda: cordoned(cluster, broker) == wanted)
        yield
    finally:
        set_cordoned(cluster, broker, None)
        eventually(lambda: not cordoned(cluster, broker))


def set_cordoned(cluster: ClusterInProcess, broker: int, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry("cordoned.log.dirs", value, incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
    admin = cluster.admin()  # its requests end with it
    admin.incremental_alter_configs([resource])[resource].result(20)


def cordoned(cluster: ClusterInProcess, broker: int) -> set[str]:
    results = ask(cluster.address(broker), DescribeLogDirsRequest(topics=[]), 5).results
    return {Path(result.log_dir).name for result in results if result.is_cordoned}


def replicas(cluster: ClusterInProcess, topic: str) -> set[BrokerId]:
    return {replica for part in cluster.image(cluster.controller).topics[topic].partitions for replica in part.replicas}  # type: ignore[index]


def test_a_broker_whose_directories_are_cordoned_gets_no_new_replicas(cluster: ClusterInProcess) -> None:
    assert create(cluster, 1, new("orders.before", 3, 3)) == [(ErrorCode.NONE, None)]
    with cordon(cluster, 2, "*"):
        for broker in BROKERS:
            (answer,) = create(cluster, broker, new(f"orders.all{broker}", 3))
            assert answer[0] is ErrorCode.INVALID_REPLICATION_FACTOR
            assert "have all their log directories cordoned" in str(answer[1])
            assert create(cluster, broker, new(f"orders.two{broker}", 2, 6)) == [(ErrorCode.NONE, None)]
            assert replicas(cluster, f"orders.two{broker}") == {1, 3}
        assert replicas(cluster, "orders.before") == {1, 2, 3}
        grown = cp.CreatePartitionsRequest(
            topics=[cp.CreatePartitionsTopic(name="orders.two1", count=12, assignments=None)],
            timeout_ms=20_000,
            validate_only=False,
        )
        assert ask(cluster.address(cluster.controller), grown, 3).results[0].error_code == 0
        eventually(lambda: len(cluster.image(cluster.controller).topics["orders.two1"].partitions) == 12)  # type: ignore[index]
        assert replicas(cluster, "orders.two1") == {1, 3}
    assert create(cluster, 3, new("orders.again", 3)) == [(ErrorCode.NONE, None)]


def test_new_replicas_go_to_the_directory_that_is_not_cordoned(cluster: ClusterInProcess) -> None:
    directory = cluster.directory / "2"
    with cordon(cluster, 2, str(directory / "a")):
        assert create(cluster, 1, new("orders.placed", 3, 5)) == [(ErrorCode.NONE, None)]
        eventually(lambda: len(list(directory.glob("*/orders.placed-*"))) == 5)
        assert len(list((directory / "b").glob("orders.placed-*"))) == 5
        topics = [alter.AlterReplicaLogDirTopic(name="orders.placed", partitions=[0])]
        request = alter.AlterReplicaLogDirsRequest(
            dirs=[alter.AlterReplicaLogDir(path=str(directory / "a"), topics=topics)]
        )
        (part,) = ask(cluster.address(2), request, 2).results[0].partitions
        assert part.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def files(cluster: ClusterInProcess, broker: int, topic: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (cluster.directory / str(broker)).glob(f"*/{topic}-0/*.log")}


def test_a_followers_preallocated_files_are_its_leaders(cluster: ClusterInProcess) -> None:
    topic = "orders.preallocated"
    cluster.create(topic, [[1, 2]], preallocate="true", segment_bytes=str(SEGMENT))
    values = [bytes([number % 251]) * 100_000 for number in range(25)]
    for value in values:
        cluster.produce(topic, [value])
    eventually(lambda: files(cluster, 1, topic) == files(cluster, 2, topic))
    lengths = [len(data) for _, data in sorted(files(cluster, 2, topic).items())]
    assert len(lengths) == 3
    assert lengths[-1] == SEGMENT, "the one that grows is preallocated"
    assert max(lengths[:-1]) < SEGMENT, "the others end with their records"
    cluster.stop(2)
    last = sorted(files(cluster, 2, topic).items())[-1][1]
    assert 0 < len(last) < SEGMENT
    assert sorted(files(cluster, 1, topic).items())[-1][1].startswith(last)
    cluster.start(2)
    cluster.produce(topic, values[:1])
    eventually(lambda: set(cluster.partition(topic).isr) == {1, 2})
    cluster.stop(1)
    cluster.start(1)
    eventually(lambda: set(cluster.partition(topic).isr) == {1, 2})
    assert read_all(cluster.bootstrap, topic, 26) == [*values, values[0]]
    cluster.produce(topic, values)  # both roll
    eventually(lambda: files(cluster, 1, topic) == files(cluster, 2, topic))
