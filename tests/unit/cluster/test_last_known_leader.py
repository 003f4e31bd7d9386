"""Who is elected may be dead already: who led before is remembered until it has confirmed that it leads."""

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.commands import RegisterBroker, RemoveBroker, SetPartitions, apply
from ottla.cluster.controller import ElectionType
from ottla.cluster.controller_requests import RECOVERED, RECOVERING, Sender, requests_after
from ottla.cluster.elections import (
    NO_OUTAGES,
    Outages,
    elect_where_needed,
    plan_election,
    renew_after_restarts,
    return_to_preferred,
)
from ottla.cluster.image import NO_LEADER, MetadataImage, PartitionImage
from ottla.cluster.isr_changes import IsrChange, plan_isr_change
from ottla.cluster.reassignments import finish_reassignments, plan_reassignment
from ottla.ids import BrokerId, PartitionId, TopicName, TopicPartition
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest

T = TopicName("t")
T0 = TopicPartition(T, PartitionId(0))
THREE = with_topic(cluster(1, 2, 3, confirm=True), "t", partition(0, 1, (1, 2, 3)))


def only(image: MetadataImage) -> PartitionImage:
    return image.topics[T].partitions[0]


def with_state(image: MetadataImage, part: PartitionImage) -> MetadataImage:
    return apply(image, [SetPartitions(T, (part,))])


def gone(image: MetadataImage, *brokers: int, outages: Outages = NO_OUTAGES, unclean: bool = False) -> MetadataImage:
    """The image when these are gone, and what follows from that is decided."""
    left = apply(image, [RemoveBroker(BrokerId(broker)) for broker in brokers])
    return apply(left, elect_where_needed(left, outages, lambda topic: unclean).changes)


def back(image: MetadataImage, *brokers: int) -> MetadataImage:
    """The image when these are there again, started anew."""
    there = apply(image, [RegisterBroker(THREE.brokers[BrokerId(broker)]._replace(epoch=20)) for broker in brokers])
    return apply(there, elect_where_needed(there, NO_OUTAGES, lambda topic: False).changes)


def confirmed(image: MetadataImage) -> MetadataImage:
    part = only(image)
    change = IsrChange(
        part.leader,
        image.topics[T].topic_id,
        0,
        part.leader_epoch,
        part.partition_epoch,
        part.isr,
        (-1,) * len(part.isr),
    )
    return apply(image, [plan_isr_change(image, NO_OUTAGES, change)])


def story(image: MetadataImage) -> tuple[int, tuple[int, ...], int]:
    part = only(image)
    return part.leader, part.isr, part.last_known_leader


def test_who_led_is_remembered_until_its_successor_has_confirmed_that_it_leads() -> None:
    elected = gone(THREE, 1)
    assert story(elected) == (2, (2, 3), 1)
    after = confirmed(elected)
    assert story(after) == (2, (2, 3), NO_LEADER)
    assert only(after).leader_epoch == only(elected).leader_epoch
    assert only(after).partition_epoch == only(elected).partition_epoch + 1
    assert story(confirmed(after)) == story(after)


def test_who_led_is_waited_for_when_those_that_were_elected_go_without_a_word() -> None:
    """The power has failed everywhere, and sessions end one after the other: nobody but broker 1 has led."""
    chosen = gone(THREE, 1)
    assert story(gone(chosen, 2)) == (3, (3,), 1)
    nobody = gone(gone(chosen, 2), 3)
    assert story(nobody) == (NO_LEADER, (1,), NO_LEADER)
    assert story(back(nobody, 3, 2)) == (NO_LEADER, (1,), NO_LEADER)
    assert story(back(back(nobody, 3), 1)) == (1, (1,), NO_LEADER)


def test_who_has_confirmed_is_waited_for_instead_of_who_led_before() -> None:
    nobody = gone(gone(gone(THREE, 3), 1), 2)
    assert story(nobody) == (NO_LEADER, (1,), NO_LEADER)
    led = confirmed(gone(gone(THREE, 3), 1))
    assert story(gone(led, 2)) == (NO_LEADER, (2,), NO_LEADER)


def test_who_led_leads_again_if_it_is_back_when_its_successor_goes_without_a_word() -> None:
    two = back(gone(gone(THREE, 3), 1), 1)
    assert story(two) == (2, (2,), 1)
    assert story(gone(two, 2)) == (1, (1,), NO_LEADER)


def test_an_election_that_is_asked_for_is_to_be_confirmed_too() -> None:
    away = with_state(THREE, partition(0, 2, (1, 2, 3)))
    asked = apply(away, [plan_election(away, NO_OUTAGES, T0, ElectionType.PREFERRED)])
    assert story(asked) == (1, (1, 2, 3), 2)
    assert story(apply(away, return_to_preferred(away, NO_OUTAGES, 10))) == (1, (1, 2, 3), 2)
    back_again = apply(asked, [SetPartitions(T, (only(gone(asked, 1)),))])
    assert story(back_again) == (2, (2, 3), NO_LEADER)


def test_brokers_that_do_not_confirm_are_believed() -> None:
    """Those of Kafka."""
    image = with_topic(cluster(1, 2, 3), "t", partition(0, 1, (1, 2, 3)))
    assert story(gone(image, 1)) == (2, (2, 3), NO_LEADER)


def test_whose_disk_has_failed_is_not_waited_for() -> None:
    offline = Outages(offline=frozenset({(BrokerId(1), T, PartitionId(0))}))
    after = apply(THREE, elect_where_needed(THREE, offline, lambda topic: False).changes)
    assert story(after) == (2, (2, 3), NO_LEADER)
    lonely = gone(gone(THREE, 3), 1)
    assert story(gone(back(lonely, 1), 2, outages=offline)) == (NO_LEADER, (2,), NO_LEADER)


