"""When a cluster on ZooKeeper is ready to move, and what the freeze keeps of its brokers."""

import json
from uuid import UUID

import pytest

from ottla.cluster.image import BrokerImage, MetadataImage, PartitionImage, TopicImage, empty_image
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName
from ottla.metadata.store.base import Node
from ottla.metadata.store.layout import MalformedNode
from ottla.metadata.store.migration_layout import (
    MIGRATION_PATH,
    Announcement,
    announcement_node,
    announcement_path,
    controller_node,
    controller_path,
    read_announcements,
    read_freeze,
    unready,
    unready_controllers,
)

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LEADER = (11, 3)
READY = Announcement(70, UUID(int=500), LEADER)


def broker(broker_id: BrokerId, epoch: int = 70) -> BrokerImage:
    return BrokerImage(broker_id, epoch, None, {"PLAINTEXT": ("h", 9092)})


def image(*brokers: BrokerImage, replicas: tuple[BrokerId, ...] = ()) -> MetadataImage:
    part = PartitionImage(PartitionId(0), ONE, LeaderEpoch(0), replicas, replicas, 0)
    topic = TopicImage(TopicName("t"), TopicId(UUID(int=1)), (part,))
    return empty_image("c")._replace(brokers={each.broker_id: each for each in brokers}, topics={topic.name: topic})


def test_an_announcement_is_read_as_it_was_written() -> None:
    for announcement in (READY, READY._replace(problem="has a cold")):
        nodes = {announcement_path(ONE): Node(announcement_node(announcement), 0)}
        assert read_announcements(nodes) == {ONE: announcement}


def test_what_is_no_announcement_counts_as_none() -> None:
    nodes = {announcement_path(ONE): Node(b"{", 0), announcement_path(TWO): Node(b"{}", 0), "/ottla/x/1": Node(b"", 0)}
    assert read_announcements(nodes) == {}


def test_all_brokers_that_run_have_to_be_ready() -> None:
    found = image(broker(ONE), broker(TWO), replicas=(ONE, TWO))
    assert unready(found, {ONE: READY, TWO: READY}, LEADER) == {}
    assert unready(found, {ONE: READY}, LEADER) == {TWO: "was started without the settings of the quorum"}


def test_the_announcement_of_another_process_does_not_count() -> None:
    assert list(unready(image(broker(ONE, epoch=71)), {ONE: READY}, LEADER)) == [ONE]


def test_a_broker_may_say_why_it_is_not_ready() -> None:
    assert unready(image(broker(ONE)), {ONE: READY._replace(problem="has a cold")}, LEADER) == {ONE: "has a cold"}


def test_a_broker_of_another_quorum_is_waited_for() -> None:
    elsewhere = READY._replace(leader=(11, 4))
    assert unready(image(broker(ONE)), {ONE: elsewhere}, LEADER) == {ONE: "follows controller 11, in epoch 4"}


def test_a_broker_that_holds_replicas_has_to_run() -> None:
    found = image(broker(ONE), replicas=(ONE, THREE))
    assert unready(found, {ONE: READY, THREE: READY}, LEADER) == {THREE: "holds replicas and does not run"}


def test_a_freeze_by_genuine_kafka_is_left_to_it() -> None:
    genuine = json.dumps({"version": 0, "kraft_controller_id": 3000, "kraft_controller_epoch": 5})
    with pytest.raises(MalformedNode, match="has to end that with genuine Kafka"):
        read_freeze({MIGRATION_PATH: Node(genuine.encode(), 0)})
    assert read_freeze({}) is None


def test_all_voters_have_to_follow_the_same_leader() -> None:
    nodes = {
        controller_path(11): Node(controller_node(LEADER), 0),
        controller_path(12): Node(controller_node((-1, 0)), 0),
        controller_path(13): Node(controller_node((12, 4)), 0),
        controller_path(14): Node(b"{", 0),
    }
    assert unready_controllers([11], nodes, LEADER) == {}
    missing = unready_controllers([11, 12, 13, 14], nodes, LEADER)
    assert missing[12] == "reaches no active controller of the quorum"
    assert missing[13] == "follows controller 12, in epoch 4"
    assert missing[14].startswith("does not run, or was started without")
    assert list(missing) == [12, 13, 14]
