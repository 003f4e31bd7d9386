"""DescribeTopicPartitions shows the replicas that may lead though they are not in sync, where they are elected."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.image import ELIGIBLE_LEADER_REPLICAS, PartitionImage
from ottla.ids import BrokerId, TopicName
from ottla.server.handlers.describe_topic_partitions import _found

LED = partition(0, 3, (1, 2, 3), isr=(3,))._replace(departed=(BrokerId(2), BrokerId(1)), eligible_count=1)
LEFT = LED._replace(
    leader=BrokerId(-1), isr=(), departed=(BrokerId(3), BrokerId(2), BrokerId(1)), last_known_leader=BrokerId(3)
)


@pytest.mark.parametrize(
    ("part", "level", "eligible", "last"),
    [(LED, 1, [2], []), (LED, 0, [], []), (LEFT._replace(eligible_count=2), 1, [3, 2], [3]), (LEFT, 0, [], [])],
)
def test_as_genuine_brokers_do(part: PartitionImage, level: int, eligible: list[int], last: list[int]) -> None:
    image = with_topic(cluster(1, 2, 3), "t", part)._replace(features={ELIGIBLE_LEADER_REPLICAS: level})
    context: Any = SimpleNamespace(listener="PLAINTEXT")
    (described,) = _found(image, image.topics[TopicName("t")], (part,), context).partitions
    assert (described.eligible_leader_replicas, described.last_known_elr) == (eligible, last)
