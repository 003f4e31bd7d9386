"""The controller's requests to brokers about new replicas, and about those that may be lost."""

from typing import Any
from uuid import UUID

from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.commands import CreateTopic, DeleteTopic, SetPartitions, apply
from ottla.cluster.commit_parts import without_state
from ottla.cluster.controller_requests import (
    ALL_STATES,
    EPOCH_WHEN_DELETED,
    SOME_STATES,
    Sender,
    own_changes,
    probe_requests,
    release_requests,
    requests_after,
)
from ottla.cluster.image import MetadataImage, TopicImage, empty_image
from ottla.cluster.reassignments import plan_reassignment
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName, TopicPartition
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.stop_replica import StopReplicaRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest

T = TopicName("t")
SENDER = Sender(BrokerId(1), 3, "PLAINTEXT")
BEFORE = cluster(1, 2, 3)
AFTER = with_topic(BEFORE, "t", partition(0, 1, (1, 2)), partition(1, 2, (2, 1)))


def told(requests: list[Any]) -> list[tuple[int, bool]]:
    """Partitions and whether they are new."""
    return [
        (state.partition_index, state.is_new)
        for request in requests
        if isinstance(request, LeaderAndIsrRequest)
        for topic in request.topic_states
        for state in topic.partition_states
    ]


def after(old: MetadataImage, new: MetadataImage, broker: int) -> list[tuple[int, bool]]:
    return told(requests_after(SENDER, old, new).get(BrokerId(broker), []))


def test_replicas_are_new_when_their_topic_is_or_when_they_are_added() -> None:
    assert after(BEFORE, AFTER, 2) == [(0, True), (1, True)]
    moving = apply(AFTER, [plan_reassignment(AFTER, TopicPartition(TopicName("t"), PartitionId(0)), [1, 3])])
    assert after(AFTER, moving, 3) == [(0, True)]
    assert after(AFTER, moving, 2) == [(0, False)]
    assert after(empty_image(""), moving, 3) == [(0, True)]  # another controller takes the move over


def test_a_broker_that_was_started_anew_is_not_told_that_what_it_held_is_new() -> None:
    """With a log directory missing it would make empty replicas."""
    assert after(empty_image(""), AFTER, 2) == [(0, False), (1, False)]


def test_a_replica_that_is_added_and_in_sync_is_not_new_any_more() -> None:
    """An empty one in its stead would be in sync, or lead."""
    part = partition(0, 1, (1, 3, 2), (1, 3, 2))._replace(adding=(BrokerId(3),), removing=(BrokerId(2),))
    assert after(empty_image(""), with_topic(BEFORE, "t", part), 3) == [(0, False)]
    behind = part._replace(isr=(BrokerId(1), BrokerId(2)))
    assert after(empty_image(""), with_topic(BEFORE, "t", behind), 3) == [(0, True)]


def test_what_has_no_state_yet_is_told_when_it_has_one() -> None:
    parts = AFTER.topics[TopicName("t")].partitions
    unled = with_topic(BEFORE, "t", *map(without_state, parts))
    assert after(BEFORE, unled, 2) == []
    led = apply(unled, [SetPartitions(TopicName("t"), parts)])
    assert after(unled, led, 2) == [(0, True), (1, True)]


def test_what_a_controller_gives_its_first_leader_when_it_begins_is_new() -> None:
    parts = AFTER.topics[TopicName("t")].partitions
    unled = with_topic(BEFORE, "t", parts[0], without_state(parts[1]))
    led = apply(unled, [SetPartitions(TopicName("t"), parts)])
    assert after(unled._replace(brokers={}), led, 2) == [(0, False), (1, True)]
    assert (1, True) not in after(unled._replace(brokers={}), unled, 2)


def test_a_broker_that_has_lost_a_directory_is_asked_about_all_it_holds() -> None:
    ((broker, requests),) = probe_requests(SENDER, AFTER, BrokerId(2)).items()
    assert (broker, told(list(requests))) == (2, [(0, False), (1, False)])
    (request,) = requests
    assert isinstance(request, LeaderAndIsrRequest)
    assert request.type == SOME_STATES != ALL_STATES
    assert probe_requests(SENDER, AFTER, BrokerId(3)) == {}
    assert probe_requests(SENDER, AFTER, BrokerId(9)) == {}


