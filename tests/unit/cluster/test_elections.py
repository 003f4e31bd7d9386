"""Who leads when brokers come, go and stop."""

from collections.abc import Iterable

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.commands import RegisterBroker, RemoveBroker, SetPartitions, apply
from ottla.cluster.controller import ElectionType
from ottla.cluster.elections import (
    NO_OUTAGES,
    Outages,
    Unclean,
    elect_where_needed,
    led_by,
    plan_election,
    renew_after_restarts,
    return_to_preferred,
)
from ottla.cluster.image import NO_LEADER, NOT_YET_LED, BrokerImage, MetadataImage, PartitionImage
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import BrokerId, PartitionId, TopicName, TopicPartition

T = TopicName("t")


def three(*partitions: PartitionImage) -> MetadataImage:
    return with_topic(cluster(1, 2, 3), "t", *partitions)


def without(image: MetadataImage, *brokers: int) -> MetadataImage:
    return apply(image, [RemoveBroker(BrokerId(broker)) for broker in brokers])


def elected(image: MetadataImage, outages: Outages = NO_OUTAGES, *, unclean: bool = False) -> PartitionImage:
    found = elect_where_needed(image, outages, lambda topic: unclean)
    return apply(image, found.changes).topics[T].partitions[0]


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def test_the_first_replica_in_sync_that_is_alive_leads_next_in_a_new_epoch() -> None:
    before = partition(0, 1, (1, 2, 3), isr=(1, 3, 2))
    after = elected(without(three(before), 1))
    assert (after.leader, after.isr) == (2, (3, 2))
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1


def test_a_follower_that_goes_leaves_the_in_sync_set() -> None:
    after = elected(without(three(partition(0, 1, (1, 2, 3))), 3))
    assert (after.leader, after.isr) == (1, (1, 2))


def test_a_partition_whose_replicas_are_fine_is_left_alone() -> None:
    image = three(partition(0, 1, (1, 2)), partition(1, 2, (2, 1), isr=(2,)))
    assert elect_where_needed(without(image, 3), NO_OUTAGES, lambda topic: True).changes == []


def test_without_a_replica_in_sync_nobody_leads_and_the_in_sync_set_stays() -> None:
    image = without(three(partition(0, 1, (1, 2), isr=(1,))), 1)
    after = elected(image)
    assert (after.leader, after.isr) == (NO_LEADER, (1,))
    again = apply(image, elect_where_needed(image, NO_OUTAGES, lambda topic: False).changes)
    assert elect_where_needed(again, NO_OUTAGES, lambda topic: False).changes == []


def test_who_led_is_waited_for_when_all_in_sync_go_at_once() -> None:
    """The power may have failed, and the leader alone has synced what was committed: a follower that is back first
    would have it truncate that away."""
    gone = without(three(partition(0, 2, (1, 2, 3), isr=(1, 2))), 1, 2)
    after = elected(gone)
    assert (after.leader, after.isr) == (NO_LEADER, (2,))
    changes = elect_where_needed(gone, NO_OUTAGES, lambda topic: False).changes
    first_back = apply(without(three(partition(0, 2, (1, 2, 3), isr=(1, 2))), 2), changes)
    assert elected(first_back).leader == NO_LEADER
    all_back = apply(three(partition(0, 2, (1, 2, 3), isr=(1, 2))), changes)
    assert (elected(all_back).leader, elected(all_back).isr) == (2, (2,))


def test_an_unclean_election_says_so() -> None:
    image = without(three(partition(0, 1, (1, 2), isr=(1,))), 1)
    found = elect_where_needed(image, NO_OUTAGES, lambda topic: topic == T)
    assert found.unclean == [Unclean(TopicPartition(T, PartitionId(0)), BrokerId(2), ids(1))]
    assert elected(image, unclean=True).isr == (2,)


def test_the_last_in_sync_replica_leads_when_it_comes_back() -> None:
    image = without(three(partition(0, 1, (1, 2), isr=(1,))), 1)
    orphaned = apply(image, elect_where_needed(image, NO_OUTAGES, lambda topic: False).changes)
    back = apply(orphaned, [RegisterBroker(BrokerImage(BrokerId(1), 9, None, {}))])
    assert elected(back).leader == 1


def test_a_stopping_broker_hands_over_and_leaves_the_in_sync_sets() -> None:
    stopping = Outages(stopping=frozenset(ids(1)))
    assert elected(three(partition(0, 1, (1, 2, 3))), stopping)[1:5] == (2, 6, (1, 2, 3), (2, 3))
    assert elected(three(partition(0, 2, (1, 2, 3))), stopping).isr == (2, 3)


def test_a_silent_broker_is_left_out_before_its_session_ends() -> None:
    silent = Outages(silent=frozenset(ids(1)))
    assert elected(three(partition(0, 1, (1, 2, 3))), silent)[1:5] == (2, 6, (1, 2, 3), (2, 3))
    assert elected(three(partition(0, 2, (1, 2, 3))), silent).isr == (2, 3)
    alone = three(partition(0, 1, (1, 2), isr=(1,)))
    assert elect_where_needed(alone, silent, lambda topic: True).changes == []


