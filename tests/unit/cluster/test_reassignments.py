"""Moving partitions, from the request to the last replica that goes."""

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.commands import RemoveBroker, apply
from ottla.cluster.elections import NO_OUTAGES, Outages
from ottla.cluster.image import NO_LEADER, MetadataImage, PartitionImage
from ottla.cluster.reassignments import finish_reassignments, plan_reassignment
from ottla.errors import ApiError, ErrorCode, UnknownTopicOrPartition
from ottla.ids import BrokerId, PartitionId, TopicName, TopicPartition

T = TopicName("t")
T0 = TopicPartition(T, PartitionId(0))
IMAGE = with_topic(cluster(1, 2, 3, 4), "t", partition(0, 1, (1, 2)))


def only(image: MetadataImage) -> PartitionImage:
    return image.topics[T].partitions[0]


def moving(image: MetadataImage, *wanted: int) -> MetadataImage:
    return apply(image, [plan_reassignment(image, T0, wanted)])


def in_sync(image: MetadataImage, *isr: int) -> MetadataImage:
    topic = image.topics[T]._replace(partitions=(only(image)._replace(isr=tuple(map(BrokerId, isr))),))
    return image._replace(topics={T: topic}, topics_by_id={topic.topic_id: topic})


def finished(image: MetadataImage, outages: Outages = NO_OUTAGES) -> PartitionImage:
    return only(apply(image, finish_reassignments(image, outages, image.topics.values())))


def test_new_replicas_follow_before_old_ones_go() -> None:
    part = only(moving(IMAGE, 3, 2))
    assert (part.replicas, part.adding, part.removing, part.target) == ((3, 2, 1), (3,), (1,), (3, 2))
    assert (part.leader, part.isr, part.leader_epoch) == (1, (1, 2), 6)


def test_it_is_through_when_the_whole_target_is_in_sync() -> None:
    begun = moving(IMAGE, 3, 2)
    assert finish_reassignments(begun, NO_OUTAGES, begun.topics.values()) == []
    part = finished(in_sync(begun, 1, 2, 3))
    assert (part.replicas, part.adding, part.removing, part.isr) == ((3, 2), (), (), (2, 3))
    assert (part.leader, part.leader_epoch) == (3, 7)


def test_the_leader_stays_if_it_is_in_the_target() -> None:
    assert finished(in_sync(moving(IMAGE, 3, 1), 1, 2, 3)).leader == 1


def test_a_new_leader_has_to_be_fit() -> None:
    ready = in_sync(moving(IMAGE, 3, 4), 1, 2, 3, 4)
    assert finished(ready, Outages(stopping=frozenset({BrokerId(3)}))).leader == 4
    gone = apply(ready, [RemoveBroker(BrokerId(3)), RemoveBroker(BrokerId(4))])
    assert finish_reassignments(gone, NO_OUTAGES, gone.topics.values()) == []


def test_a_change_of_mind_takes_the_first_goal_back() -> None:
    part = only(moving(in_sync(moving(IMAGE, 3, 2), 1, 2, 3), 4, 2))
    assert (part.replicas, part.adding, part.removing, part.isr) == ((4, 2, 1), (4,), (1,), (1, 2))


def test_cancelling_restores_what_was() -> None:
    begun = in_sync(moving(IMAGE, 3, 4), 1, 2, 3)
    part = only(apply(begun, [plan_reassignment(begun, T0, None)]))
    assert (part.replicas, part.adding, part.removing, part.isr, part.leader) == ((1, 2), (), (), (1, 2), 1)


def test_cancelling_moves_leadership_off_a_replica_that_goes() -> None:
    begun = moving(IMAGE, 3, 4)
    led = begun.topics[T]._replace(
        partitions=(only(begun)._replace(leader=BrokerId(3), isr=(BrokerId(3), BrokerId(2))),)
    )
    image = begun._replace(topics={T: led}, topics_by_id={led.topic_id: led})
    assert only(apply(image, [plan_reassignment(image, T0, None)])).leader == 2
    gone = apply(image, [RemoveBroker(BrokerId(2))])
    assert only(apply(gone, [plan_reassignment(gone, T0, None)])).leader == NO_LEADER


def test_cancelling_never_gives_up_the_last_replica_in_sync() -> None:
    begun = in_sync(moving(IMAGE, 3, 4), 3)
    with pytest.raises(ApiError, match="in sync on"):
        plan_reassignment(begun, T0, None)


def test_what_nobody_leads_keeps_a_replica_with_all_records() -> None:
    """The eligible replicas of a partition without one in sync, or else its last leader."""
    part = partition(0, -1, (1, 2, 3), isr=())._replace(adding=(BrokerId(3),), last_known_leader=BrokerId(1))
    for departed, eligible, is_left in (((1, 3), 2, True), ((3, 1), 1, False), ((1,), 0, True)):
        left = part._replace(departed=tuple(map(BrokerId, departed)), eligible_count=eligible)
        image = with_topic(cluster(2), "t", left)
        if is_left:
            now = only(apply(image, [plan_reassignment(image, T0, None)]))
            assert (now.replicas, now.isr, now.last_known_leader) == ((1, 2), (), 1)
        else:
            with pytest.raises(ApiError, match="alone"):
                plan_reassignment(image, T0, None)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, -2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_refusals(wanted: tuple[int, ...] | None, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        plan_reassignment(IMAGE, T0, wanted)
    assert refused.value.code is code


@pytest.mark.parametrize("wanted", [[1] * 25_000, [-1, *range(25_000)], list(range(10_000, 35_000))])
def test_refusals_name_few_of_many_replicas(wanted: list[int]) -> None:
    with pytest.raises(ApiError, match=r"and \d+ more") as refused:
        plan_reassignment(IMAGE, T0, wanted)
    assert len(str(refused.value)) < 250


def test_a_replica_that_stays_need_not_be_alive_now() -> None:
    part = only(moving(apply(IMAGE, [RemoveBroker(BrokerId(2))]), 3, 2))
    assert (part.target, part.adding) == ((3, 2), (3,))


def test_a_partition_that_is_not_there() -> None:
    with pytest.raises(UnknownTopicOrPartition):
        plan_reassignment(IMAGE, TopicPartition(T, PartitionId(1)), (1,))


def test_the_replication_factor_may_be_held() -> None:
    with pytest.raises(ApiError) as refused:
        plan_reassignment(IMAGE, T0, (3,), allow_replication_factor_change=False)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert plan_reassignment(IMAGE, T0, (3, 4), allow_replication_factor_change=False).partitions
