"""Replicas that move from one log directory of a broker to another, while they are written."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from ottla.errors import ErrorCode
from ottla.protocol.messages import alter_replica_log_dirs as alter
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.raw_client import ask
from tests.support.steady_producer import SteadyProducer
from tests.support.whole_topic import read_all

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(2, log_directories=("a", "b"), min_insync_replicas="1") as started:
        yield started


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def values(count: int) -> list[bytes]:
    return [b"%0100d" % number for number in range(count)]


def move(cluster: ClusterInProcess, broker: int, topic: str, directory: Path) -> ErrorCode:
    topics = [alter.AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    request = alter.AlterReplicaLogDirsRequest(dirs=[alter.AlterReplicaLogDir(path=str(directory), topics=topics)])
    return ErrorCode(ask(cluster.address(broker), request, 2).results[0].partitions[0].error_code)


def places(cluster: ClusterInProcess, broker: int, topic: str) -> dict[str, tuple[bool, int]]:
    """The directories in which the broker has partition 0: whether it is a copy that is under way, and its lag."""
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])])
    return {
        Path(result.log_dir).name: (part.is_future_key, part.offset_lag)
        for result in ask(cluster.address(broker), request, 4).results
        for found in result.topics
        for part in found.partitions
    }


def place(cluster: ClusterInProcess, broker: int, topic: str) -> tuple[Path, Path]:
    """The directory that has the partition, and the other one."""
    (name,) = places(cluster, broker, topic)
    own = cluster.directory / str(broker)
    return own / name, own / {"a": "b", "b": "a"}[name]


def bytes_of(directory: Path, topic: str) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((directory / f"{topic}-0").glob("*.log")))


def set_rate(cluster: ClusterInProcess, broker: int, rate: str | None) -> None:
    operation = AlterConfigOpType.DELETE if rate is None else AlterConfigOpType.SET
    entry = ConfigEntry(RATE, rate, incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
    admin = cluster.admin()
    admin.incremental_alter_configs([resource])[resource].result(20)
    wanted = 2**63 - 1 if rate is None else int(rate)
    config = cluster.brokers[broker].metadata
    eventually(lambda: config.config.replica_alter_log_dirs_io_max_bytes_per_second == wanted)


@pytest.mark.parametrize("broker", [1, 2], ids=["led", "followed"])
def test_a_replica_moves_while_records_come(cluster: ClusterInProcess, broker: int) -> None:
    topic = f"moves-{broker}"
    cluster.create(topic, [[1, 2]], segment_bytes="1048576")
    cluster.produce(topic, values(20_000), **{"linger.ms": 5})
    there, other = place(cluster, broker, topic)
    with SteadyProducer(cluster.bootstrap, topic, **{"enable.idempotence": True}) as producer:
        producer.until_acknowledged(50)
        assert move(cluster, broker, topic, other) is ErrorCode.NONE
        eventually(lambda: places(cluster, broker, topic) == {other.name: (False, 0)})
        producer.until_acknowledged(50)
    assert producer.failed == []
    eventually(lambda: not list(there.glob(f"{topic}-0*")))
    acknowledged = [value for _, value in producer.acknowledged]
    assert read_all(cluster.bootstrap, topic, 20_000 + len(acknowledged)) == [*values(20_000), *acknowledged]
    assert bytes_of(place(cluster, 1, topic)[0], topic) == bytes_of(place(cluster, 2, topic)[0], topic)
    cluster.stop(broker)
    cluster.start(broker)
    eventually(lambda: set(cluster.partition(topic).isr) == {1, 2})
    assert places(cluster, broker, topic) == {other.name: (False, 0)}


def test_a_copy_that_is_held_back_can_be_seen_and_given_up(cluster: ClusterInProcess, topic: str) -> None:
    cluster.create(topic, [[1, 2]])
    cluster.produce(topic, values(20_000))
    there, other = place(cluster, 1, topic)
    set_rate(cluster, 1, "1000")
    assert move(cluster, 1, topic, other) is ErrorCode.NONE
    eventually(lambda: len(places(cluster, 1, topic)) == 2)
    found = places(cluster, 1, topic)
    assert found[there.name] == (False, 0)
    assert found[other.name][0]
    assert found[other.name][1] > 0
    assert list(other.glob(f"{topic}-0.*-future"))
    assert move(cluster, 1, topic, there) is ErrorCode.NONE
    eventually(lambda: not list(other.glob(f"{topic}-0*")))
    assert place(cluster, 1, topic) == (there, other)
    set_rate(cluster, 1, None)


def test_the_next_process_goes_on_with_a_move(cluster: ClusterInProcess, topic: str) -> None:
    cluster.create(topic, [[1, 2]])
    cluster.produce(topic, values(20_000))
    there, other = place(cluster, 2, topic)
    set_rate(cluster, 2, "1000")
    assert move(cluster, 2, topic, other) is ErrorCode.NONE
    eventually(lambda: list(other.glob(f"{topic}-0.*-future")))
    cluster.stop(2)
    cluster.start(2)
    set_rate(cluster, 2, None)
    eventually(lambda: places(cluster, 2, topic) == {other.name: (False, 0)})
    eventually(lambda: not list(there.glob(f"{topic}-0*")))
    assert not list(other.glob(f"{topic}-0.*"))
    assert bytes_of(other, topic) == bytes_of(place(cluster, 1, topic)[0], topic)


def test_where_a_replica_that_is_not_here_shall_be(cluster: ClusterInProcess, topic: str) -> None:
    wanted = cluster.directory / "1" / "b"
    assert move(cluster, 1, topic, cluster.directory / "1" / "c") is ErrorCode.LOG_DIR_NOT_FOUND
    assert move(cluster, 1, topic, wanted) is ErrorCode.REPLICA_NOT_AVAILABLE
    for number in range(2):
        cluster.create(f"{topic}-filler-{number}", [[1]])
    cluster.create(topic, [[1]])
    assert places(cluster, 1, topic) == {"b": (False, 0)}