def test_a_stopping_broker_goes_on_where_nobody_can_take_over() -> None:
    image = three(partition(0, 1, (1, 2), isr=(1,)))
    stopping = Outages(stopping=frozenset(ids(1)))
    assert elect_where_needed(image, stopping, lambda topic: True).changes == []
    assert list(led_by(image, BrokerId(1)))


def test_a_stopping_broker_leads_what_else_nobody_would() -> None:
    image = three(partition(0, 3, (1, 3), isr=(1, 3)))
    after = elected(without(image, 3), Outages(stopping=frozenset(ids(1))))
    assert (after.leader, after.isr) == (1, (1,))


def test_a_failed_log_directory_takes_only_its_replicas() -> None:
    image = three(partition(0, 1, (1, 2)), partition(1, 1, (1, 2)))
    failed = Outages(offline=frozenset({(BrokerId(1), T, PartitionId(1))}))
    (change,) = elect_where_needed(image, failed, lambda topic: False).changes
    assert [(part.partition, part.leader, part.isr) for part in change.partitions] == [(1, 2, (2,))]


def test_a_partition_that_was_never_led_begins_with_all_that_are_alive() -> None:
    fresh = partition(0, -1, (1, 2, 3), isr=())._replace(partition_epoch=NOT_YET_LED)
    after = elected(without(three(fresh), 2))
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (1, (1, 3), 0, 0)


def test_only_the_topics_that_were_touched_are_looked_at() -> None:
    image = without(with_topic(three(partition(0, 1, (1, 2))), "u", partition(0, 1, (1, 2))), 1)
    (change,) = elect_where_needed(image, NO_OUTAGES, lambda topic: False, [TopicName("u")]).changes
    assert change.topic == "u"


@pytest.mark.parametrize(
    ("tolerated", "outages", "moved"),
    [
        (10.0, NO_OUTAGES, [0, 1]),
        (70.0, NO_OUTAGES, []),
        (10.0, Outages(stopping=frozenset(ids(1))), []),
        (10.0, Outages(offline=frozenset({(BrokerId(1), T, PartitionId(0))})), [1]),
    ],
)
def test_leadership_returns_where_a_broker_has_lost_too_much_of_it(
    tolerated: float, outages: Outages, moved: Iterable[int]
) -> None:
    image = three(
        partition(0, 2, (1, 2)),
        partition(1, 3, (1, 3)),
        partition(2, 1, (1, 2)),
        partition(3, 2, (3, 2), isr=(2,)),
    )
    changes = return_to_preferred(image, outages, tolerated)
    assert [part.partition for change in changes for part in change.partitions] == list(moved)
    assert all(part.leader == 1 for change in changes for part in change.partitions)


def test_leadership_does_not_return_while_a_partition_is_moved() -> None:
    moving = partition(0, 2, (1, 2))._replace(adding=ids(1))
    assert return_to_preferred(three(moving), NO_OUTAGES, 0) == []


# -- as somebody asks


def elect(
    image: MetadataImage, election: ElectionType, number: int = 0, outages: Outages = NO_OUTAGES
) -> SetPartitions | ErrorCode:
    try:
        return plan_election(image, outages, TopicPartition(T, PartitionId(number)), election)
    except OttlaError as refused:
        return refused.code


