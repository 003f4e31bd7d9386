"""The controller's decisions, as values."""

from collections import Counter
from uuid import UUID

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster import controller
from ottla.cluster.commands import CreateTopic, DeleteTopic, SetConfigs, apply
from ottla.cluster.controller import NewTopic
from ottla.cluster.image import NO_LEADER, MetadataImage, ResourceType
from ottla.config.broker import BrokerConfig
from ottla.errors import ErrorCode, InvalidTopic, OttlaError, UnknownTopicOrPartition
from ottla.ids import BrokerId, TopicId, TopicName

CONFIG = BrokerConfig({"num.partitions": "4", "default.replication.factor": "2"})


def plan(image: MetadataImage, new: NewTopic, first_broker: int = 0, config: BrokerConfig = CONFIG) -> CreateTopic:
    return controller.plan_topic(image, config, new, topic_id=TopicId(UUID(int=1)), first_broker=first_broker)


def refusal(image: MetadataImage, new: NewTopic) -> ErrorCode:
    with pytest.raises(OttlaError) as refused:
        plan(image, new)
    return refused.value.code


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-"])
def test_names_that_topics_may_have(name: str) -> None:
    controller.check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "grün", "a\n", "a\0", "a:b"])
def test_names_that_topics_may_not_have(name: str) -> None:
    with pytest.raises(InvalidTopic, match=r"^Topic name is invalid: "):
        controller.check_topic_name(name)


@pytest.mark.parametrize(
    ("existing", "name", "collides"),
    [("a.b", "a_b", True), ("a_b", "a.b", True), ("a.b_c", "a_b.c", True), ("a.b", "a-b", False), ("ab", "a.b", False)],
)
def test_names_that_metrics_could_not_tell_apart(existing: str, name: str, collides: bool) -> None:
    image = with_topic(cluster(1), existing, partition(0, 1, (1,)))
    assert (controller.TakenNames().colliding(image, name) == existing) is collides


def test_defaults_come_from_the_settings() -> None:
    topic = plan(cluster(1, 2, 3), NewTopic(TopicName("t"))).topic
    assert len(topic.partitions) == 4
    assert {len(part.replicas) for part in topic.partitions} == {2}


def test_a_new_partition_is_led_by_its_first_replica() -> None:
    made = plan(cluster(1, 2, 3), NewTopic(TopicName("t"), assignments=((1, [3, 1]), (0, [2, 3]))))
    first, second = made.topic.partitions
    assert (first.partition, first.leader, first.replicas, first.isr) == (0, 2, (2, 3), (2, 3))
    assert (second.partition, second.leader, second.leader_epoch, second.partition_epoch) == (1, 3, 0, 0)