def stopped(requests: list[Any]) -> list[tuple[int, int, bool]]:
    """Partitions whose replicas are stopped, the leader epoch, and whether their files are deleted."""
    return [
        (state.partition_index, state.leader_epoch, state.delete_partition)
        for request in requests
        if isinstance(request, StopReplicaRequest)
        for topic in request.topic_states
        for state in topic.partition_states
    ]


def test_replicas_of_a_deleted_topic_are_deleted_where_they_are() -> None:
    sent = requests_after(SENDER, AFTER, apply(AFTER, [DeleteTopic(TopicName("t"))]))
    gone = [(0, EPOCH_WHEN_DELETED, True), (1, EPOCH_WHEN_DELETED, True)]
    assert {int(broker): stopped(list(requests)) for broker, requests in sent.items()} == {1: gone, 2: gone, 3: []}


def test_a_replica_that_has_moved_away_is_deleted_at_the_epoch_of_the_move() -> None:
    moved = partition(0, 1, (1, 3))._replace(leader_epoch=LeaderEpoch(6))
    sent = requests_after(SENDER, AFTER, apply(AFTER, [SetPartitions(TopicName("t"), (moved,))]))
    assert stopped(list(sent[BrokerId(2)])) == [(0, 6, True)]


def test_a_stopping_broker_stops_following_and_keeps_its_files() -> None:
    ((broker, requests),) = release_requests(SENDER, AFTER, BrokerId(2)).items()
    assert (broker, stopped(requests)) == (2, [(0, 5, False)])
    assert release_requests(SENDER, AFTER, BrokerId(3)) == {}
    assert release_requests(SENDER, AFTER, BrokerId(9)) == {}


def test_a_leader_under_a_quorum_learns_of_in_sync_sets_that_the_controller_has_changed() -> None:
    """Without a new leader epoch: its own proposals would be refused for good otherwise."""
    part = partition(0, 1, (1, 2), (1,))._replace(partition_epoch=5)
    shrunk = apply(AFTER, [SetPartitions(T, (part,))])

    def own(broker: int) -> list[tuple[int, bool]]:
        changes = own_changes(SENDER, AFTER.brokers[BrokerId(broker)], AFTER, shrunk, everything=False)
        return [] if changes.lead_and_follow is None else told([changes.lead_and_follow])

    assert own(1) == [(0, False)]
    assert own(2) == []


def test_a_stopping_broker_under_a_quorum_follows_only_what_it_is_in_sync_with() -> None:
    """It will not be in sync any more before it ends; it goes on to lead what nobody else can."""
    led = partition(0, 2, (1, 2), (2,))._replace(leader_epoch=LeaderEpoch(6))
    kept = partition(1, 1, (2, 1), (1,))._replace(leader_epoch=LeaderEpoch(6))
    handed_over = apply(AFTER, [SetPartitions(T, (led, kept))])
    one = AFTER.brokers[BrokerId(1)]
    before = own_changes(SENDER, one, AFTER, handed_over, everything=False)
    assert before.lead_and_follow is not None
    assert told([before.lead_and_follow]) == [(0, False), (1, False)]
    assert before.stop is None
    stopping = own_changes(SENDER, one, AFTER, handed_over, everything=False, is_stopping=True)
    assert stopping.lead_and_follow is not None
    assert told([stopping.lead_and_follow]) == [(1, False)]
    assert stopping.stop is not None
    assert stopped([stopping.stop]) == [(0, 6, False)]
    gone = own_changes(SENDER, one, AFTER, apply(AFTER, [DeleteTopic(T)]), everything=False, is_stopping=True)
    assert gone.stop is not None
    assert stopped([gone.stop]) == [(0, EPOCH_WHEN_DELETED, True), (1, EPOCH_WHEN_DELETED, True)]


def test_a_broker_under_a_quorum_tries_again_what_it_lost_when_a_leader_confirms() -> None:
    """A confirmation changes nothing else, and followers need not hear of it otherwise."""
    topic_id = AFTER.topics[T].topic_id
    part = AFTER.topics[T].partitions[0]
    begun = apply(AFTER, [SetPartitions(T, (part._replace(last_known_leader=BrokerId(2)),))])
    confirmed = apply(AFTER, [SetPartitions(T, (part._replace(partition_epoch=part.partition_epoch + 1),))])

    def own(new: MetadataImage, lost: set[tuple[UUID, int]]) -> list[tuple[int, bool]]:
        changes = own_changes(SENDER, AFTER.brokers[BrokerId(2)], begun, new, everything=False, lost=lost)
        return [] if changes.lead_and_follow is None else told([changes.lead_and_follow])

    assert own(confirmed, {(topic_id, 0)}) == [(0, False)]
    assert own(confirmed, set()) == []
    assert own(begun, {(topic_id, 0), (topic_id, 7), (UUID(int=77), 0)}) == []