def test_the_preferred_leader_takes_over() -> None:
    image = with_topic(cluster(1, 2), "t", partition(0, 2, (1, 2)))
    planned = elect(image, ElectionType.PREFERRED)
    assert isinstance(planned, SetPartitions)
    (part,) = planned.partitions
    assert (part.leader, part.leader_epoch, part.partition_epoch, part.isr) == (1, 6, 10, (1, 2))
    assert elect(image, ElectionType.UNCLEAN) is ErrorCode.ELECTION_NOT_NEEDED
    assert elect(image, ElectionType.PREFERRED, 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_preferred_leader_must_be_alive_and_in_sync() -> None:
    lagging = with_topic(cluster(1, 2), "t", partition(0, 2, (1, 2), isr=(2,)))
    assert elect(lagging, ElectionType.PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    dead = with_topic(cluster(2), "t", partition(0, 2, (1, 2)))
    assert elect(dead, ElectionType.PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unclean_election_prefers_who_is_in_sync() -> None:
    in_sync = with_topic(cluster(2, 3), "t", partition(0, NO_LEADER, (3, 1, 2), isr=(1, 2)))
    planned = elect(in_sync, ElectionType.UNCLEAN)
    assert isinstance(planned, SetPartitions)
    assert (planned.partitions[0].leader, planned.partitions[0].isr) == (2, (2,))
    lagging = with_topic(cluster(3), "t", partition(0, NO_LEADER, (1, 3), isr=(1,)))
    planned = elect(lagging, ElectionType.UNCLEAN)
    assert isinstance(planned, SetPartitions)
    assert (planned.partitions[0].leader, planned.partitions[0].isr) == (3, (3,))
    nobody = with_topic(cluster(9), "t", partition(0, NO_LEADER, (1, 3)))
    assert elect(nobody, ElectionType.UNCLEAN) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_nobody_is_elected_whose_disk_has_failed_or_who_stops() -> None:
    image = three(partition(0, 2, (1, 2, 3)))
    failed = Outages(offline=frozenset({(BrokerId(1), T, PartitionId(0))}))
    stopping = Outages(stopping=frozenset({BrokerId(1)}))
    for outages in (failed, stopping):
        assert elect(image, ElectionType.PREFERRED, outages=outages) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        planned = elect(three(partition(0, NO_LEADER, (1, 2, 3))), ElectionType.UNCLEAN, outages=outages)
        assert isinstance(planned, SetPartitions)
        assert (planned.partitions[0].leader, planned.partitions[0].isr) == (2, (2, 3))


# -- restarts that nobody saw


def restarted(image: MetadataImage, *brokers: int) -> MetadataImage:
    """All have epoch 1; these have 20."""
    return image._replace(
        brokers={
            number: broker._replace(epoch=20) if number in brokers else broker
            for number, broker in image.brokers.items()
        }
    )


def renewed(image: MetadataImage, modified: int = 10) -> PartitionImage:
    changes = renew_after_restarts(image, lambda topic, number: modified)
    return apply(image, changes).topics[T].partitions[0]


def test_a_leader_that_was_started_anew_leads_in_a_new_epoch() -> None:
    before = three(partition(0, 2, (1, 2, 3)))
    assert renewed(before) == partition(0, 2, (1, 2, 3))
    after = renewed(restarted(before, 2))
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (1, 2, 3))
    assert renewed(restarted(before, 2), modified=21) == partition(0, 2, (1, 2, 3))


def test_a_follower_that_was_started_anew_is_not_in_sync_unless_it_is_the_last() -> None:
    before = three(partition(0, 2, (1, 2, 3)))
    after = renewed(restarted(before, 3, 2))
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (1, 2))
    alone = renewed(restarted(without(before, 1, 2), 3))  # the power has failed everywhere, and who led is not back yet
    assert (alone.leader, alone.isr) == (2, (1, 2))
    last = three(partition(0, NO_LEADER, (1, 2, 3), isr=(1, 3)))
    assert renewed(restarted(without(last, 1), 3)) == partition(0, NO_LEADER, (1, 2, 3), isr=(1, 3))


def full(*brokers: int) -> Outages:
    """The replicas of partition 0 on these brokers have no room."""
    return Outages(full=frozenset((BrokerId(broker), T, PartitionId(0)) for broker in brokers))


def test_a_replica_without_room_is_relieved_where_others_are_in_sync() -> None:
    leads = elected(three(partition(0, 1, (1, 2, 3))), full(1))
    assert (leads.leader, leads.isr) == (2, (2, 3))
    follows = elected(three(partition(0, 1, (1, 2, 3))), full(2))
    assert (follows.leader, follows.isr) == (1, (1, 3))


@pytest.mark.parametrize("brokers", [(1,), (1, 2)])
def test_the_last_ones_in_sync_stay_though_they_have_no_room(brokers: tuple[int, ...]) -> None:
    """Even where a leader that lacks records would be allowed."""
    before = partition(0, 1, (1, 2, 3), isr=brokers)
    assert elected(three(before), full(*brokers), unclean=True) == before


def test_a_replica_without_room_and_without_some_records_leads_if_an_operator_asks_and_no_other_is_there() -> None:
    image = three(partition(0, NO_LEADER, (1, 2, 3), isr=(1,)))
    others = elect(without(image, 1), ElectionType.UNCLEAN, outages=full(2))
    assert isinstance(others, SetPartitions)
    assert others.partitions[0].leader == 3
    alone = elect(without(image, 1, 3), ElectionType.UNCLEAN, outages=full(2))
    assert isinstance(alone, SetPartitions)
    assert (alone.partitions[0].leader, alone.partitions[0].begins_anew) == (2, False)
    stops = Outages(stopping=frozenset({BrokerId(2)}))
    refused = elect(without(image, 1, 3), ElectionType.UNCLEAN, outages=stops)
    assert refused is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_a_replica_without_room_is_not_preferred() -> None:
    image = three(partition(0, 2, (1, 2, 3)))
    assert return_to_preferred(image, full(1), 10) == []
    assert return_to_preferred(image, NO_OUTAGES, 10) != []
    with pytest.raises(OttlaError) as refused:
        plan_election(image, full(1), TopicPartition(T, PartitionId(0)), ElectionType.PREFERRED)
    assert refused.value.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
