"""Who has everything, though it is not in sync any more; and who leads when the disks of those in sync are lost."""

from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.commands import RemoveBroker, SetPartitions, apply
from ottla.cluster.controller import ElectionType, with_leader
from ottla.cluster.controller_requests import Sender, requests_after, requests_to_follow, waiting_to_follow
from ottla.cluster.departures import forget_eligible, note_departures, with_departures, without_unclean
from ottla.cluster.elections import NO_OUTAGES, Outages, elect_where_needed, plan_election
from ottla.cluster.image import ELIGIBLE_LEADER_REPLICAS, NO_LEADER, MetadataImage, PartitionImage, Replica
from ottla.ids import BrokerId, PartitionId, TopicId, TopicName, TopicPartition
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, Node
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.slices import run_at_once

T = TopicName("t")
T0 = TopicPartition(T, PartitionId(0))
SENDER = Sender(BrokerId(1), 3, "PLAINTEXT")
START = partition(0, 3, (1, 2, 3))


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def shrunk(before: PartitionImage, *isr: int, lost: tuple[int, ...] = (), min_in_sync: int = 2) -> PartitionImage:
    return with_departures(before, before._replace(isr=ids(*isr)), ids(*lost), min_in_sync)


LAST = shrunk(shrunk(START, 2, 3), 3)
"""Only 3 is in sync; 2 left last, and has all that is committed."""


def lost(*brokers: int) -> Outages:
    return Outages(offline=frozenset((broker, T, PartitionId(0)) for broker in ids(*brokers)))


def image_of(part: PartitionImage, *alive: int) -> MetadataImage:
    whole = with_topic(cluster(1, 2, 3, confirm=True), "t", part)
    return apply(whole, [RemoveBroker(broker) for broker in ids(1, 2, 3) if broker not in alive])


def elected(part: PartitionImage, outages: Outages, *alive: int, unclean: bool = False) -> PartitionImage:
    image = image_of(part, *alive)
    found = elect_where_needed(image, outages, lambda topic: unclean)
    after = apply(image, run_at_once(note_departures(image, found.changes, outages.offline, lambda topic: 2)))
    return after.topics[T].partitions[0]


def test_replicas_are_remembered_in_the_order_in_which_they_leave() -> None:
    assert (shrunk(START, 2, 3).departed, shrunk(START, 2, 3).eligible) == (ids(1), ())
    assert (LAST.departed, LAST.eligible) == (ids(2, 1), ids(2))
    assert shrunk(shrunk(START, 2, 3, min_in_sync=1), 3, min_in_sync=1).eligible == ()


def test_who_comes_back_into_sync_is_remembered_no_longer() -> None:
    assert (shrunk(LAST, 3, 1).departed, shrunk(LAST, 3, 1).eligible) == (ids(2), ())
    assert shrunk(LAST, 3, 1, min_in_sync=3).eligible == ids(2)
    assert shrunk(LAST, 1, 2, 3).departed == ()


def test_what_is_lost_is_not_remembered() -> None:
    assert shrunk(shrunk(START, 2, 3), 3, lost=(2,)).departed == ids(1)


def test_the_one_that_has_everything_leads_when_the_disk_of_the_last_one_in_sync_is_lost() -> None:
    after = elected(LAST, lost(3), 1, 2, 3)
    assert (after.leader, after.isr, after.departed, after.eligible) == (2, (2,), ids(1), ())
    image = image_of(LAST, 1, 2, 3)
    assert elect_where_needed(image, lost(3), lambda topic: False).unclean == []


def test_the_last_one_in_sync_is_waited_for_as_long_as_it_may_have_everything() -> None:
    assert elected(LAST, NO_OUTAGES, 1, 2).leader == NO_LEADER
    assert elected(LAST, lost(3), 1, 2).leader == NO_LEADER  # it said so before it died, of another disk perhaps
    assert elected(LAST, lost(3), 1, 3).leader == NO_LEADER  # 1 lacks what 2 and 3 have committed
    assert elected(LAST, lost(2, 3), 1, 2, 3).leader == NO_LEADER
    sure = LAST._replace(leader=NO_LEADER, last_known_leader=BrokerId(1))
    assert elected(sure, lost(3), 2, 3).leader == NO_LEADER


