"""The controller's answer to a leader that wants another in-sync set."""

from uuid import UUID

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.commands import RemoveBroker, apply
from ottla.cluster.elections import NO_OUTAGES, Outages
from ottla.cluster.isr_changes import IsrChange, plan_isr_change
from ottla.errors import ApiError, ErrorCode
from ottla.ids import BrokerId, PartitionId, TopicId, TopicName

IMAGE = with_topic(cluster(1, 2, 3), "t", partition(0, 1, (1, 2, 3), isr=(1, 2)))
TOPIC = IMAGE.topics[TopicName("t")]
GROWTH = IsrChange(BrokerId(1), TOPIC.topic_id, 0, 5, 9, (BrokerId(1), BrokerId(2), BrokerId(3)), epochs=(1, 1, 1))
STOPPING = Outages(stopping=frozenset({BrokerId(3)}))
FAILED = Outages(offline=frozenset({(BrokerId(3), TopicName("t"), PartitionId(0))}))


def test_a_change_keeps_the_leader_and_its_epoch() -> None:
    (part,) = plan_isr_change(IMAGE, NO_OUTAGES, GROWTH).partitions
    assert part == TOPIC.partitions[0]._replace(isr=GROWTH.isr, partition_epoch=10)


def test_what_is_so_already_is_confirmed_whatever_the_partition_epoch() -> None:
    repeated = GROWTH._replace(isr=(BrokerId(1), BrokerId(2)), epochs=(1, 1), partition_epoch=7)
    assert plan_isr_change(IMAGE, NO_OUTAGES, repeated).partitions == ()


def test_a_replica_that_leaves_the_set_need_not_be_alive() -> None:
    image = apply(IMAGE, [RemoveBroker(BrokerId(2))])
    (part,) = plan_isr_change(image, NO_OUTAGES, GROWTH._replace(isr=(BrokerId(1),), epochs=(1,))).partitions
    assert part.isr == (1,)


@pytest.mark.parametrize(
    ("change", "outages", "code"),
    [
        (GROWTH._replace(topic_id=TopicId(UUID(int=1))), NO_OUTAGES, ErrorCode.UNKNOWN_TOPIC_ID),
        (GROWTH._replace(partition=1), NO_OUTAGES, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (GROWTH._replace(leader_epoch=4), NO_OUTAGES, ErrorCode.FENCED_LEADER_EPOCH),
        (GROWTH._replace(leader_epoch=6), NO_OUTAGES, ErrorCode.NOT_CONTROLLER),
        (GROWTH._replace(partition_epoch=10), NO_OUTAGES, ErrorCode.NOT_CONTROLLER),
        (GROWTH._replace(partition_epoch=8), NO_OUTAGES, ErrorCode.INVALID_UPDATE_VERSION),
        (GROWTH._replace(broker_id=BrokerId(2)), NO_OUTAGES, ErrorCode.INVALID_REQUEST),
        (GROWTH._replace(isr=(), epochs=()), NO_OUTAGES, ErrorCode.INVALID_REQUEST),
        (GROWTH._replace(isr=(BrokerId(2),), epochs=(1,)), NO_OUTAGES, ErrorCode.INVALID_REQUEST),
        (GROWTH._replace(isr=(BrokerId(1), BrokerId(4)), epochs=(1, 1)), NO_OUTAGES, ErrorCode.INELIGIBLE_REPLICA),
        (GROWTH._replace(epochs=(1, 1, 2)), NO_OUTAGES, ErrorCode.INELIGIBLE_REPLICA),
        (GROWTH, STOPPING, ErrorCode.INELIGIBLE_REPLICA),
        (GROWTH, FAILED, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_refusals(change: IsrChange, outages: Outages, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        plan_isr_change(IMAGE, outages, change)
    assert refused.value.code is code


def test_a_leader_that_knows_no_epochs_of_brokers_is_believed() -> None:
    assert plan_isr_change(IMAGE, NO_OUTAGES, GROWTH._replace(epochs=(-1, -1, -1))).partitions
