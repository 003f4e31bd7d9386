"""When the simulation's operator gives up a partition that lost the first disk it was on: not while a replica that has
been in sync is left, since that one has to lead by itself."""

import pytest

from ottla.cluster.image import NO_LEADER, PartitionImage, empty_image
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicName
from tests.simulation.faults import is_lost_with_first_copies

FIRST, SECOND, THIRD = REPLICAS = (BrokerId(1), BrokerId(2), BrokerId(3))
TOPIC = TopicName("side1")
ABANDONED = PartitionImage(
    PartitionId(0), NO_LEADER, LeaderEpoch(1), REPLICAS, (), 2, last_known_leader=FIRST, departed=(FIRST,)
)


def is_lost(partition: PartitionImage, *failed: BrokerId, full: BrokerId = NO_LEADER) -> bool:
    """`failed` are the brokers that report their replica as lost, or as in the `full` directory."""
    image = empty_image("cluster")._replace(
        failed_replicas=frozenset((broker, TOPIC, partition.partition) for broker in failed),
        full_replicas=frozenset([(full, TOPIC, partition.partition)]),
    )
    return is_lost_with_first_copies(image, TOPIC, partition)


@pytest.mark.parametrize("failed", [(FIRST,), REPLICAS], ids=["others are made", "others must not lead"])
def test_a_partition_is_lost_with_the_only_replica_that_was_in_sync(failed: tuple[BrokerId, ...]) -> None:
    assert is_lost(ABANDONED, *failed)
    in_sync = ABANDONED._replace(isr=(FIRST,), departed=(), last_known_leader=NO_LEADER)
    assert is_lost(in_sync, *failed)  # so it is without eligible leader replicas


def test_a_partition_is_not_lost_while_a_replica_that_was_in_sync_is_left() -> None:
    assert not is_lost(ABANDONED)
    assert not is_lost(ABANDONED, SECOND, THIRD)
    assert not is_lost(ABANDONED._replace(departed=(SECOND, FIRST), eligible_count=1), FIRST)
    assert not is_lost(ABANDONED._replace(isr=(SECOND,)), FIRST)


def test_a_replica_in_a_full_directory_is_not_lost() -> None:
    assert not is_lost(ABANDONED, FIRST, full=FIRST)


def test_a_partition_that_no_replica_is_known_to_have_held_is_not_lost() -> None:
    assert not is_lost(ABANDONED._replace(last_known_leader=NO_LEADER, departed=()), *REPLICAS)