def test_an_operator_gets_the_one_that_left_last_and_an_empty_one_only_as_a_last_resort() -> None:
    def chosen(outages: Outages, *alive: int) -> PartitionImage:
        return plan_election(image_of(led_by_nobody, *alive), outages, T0, ElectionType.UNCLEAN).partitions[0]

    led_by_nobody = shrunk(shrunk(START, 1, 3, min_in_sync=1), 3, min_in_sync=1)._replace(leader=NO_LEADER)
    assert led_by_nobody.departed == ids(1, 2)
    assert chosen(lost(3), 1, 2, 3).leader == 1
    assert chosen(lost(3), 2, 3).leader == 2
    anew = chosen(lost(3), 3)
    assert (anew.leader, anew.isr, anew.begins_anew) == (3, (3,), True)
    assert not with_leader(image_of(anew, 3), anew, BrokerId(3), ids(3)).begins_anew


def test_unclean_elections_take_what_lacks_least_and_nothing_that_is_empty() -> None:
    led_by_nobody = shrunk(shrunk(START, 1, 3, min_in_sync=1), 3, min_in_sync=1)._replace(leader=NO_LEADER)
    assert elected(led_by_nobody, lost(3), 2, 1, 3, unclean=True).leader == 1
    assert elected(led_by_nobody, lost(3), 3, unclean=True).leader == NO_LEADER


def test_a_lower_minimum_makes_nobody_eligible() -> None:
    image = image_of(LAST, 1, 2, 3)
    assert forget_eligible(image, lambda topic: 2) == []
    changes = forget_eligible(image, lambda topic: 1)
    noted = run_at_once(note_departures(image, changes, frozenset(), lambda topic: 1))
    after = apply(image, noted).topics[T].partitions[0]
    assert (after.eligible, after.departed, after.leader_epoch) == ((), ids(2, 1), LAST.leader_epoch + 1)


def test_brokers_hear_nothing_of_departures_and_the_store_keeps_them() -> None:
    image = image_of(LAST._replace(departed=(), eligible_count=0), 1, 2, 3)
    noted = apply(image, [SetPartitions(T, (LAST,))])
    assert requests_after(SENDER, image, noted) == {} or all(
        not isinstance(request, LeaderAndIsrRequest)
        for requests in requests_after(SENDER, image, noted).values()
        for request in requests
    )
    part = LAST._replace(begins_anew=True)
    operations = layout.operations_for([SetPartitions(T, (part,))], noted, {}, controller_epoch=1, now_ms=0)
    (state,) = [each for each in operations if isinstance(each, Create) and each.path.endswith("/state")]
    topic = noted.topics[T]
    nodes = {
        f"/brokers/topics/{T}": Node(layout._topic_node(topic), 0, 1, 1),
        layout.state_path(T, 0): Node(state.data, part.partition_epoch, 1, 1),
    }
    assert layout.read_image(nodes).topics[T].partitions[0] == part


def test_who_could_not_hold_a_replica_is_asked_again_when_it_may_follow() -> None:
    replica: Replica = (BrokerId(3), T, PartitionId(0))
    led = partition(0, 2, (1, 2, 3), isr=(2,))

    def waiting(part: PartitionImage, *alive: int) -> dict[Replica, int]:
        return waiting_to_follow(image_of(part, *alive)._replace(failed_replicas=frozenset((replica,))))

    assert waiting(led, 1, 2, 3) == {replica: led.partition_epoch}
    assert waiting(led, 1, 2) == {}
    assert waiting(led._replace(leader=NO_LEADER), 1, 2, 3) == {}
    assert waiting(led._replace(last_known_leader=BrokerId(3)), 1, 2, 3) == {}
    assert waiting(led._replace(isr=ids(2, 3)), 1, 2, 3) == {}
    ((request,),) = requests_to_follow(SENDER, image_of(led, 1, 2, 3), [replica]).values()
    assert isinstance(request, LeaderAndIsrRequest)
    (state,) = request.topic_states[0].partition_states
    assert (state.leader, list(state.isr), state.is_new) == (2, [2], False)