@pytest.mark.parametrize("start", range(7))
def test_leaders_and_replicas_are_spread_evenly(start: int) -> None:
    placed = controller.place_replicas(
        cluster(1, 2, 3, 4), first_partition=0, partition_count=24, replication_factor=3, start=start
    )
    assert all(len(set(replicas)) == 3 for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {6}
    assert set(Counter(replica for replicas in placed for replica in replicas).values()) == {18}
    followers_of_one = Counter(replicas[1] for replicas in placed if replicas[0] == 1)
    assert set(followers_of_one.values()) == {2}


def test_replicas_of_a_partition_are_on_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    placed = controller.place_replicas(
        cluster(1, 2, 3, 4, racks=racks), first_partition=0, partition_count=4, replication_factor=2, start=0
    )
    assert all(racks[first] != racks[second] for first, second in placed)


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic(TopicName("t"), 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(TopicName("t"), 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(TopicName("t"), 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(TopicName("t"), 10_001, 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic(TopicName("t"), 1, assignments=((0, [1]),)), ErrorCode.INVALID_REQUEST),
        (NewTopic(TopicName("t"), assignments=((0, [1]), (2, [1]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(TopicName("t"), assignments=((0, [1]), (1, [1, 2]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(TopicName("t"), replication_factor=1, assignments=((0, [1]),)), ErrorCode.INVALID_REQUEST),
        (NewTopic(TopicName("t"), assignments=((0, [1]), (0, [2]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(TopicName("t"), assignments=((0, []),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(TopicName("t"), assignments=((0, [1, 1]),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(TopicName("t"), assignments=((0, [1, 9]),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(TopicName("t"), configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic(TopicName("old")), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic(TopicName("__cluster_metadata")), ErrorCode.INVALID_REQUEST),
    ],
)
def test_topics_that_are_refused(new: NewTopic, code: ErrorCode) -> None:
    assert refusal(with_topic(cluster(1, 2), "old", partition(0, 1, (1,))), new) is code


def test_deletion() -> None:
    image = with_topic(cluster(1), "t", partition(0, 1, (1,)))
    assert controller.plan_deletion(image, CONFIG, TopicName("t")) == DeleteTopic(TopicName("t"))
    with pytest.raises(OttlaError) as refused:
        controller.plan_deletion(image, BrokerConfig({"delete.topic.enable": "false"}), TopicName("t"))
    assert refused.value.code is ErrorCode.TOPIC_DELETION_DISABLED


def test_growth_keeps_what_is_there() -> None:
    image = with_topic(cluster(1, 2), "t", partition(0, 1, (1,)))
    grown = controller.plan_growth(image, CONFIG, TopicName("t"), 3, None)
    assert [part.partition for part in grown.partitions] == [1, 2]
    placed = controller.plan_growth(image, CONFIG, TopicName("t"), 2, [[2]])
    assert [(part.partition, part.replicas) for part in placed.partitions] == [(1, (2,))]


@pytest.mark.parametrize(
    ("total", "assignments", "code"),
    [
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (0, None, ErrorCode.INVALID_PARTITIONS),
        (3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_growth_that_is_refused(total: int, assignments: list[list[int]] | None, code: ErrorCode) -> None:
    image = with_topic(cluster(1, 2), "t", partition(0, 1, (1,)))
    with pytest.raises(OttlaError) as refused:
        controller.plan_growth(image, CONFIG, TopicName("t"), total, assignments)
    assert refused.value.code is code


def test_a_topic_that_is_not_there_neither_grows_nor_ends() -> None:
    with pytest.raises(UnknownTopicOrPartition):
        controller.plan_growth(cluster(1), CONFIG, TopicName("t"), 2, None)
    with pytest.raises(UnknownTopicOrPartition):
        controller.plan_deletion(cluster(1), CONFIG, TopicName("t"))


def test_names_of_one_request_collide_with_each_other() -> None:
    taken = controller.TakenNames()
    image = with_topic(cluster(1), "old.topic", partition(0, 1, (1,)))
    assert taken.colliding(image, TopicName("new.topic")) is None
    taken.add(TopicName("new.topic"))
    assert taken.colliding(image, TopicName("new_topic")) == "new.topic"
    assert taken.colliding(image, TopicName("old_topic")) == "old.topic"


def test_cordoned_brokers_get_no_new_replicas() -> None:
    """KIP-1066: all log directories of broker 2 are cordoned by an altered setting, those of this one by its own."""
    cordon = SetConfigs(ResourceType.BROKER, "2", {"cordoned.log.dirs": "*"})
    image = apply(cluster(1, 2, 3), [cordon])
    assert sorted(controller.without_cordoned(image, CONFIG).brokers) == [1, 3]
    own = BrokerConfig({"node.id": "3", "log.dirs": "/a,/b", "cordoned.log.dirs": "/a,/b"})
    assert sorted(controller.without_cordoned(image, own).brokers) == [1]
    with pytest.raises(OttlaError) as refused:
        plan(apply(cluster(2), [cordon]), NewTopic(TopicName("t"), 1, 1))
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "All brokers are currently fenced" in str(refused.value)


def test_new_epochs_for_what_a_broker_leads_or_could() -> None:
    image = with_topic(
        cluster(1, 2),
        "t",
        partition(0, 1, (1, 2)),
        partition(1, 2, (1, 2)),
        partition(2, NO_LEADER, (1, 2)),
        partition(3, NO_LEADER, (1, 2), isr=(2,)),
    )
    (planned,) = controller.plan_new_epochs(image, BrokerId(1))
    assert [(part.partition, part.leader, part.leader_epoch) for part in planned.partitions] == [(0, 1, 6), (2, 1, 6)]