def test_an_unclean_election_forgets_who_led() -> None:
    lonely = back(gone(gone(THREE, 3), 1), 3)
    assert story(gone(lonely, 2, unclean=True)) == (3, (3,), NO_LEADER)
    nobody = gone(lonely, 2)
    asked = plan_election(nobody, NO_OUTAGES, T0, ElectionType.UNCLEAN)
    assert story(apply(nobody, [asked])) == (3, (3,), NO_LEADER)


def test_an_election_that_may_be_unclean_is_not_where_who_led_is_there() -> None:
    left = apply(back(gone(gone(THREE, 3), 1), 1, 3), [RemoveBroker(BrokerId(2))])
    asked = plan_election(left, NO_OUTAGES, T0, ElectionType.UNCLEAN)
    assert story(apply(left, [asked])) == (1, (1,), NO_LEADER)


def test_nothing_is_reported_lost_when_the_one_that_led_last_leads_again() -> None:
    left = apply(back(gone(gone(THREE, 3), 1), 1, 3), [RemoveBroker(BrokerId(2))])
    again = elect_where_needed(left, NO_OUTAGES, lambda topic: False)
    assert story(apply(left, again.changes)) == (1, (1,), NO_LEADER)
    assert again.unclean == []


def renewed(image: MetadataImage) -> MetadataImage:
    return apply(image, renew_after_restarts(image, lambda topic, number: 10))


def restarted(image: MetadataImage, *brokers: int) -> MetadataImage:
    return apply(image, [RegisterBroker(THREE.brokers[BrokerId(broker)]._replace(epoch=20)) for broker in brokers])


def test_who_has_restarted_before_it_confirmed_has_never_led() -> None:
    """No controller has seen it go: it has lost what it had not synced, and confirms nothing in that epoch."""
    chosen = gone(THREE, 1)
    assert story(renewed(restarted(chosen, 2))) == (3, (3,), 1)
    alone = gone(gone(THREE, 3), 1)
    assert story(renewed(restarted(alone, 2))) == (NO_LEADER, (1,), NO_LEADER)
    assert story(renewed(restarted(alone, 2, 1))) == (1, (1,), NO_LEADER)
    assert story(renewed(restarted(confirmed(alone), 2))) == (2, (2,), NO_LEADER)
    assert story(renewed(restarted(chosen, 3))) == (2, (2,), 1)


def test_a_reassignment_ends_when_the_new_leader_has_confirmed() -> None:
    """Who has led goes then, with its disk."""
    moving = apply(THREE, [plan_reassignment(THREE, T0, [2, 3])])
    assert story(moving) == (1, (1, 2, 3), NO_LEADER)
    moved = apply(moving, finish_reassignments(moving, NO_OUTAGES, moving.topics.values()))
    assert story(moved) == (2, (1, 2, 3), 1)
    assert only(moved).removing == (1,)
    assert finish_reassignments(moved, NO_OUTAGES, moved.topics.values()) == []
    sure = confirmed(moved)
    ended = apply(sure, finish_reassignments(sure, NO_OUTAGES, sure.topics.values()))
    assert story(ended) == (2, (2, 3), NO_LEADER)
    assert (only(ended).replicas, only(ended).is_reassigned) == ((2, 3), False)


def test_who_holds_no_replica_any_more_is_not_waited_for() -> None:
    added = apply(THREE, [plan_reassignment(THREE, T0, [1, 2])])
    chosen = gone(added, 1)
    assert story(chosen) == (2, (2, 3), 1)
    assert story(apply(chosen, [plan_reassignment(chosen, T0, [2, 3])])) == (2, (2, 3), 1)
    dropped = with_state(chosen, only(chosen)._replace(adding=(BrokerId(1),), removing=()))
    cancelled = apply(dropped, [plan_reassignment(dropped, T0, None)])
    assert (story(cancelled), only(cancelled).replicas) == ((2, (2, 3), NO_LEADER), (2, 3))


def states(old: MetadataImage, new: MetadataImage, broker: int) -> list[int]:
    planned = requests_after(Sender(BrokerId(3), 1, "PLAINTEXT"), old, new).get(BrokerId(broker), [])
    return [
        state.leader_recovery_state
        for request in planned
        if isinstance(request, LeaderAndIsrRequest)
        for topic in request.topic_states
        for state in topic.partition_states
    ]


def test_the_new_leader_is_told_that_it_has_to_confirm_and_nobody_that_it_has() -> None:
    elected = gone(THREE, 1)
    assert states(THREE, elected, 2) == [RECOVERING]
    assert requests_after(Sender(BrokerId(3), 1, "PLAINTEXT"), elected, confirmed(elected)) == {}
    assert states(with_topic(cluster(3), "other"), confirmed(elected), 2) == [RECOVERED]


@pytest.mark.parametrize("isr", [(2,), (2, 3)])
def test_whatever_the_new_leader_changes_confirms_that_it_leads(isr: tuple[int, ...]) -> None:
    elected = gone(THREE, 1)
    part = only(elected)
    change = IsrChange(
        BrokerId(2),
        elected.topics[T].topic_id,
        0,
        part.leader_epoch,
        part.partition_epoch,
        tuple(map(BrokerId, isr)),
        (-1,) * len(isr),
    )
    assert story(apply(elected, [plan_isr_change(elected, NO_OUTAGES, change)])) == (2, isr, NO_LEADER)