def with_eligible_leaders(part: PartitionImage, *alive: int, lost: tuple[int, ...] = ()) -> PartitionImage:
    """The partition after elections with `eligible.leader.replicas.version` 1."""
    outages = Outages(offline=frozenset((BrokerId(each), T, PartitionId(0)) for each in lost))
    image = image_of(part, *alive)._replace(features={ELIGIBLE_LEADER_REPLICAS: 1})
    found = elect_where_needed(image, outages, lambda topic: False)
    assert found.unclean == []
    after = apply(image, run_at_once(note_departures(image, found.changes, outages.offline, lambda topic: 2)))
    return after.topics[T].partitions[0]


def keeps_its_disk(topic_id: TopicId, partition: PartitionImage) -> bool:
    """No replica is lost with the directory that it is in."""
    return False


def test_an_eligible_replica_leads_at_once_and_the_one_before_becomes_eligible() -> None:
    """KIP-966: with LAST, nothing has been committed without 2."""
    after = with_eligible_leaders(LAST, 1, 2)
    assert (after.leader, after.isr, after.eligible, after.departed) == (2, (2,), (3,), (3, 1))
    assert after.last_known_leader == 3, "until 2 has confirmed that it leads"
    other = LAST._replace(departed=ids(2, 1), eligible_count=2)
    assert with_eligible_leaders(other, 1, 2).leader == 1, "any of them, in the order of the replicas"
    assert with_eligible_leaders(other, 1, 2, lost=(1,)).leader == 2


def test_the_last_one_in_sync_becomes_eligible_when_it_goes() -> None:
    gone = with_eligible_leaders(LAST, 1)
    assert (gone.leader, gone.isr, gone.eligible, gone.departed) == (NO_LEADER, (), (3, 2), (3, 2, 1))
    assert gone.last_known_leader == 3
    assert with_eligible_leaders(gone, 1) == gone
    assert with_eligible_leaders(gone, 1, 2).leader == 2
    back = with_eligible_leaders(gone, 1, 3)
    assert (back.leader, back.isr, back.eligible) == (3, (3,), (2,))
    assert with_eligible_leaders(START, 1, 2)._replace(departed=()).isr == (1, 2), "others are in sync"


def test_the_last_leader_leads_again_where_no_replica_is_eligible() -> None:
    """Both have restarted in a way in which records may be lost: the leader had synced what it acknowledged."""
    gone = with_eligible_leaders(LAST, 1)
    (three,) = without_unclean(image_of(gone, 1, 3), BrokerId(3), keeps_its_disk)
    part = three.partitions[0]
    assert (part.eligible, part.departed) == ((2,), (2, 3, 1))
    assert with_eligible_leaders(part, 1, 3).leader == NO_LEADER, "2 may have what 3 has lost"
    (both,) = without_unclean(image_of(part, 1, 2, 3), BrokerId(2), keeps_its_disk)
    part = both.partitions[0]
    assert (part.eligible, part.departed) == ((), (3,)), "a genuine controller elects 3 only if it is alone"
    assert with_eligible_leaders(part, 1, 2).leader == NO_LEADER
    assert with_eligible_leaders(part, 1, 2, 3, lost=(3,)).leader == NO_LEADER, "its disk was replaced"
    again = with_eligible_leaders(part, 1, 2, 3)
    assert (again.leader, again.isr, again.last_known_leader) == (3, (3,), NO_LEADER)


def test_the_leader_before_one_that_never_led_is_eligible_too() -> None:
    """1 led, and 2 was elected, has not confirmed, and goes: it has committed nothing."""
    elected = with_eligible_leaders(partition(0, 1, (1, 2, 3), isr=(1, 2)), 2)
    assert (elected.leader, elected.last_known_leader) == (2, 1)
    gone = with_eligible_leaders(elected._replace(departed=(), eligible_count=0), 3)
    assert (gone.leader, set(gone.eligible), gone.last_known_leader) == (NO_LEADER, {1, 2}, 1)


