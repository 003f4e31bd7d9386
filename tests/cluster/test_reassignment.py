"""Partitions that move between brokers: held back, called off, through changes of controllers, with all they hold."""

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from ottla.console.brokers import ClusterPage, cluster_page
from ottla.console.cluster import ClusterView
from ottla.errors import ErrorCode
from ottla.protocol.messages import alter_partition_reassignments as alter
from ottla.protocol.messages import list_partition_reassignments as listing
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.raw_client import ask
from tests.support.steady_producer import SteadyProducer
from tests.support.whole_topic import read_all

SLOW = "1"
"""Bytes per second: what is copied at this rate does not arrive within a test."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(4, replica_fetch_max_bytes="2000", replica_fetch_response_max_bytes="2000") as started:
        yield started


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def values(count: int) -> list[bytes]:
    return [b"%0100d" % number for number in range(count)]


def set_rates(cluster: ClusterInProcess, side: str, rate: str | None) -> None:
    """`leader` or `follower`, on every broker; None for no throttle."""
    operation = AlterConfigOpType.DELETE if rate is None else AlterConfigOpType.SET
    for number in cluster.brokers:
        entry = ConfigEntry(f"{side}.replication.throttled.rate", rate, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number), incremental_configs=[entry])
        admin = cluster.admin()
        admin.incremental_alter_configs([resource])[resource].result(20)
    attribute = f"{side}_replication_throttled_rate"
    wanted = 2**63 - 1 if rate is None else int(rate)
    eventually(lambda: all(getattr(broker.metadata.config, attribute) == wanted for broker in cluster.brokers.values()))


def moved(
    cluster: ClusterInProcess, topic: str, replicas: list[int] | None, **more: bool
) -> alter.ReassignablePartitionResponse:
    partition = alter.ReassignablePartition(partition_index=0, replicas=replicas)
    request = alter.AlterPartitionReassignmentsRequest(
        topics=[alter.ReassignableTopic(name=topic, partitions=[partition])], **more
    )
    response = ask(cluster.address(cluster.controller), request, 1 if more else 0)
    assert response.error_code == 0
    answer: alter.ReassignablePartitionResponse = response.responses[0].partitions[0]
    return answer


def under_way(cluster: ClusterInProcess, topic: str) -> list[tuple[list[int], list[int], list[int]]]:
    """Replicas, those that are added, and those that go, as the controller lists them."""
    request = listing.ListPartitionReassignmentsRequest(topics=None)
    response = ask(cluster.address(cluster.controller), request, 0)
    assert response.error_code == 0
    return [
        (part.replicas, part.adding_replicas, part.removing_replicas)
        for found in response.topics
        if found.name == topic
        for part in found.partitions
    ]


def fill(cluster: ClusterInProcess, topic: str, throttled: str | None = None, count: int = 300) -> None:
    """A topic on brokers 1 and 2 with more than a fetch brings at once."""
    settings = {f"{throttled}.replication.throttled.replicas": "*"} if throttled else {}
    cluster.create(topic, [[1, 2]], **settings)
    cluster.produce(topic, values(count), **{"batch.size": 1500})


async def shown_by_the_console(cluster: ClusterInProcess) -> ClusterPage:
    """Its page of the cluster."""
    view = ClusterView(cluster.bootstrap, {})
    try:
        return await cluster_page(view)
    finally:
        view.close()


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_is_held_back_comes_when_it_is_no_more(cluster: ClusterInProcess, side: str) -> None:
    topic = f"held-back-{side}"
    fill(cluster, topic, side)
    set_rates(cluster, side, SLOW)
    assert moved(cluster, topic, [3, 2]).error_code == 0
    eventually(lambda: cluster.log_bytes(3, topic) != b"" if side == "leader" else under_way(cluster, topic))
    cluster.produce(topic, values(50))  # those in sync are not held back
    assert under_way(cluster, topic) == [([3, 2, 1], [3], [1])]
    assert len(cluster.log_bytes(3, topic)) < len(cluster.log_bytes(1, topic)) / 2
    (shown,) = (each for each in asyncio.run(shown_by_the_console(cluster)).moves if each.partition.topic == topic)
    assert (shown.before, shown.after) == ((2, 1), (3, 2))
    assert (shown.percent or 0) < 50
    assert (shown.size_bytes or 0) > 30_000
    set_rates(cluster, side, None)
    eventually(lambda: cluster.partition(topic).replicas == (3, 2))
    assert read_all(cluster.bootstrap, topic, 350) == [*values(300), *values(50)]


def test_a_move_goes_on_under_another_controller_while_records_come(cluster: ClusterInProcess, topic: str) -> None:
    fill(cluster, topic, "leader")
    set_rates(cluster, "leader", SLOW)
    with SteadyProducer(cluster.bootstrap, topic) as producer:
        assert moved(cluster, topic, [3, 4]).error_code == 0
        producer.until_acknowledged(50)
        before = cluster.controller
        cluster.lose_session(before)
        eventually(lambda: all(cluster.image(other).controller_id != before for other in {1, 2, 3, 4} - {before}))
        cluster.begin_session(before)
        assert cluster.controller != before
        assert under_way(cluster, topic) == [([3, 4, 1, 2], [3, 4], [1, 2])]
        producer.until_acknowledged(50)
        set_rates(cluster, "leader", None)
        eventually(lambda: cluster.partition(topic).replicas == (3, 4))
        assert cluster.partition(topic).leader == 3
        producer.until_acknowledged(50)
    assert producer.failed == []
    acknowledged = {value for _, value in producer.acknowledged}
    found = read_all(cluster.bootstrap, topic, 300 + len(acknowledged))
    assert found[:300] == values(300)
    assert acknowledged <= set(found)
    eventually(lambda: not list(cluster.directory.glob(f"[12]/{topic}-0*")))


def test_a_move_that_is_called_off_leaves_nothing_behind(cluster: ClusterInProcess, topic: str) -> None:
    fill(cluster, topic, "follower")
    set_rates(cluster, "follower", SLOW)
    assert moved(cluster, topic, [3, 4]).error_code == 0
    eventually(lambda: list(cluster.directory.glob(f"[34]/{topic}-0")))
    assert moved(cluster, topic, None).error_code == 0
    assert under_way(cluster, topic) == []
    eventually(lambda: cluster.partition(topic).replicas == (1, 2) == cluster.partition(topic).isr)
    eventually(lambda: not list(cluster.directory.glob(f"[34]/{topic}-0*")))
    set_rates(cluster, "follower", None)
    cluster.produce(topic, values(10))
    assert moved(cluster, topic, None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_replicas_are_added_and_taken_away(cluster: ClusterInProcess, topic: str) -> None:
    fill(cluster, topic)
    assert moved(cluster, topic, [1, 2, 3, 4]).error_code == 0
    eventually(lambda: set(cluster.partition(topic).isr) == {1, 2, 3, 4} and not under_way(cluster, topic))
    assert moved(cluster, topic, [4]).error_code == 0
    eventually(lambda: cluster.partition(topic).replicas == (4,))
    assert (cluster.partition(topic).leader, cluster.partition(topic).isr) == (4, (4,))
    eventually(lambda: not list(cluster.directory.glob(f"[123]/{topic}-0*")))
    refused = moved(cluster, topic, [1, 2], allow_replication_factor_change=False)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
