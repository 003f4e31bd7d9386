"""An idempotent producer whose batch is sent back is not told that the batch behind it leaves a gap.

Clients keep several batches under way. The second one may come when the reason is gone for which the first one was
refused; upon OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka begins a new epoch, and sends what others have appended again.
"""

from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.raw_client import RawConnection
from tests.support.stories import batch, produce

PRODUCER = 4711


@pytest.fixture
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(brokers=2, default_replication_factor="2") as started:
        yield started


def test_too_few_in_sync_for_the_first_and_enough_for_the_second(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[1, 2]])

    def ask(connection: RawConnection, sequence: int) -> ErrorCode:
        records = batch(b"v", producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
        (topic,) = connection.ask(produce([("t", 0, records)]), 9).responses
        return ErrorCode(topic.partition_responses[0].error_code)

    with RawConnection(cluster.address(1)) as connection:
        assert ask(connection, 0) is ErrorCode.NONE
        cluster.stop(2)
        eventually(lambda: cluster.partition("t").isr == (1,))
        assert ask(connection, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.start(2)
        eventually(lambda: set(cluster.partition_at(1, "t").isr) == {1, 2})
        eventually(lambda: ask(connection, 2) is not ErrorCode.NOT_ENOUGH_REPLICAS)
        assert ask(connection, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert ask(connection, 1) is ErrorCode.NONE
        assert ask(connection, 2) is ErrorCode.NONE
        assert ask(connection, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