def test_a_broker_under_a_quorum_tries_again_what_is_due_without_a_change() -> None:
    topic_id = AFTER.topics[T].topic_id
    due = [(topic_id, 1), (UUID(int=77), 0)]
    two = AFTER.brokers[BrokerId(2)]
    lost = {(topic_id, 0), *due}
    changes = own_changes(SENDER, two, AFTER, AFTER, everything=False, lost=lost, due=due)
    assert changes.lead_and_follow is not None
    assert told([changes.lead_and_follow]) == [(1, False)]


def test_a_broker_under_a_quorum_derives_its_own_part_of_a_change() -> None:
    two, three = BEFORE.brokers[BrokerId(2)], BEFORE.brokers[BrokerId(3)]
    begun = own_changes(SENDER, two, BEFORE, AFTER, everything=False)
    assert begun.lead_and_follow is not None
    assert told([begun.lead_and_follow]) == [(0, True), (1, True)]
    assert own_changes(SENDER, three, BEFORE, AFTER, everything=False) == (None, None, [])
    assert set(begun.partitions or ()) == {(AFTER.topics[T].topic_id, number) for number in (0, 1)}
    started = own_changes(SENDER, two, AFTER, AFTER, everything=True)
    assert started.lead_and_follow is not None
    assert started.partitions is None
    assert started.lead_and_follow.type == ALL_STATES
    gone = own_changes(SENDER, two, AFTER, apply(AFTER, [DeleteTopic(T)]), everything=False)
    assert gone.lead_and_follow is None
    assert gone.stop is not None
    assert [state.leader_epoch for topic in gone.stop.topic_states for state in topic.partition_states] == [
        EPOCH_WHEN_DELETED,
        EPOCH_WHEN_DELETED,
    ]


def test_a_leader_under_a_quorum_learns_of_each_partition_epoch() -> None:
    """Its proposal with an older one was refused, and stands until it knows the newer one."""
    led, other = AFTER.topics[T].partitions
    later = led._replace(partition_epoch=led.partition_epoch + 1, last_known_leader=BrokerId(1))
    after = apply(AFTER, [SetPartitions(T, (later,))])
    leader, follower = (AFTER.brokers[number] for number in (led.leader, other.leader))
    changes = own_changes(SENDER, leader, AFTER, after, everything=False)
    assert changes.lead_and_follow is not None
    assert told([changes.lead_and_follow]) == [(0, False)]
    assert own_changes(SENDER, follower, AFTER, after, everything=False).lead_and_follow is None


def test_a_topic_that_was_deleted_and_created_again_is_stopped_before_it_is_held() -> None:
    """Replicas are stopped by name: afterwards, the new one would be deleted."""
    gone = apply(AFTER, [DeleteTopic(T)])
    topic = TopicImage(T, TopicId(UUID(int=555)), (partition(0, 2, (2, 3)),))
    again = apply(gone, [CreateTopic(topic, {})])
    two, three = (AFTER.brokers[BrokerId(number)] for number in (2, 3))
    # Under a quorum, to hold the new replica removes the old one.
    own = own_changes(SENDER, two, AFTER, again, everything=False)
    assert own.lead_and_follow is not None
    assert told([own.lead_and_follow]) == [(0, True)]
    assert own.stop is not None
    assert stopped([own.stop]) == [(1, EPOCH_WHEN_DELETED, True)]
    assert own_changes(SENDER, three, AFTER, again, everything=False).stop is None
    # A broker with ZooKeeper may be genuine Kafka, which refuses a topic with another id.
    requests = requests_after(SENDER, AFTER, again)[BrokerId(2)]
    kinds = [type(each) for each in requests if not isinstance(each, UpdateMetadataRequest)]
    assert kinds == [StopReplicaRequest, LeaderAndIsrRequest]
    assert stopped(list(requests)) == [(0, EPOCH_WHEN_DELETED, True), (1, EPOCH_WHEN_DELETED, True)]