def test_an_operator_gets_an_eligible_one_and_else_the_last_leader() -> None:
    gone = with_eligible_leaders(LAST, 1)
    unclean = ElectionType.UNCLEAN
    (chosen,) = plan_election(image_of(gone, 1, 2), NO_OUTAGES, T0, unclean).partitions
    assert chosen.leader == 2
    (doubtful,) = without_unclean(image_of(gone, 1, 3), BrokerId(3), keeps_its_disk)
    (chosen,) = plan_election(image_of(doubtful.partitions[0], 1, 3), NO_OUTAGES, T0, unclean).partitions
    assert chosen.leader == 3
    (chosen,) = plan_election(image_of(gone, 1), NO_OUTAGES, T0, unclean).partitions
    assert chosen.leader == 1


def test_an_operator_gets_the_one_that_left_last_where_the_last_leader_does_not_come_back() -> None:
    """However it went: 3 was the last one in sync, and nothing was committed without 2 when 1 left."""

    def chosen(part: PartitionImage, *alive: int, lost: frozenset[Replica] = frozenset()) -> BrokerId:
        (found,) = plan_election(image_of(part, *alive), Outages(offline=lost), T0, ElectionType.UNCLEAN).partitions
        return found.leader

    one_is_enough = shrunk(shrunk(START, 1, 3, min_in_sync=1), 3, min_in_sync=1)
    assert (one_is_enough.departed, one_is_enough.eligible) == (ids(1, 2), ())
    reordered = one_is_enough._replace(replicas=ids(2, 1, 3))
    gone = with_eligible_leaders(reordered, 1, 2)
    assert (gone.eligible, gone.departed) == (ids(3), ids(3, 1, 2))
    assert chosen(gone, 1, 2) == 1, "its machine is gone"

    replica: Replica = (BrokerId(3), T, PartitionId(0))
    (empty,) = without_unclean(image_of(gone, 1, 2, 3), BrokerId(3), lambda topic_id, partition: True)
    part = empty.partitions[0]
    assert (part.eligible, part.departed, part.last_known_leader) == ((), ids(3, 1, 2), 3)
    assert chosen(part, 1, 2, 3, lost=frozenset((replica,))) == 1, "its disk was replaced"
    after = with_departures(part, part._replace(partition_epoch=part.partition_epoch + 1), ids(3), 2)
    assert after.departed == ids(3, 1, 2)

    two_left = with_eligible_leaders(LAST._replace(replicas=ids(1, 2, 3)), 1)
    assert two_left.eligible == ids(3, 2)
    (first,) = without_unclean(image_of(two_left, 1, 2, 3), BrokerId(3), lambda topic_id, partition: True)
    image = image_of(first.partitions[0], 1, 2, 3)._replace(failed_replicas=frozenset((replica,)))
    (second,) = without_unclean(image, BrokerId(2), keeps_its_disk)
    part = second.partitions[0]
    assert (part.eligible, part.departed) == ((), ids(3, 2, 1))
    assert chosen(part, 1, 2, 3, lost=frozenset((replica,))) == 2


def test_without_the_feature_what_it_has_left_behind_is_elected_all_the_same() -> None:
    gone = with_eligible_leaders(LAST, 1)
    assert elected(gone, NO_OUTAGES, 1, 2).leader == 2
    assert elected(gone, NO_OUTAGES, 1).leader == NO_LEADER


def test_the_departures_of_many_partitions_are_noted_in_steps() -> None:
    many = tuple(LAST._replace(partition=PartitionId(number)) for number in range(1000))
    image = image_of(LAST)
    image = image._replace(topics={T: image.topics[T]._replace(partitions=many)})
    steps = note_departures(image, [SetPartitions(T, many)], frozenset(), lambda topic: 1)
    assert sum(1 for _ in steps) >= 100


def test_so_are_those_of_many_topics() -> None:
    commands = [SetPartitions(TopicName(f"t{number}"), (LAST,)) for number in range(1000)]
    steps = note_departures(image_of(LAST), commands, frozenset(), lambda topic: 1)
    assert sum(1 for _ in steps) >= 100
