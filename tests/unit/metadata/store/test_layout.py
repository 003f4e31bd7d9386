"""What stands in the store: Kafka 3.9's bytes, and back."""

import json
from uuid import UUID

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.commands import (
    Command,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    RemoveBroker,
    SetConfigs,
    SetController,
    SetFeatures,
    SetPartitions,
    apply,
)
from ottla.cluster.image import (
    INITIAL_FEATURES,
    NO_LEADER,
    NOT_YET_LED,
    BrokerImage,
    MetadataImage,
    ResourceType,
    TopicImage,
    empty_image,
)
from ottla.ids import BrokerId, ProducerId, TopicId, TopicName, uuid_from_text, uuid_to_text
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, Delete, Node, Update


class Tree:
    """A store in memory, driven by commands."""

    def __init__(self) -> None:
        self.nodes = {layout.CLUSTER_ID_PATH: Node(layout.cluster_id_node("cluster"), 0)}
        self.image = empty_image("cluster")

    def do(self, *commands: Command) -> None:
        versions = {path: node.version for path, node in self.nodes.items()}
        for operation in layout.operations_for(commands, self.image, versions, controller_epoch=3, now_ms=1000):
            match operation:
                case Create(path, data, _):
                    assert path not in self.nodes
                    self.nodes[path] = Node(data, 0)
                case Update(path, data, version):
                    assert self.nodes[path].version == version
                    self.nodes[path] = Node(data, version + 1)
                case Delete(path, version):
                    assert self.nodes.pop(path).version == version
        self.image = apply(self.image, commands)
        assert layout.read_image(self.nodes) == self.image


TOPIC = TopicImage(
    TopicName("t"),
    TopicId(UUID("12345678-1234-1234-1234-123456789abc")),
    (partition(0, 1, (1, 2))._replace(partition_epoch=0),),
)


def test_every_change_can_be_read_back() -> None:
    tree = Tree()
    tree.do(RegisterBroker(BrokerImage(BrokerId(1), 7, "rack", {"A": ("::1", 1), "B": ("b", 2)})))
    tree.do(SetController(BrokerId(1)))
    tree.do(CreateTopic(TOPIC, {"retention.ms": "1"}))
    tree.do(SetPartitions(TopicName("t"), (partition(0, 2, (1, 2), isr=(2,))._replace(partition_epoch=1),)))
    tree.do(SetPartitions(TopicName("t"), (partition(1, 2, (2,))._replace(partition_epoch=0),)))
    tree.do(SetConfigs(ResourceType.BROKER, "", {"log.retention.ms": "5"}))
    tree.do(SetConfigs(ResourceType.BROKER, "1", {"log.retention.ms": "6"}))
    tree.do(SetConfigs(ResourceType.BROKER, "1", {}))
    tree.do(SetConfigs(ResourceType.TOPIC, "t", {}))
    for group in ("g", "my group", "a/b", "..", ".", "100%", "<default>", "größe", "\0"):
        tree.do(SetConfigs(ResourceType.GROUP, group, {"share.isolation.level": "read_committed"}))
        assert (ResourceType.GROUP, group) in layout.read_image(tree.nodes).configs
    tree.do(RegisterBroker(BrokerImage(BrokerId(1), 7, None, {"A": ("::1", 3)})))
    tree.do(RemoveBroker(BrokerId(1)))
    tree.do(DeleteTopic(TopicName("t")))
    assert not [path for path in tree.nodes if path.startswith(layout.TOPICS_PATH)]
    tree.do(CreateTopic(TOPIC, {}))


def test_nodes_are_those_of_kafka() -> None:
    tree = Tree()
    tree.do(CreateTopic(TOPIC, {"retention.ms": "1"}))
    tree.do(SetController(BrokerId(4)))
    tree.do(SetConfigs(ResourceType.BROKER, "", {"log.retention.ms": "5"}))
    found = {path: json.loads(node.data) for path, node in tree.nodes.items()}
    assert found == {
        "/cluster/id": {"version": "1", "id": "cluster"},
        "/brokers/topics/t": {
            "removing_replicas": {},
            "partitions": {"0": [1, 2]},
            "topic_id": "EjRWeBI0EjQSNBI0VniavA",
            "adding_replicas": {},
            "version": 3,
        },
        "/brokers/topics/t/partitions/0/state": {
            "controller_epoch": 3,
            "leader": 1,
            "version": 1,
            "leader_epoch": 5,
            "isr": [1, 2],
        },
        "/config/topics/t": {"version": 1, "config": {"retention.ms": "1"}},
        "/config/brokers/<default>": {"version": 1, "config": {"log.retention.ms": "5"}},
        "/controller": {"version": 2, "brokerid": 4, "timestamp": "1000", "kraftControllerEpoch": -1},
        "/controller_epoch": 3,
    }


def test_settings_of_a_topic_that_is_made_anew_replace_what_was_left() -> None:
    """Kafka leaves an empty node behind when the last setting goes."""
    tree = Tree()
    tree.do(CreateTopic(TOPIC, {"retention.ms": "1"}))
    tree.do(SetConfigs(ResourceType.TOPIC, "t", {}))
    assert "/config/topics/t" in tree.nodes
    tree.do(SetConfigs(ResourceType.TOPIC, "t", {"retention.ms": "2"}))


def test_blocks_of_producer_ids() -> None:
    block = layout.ProducerIdBlock(BrokerId(1), ProducerId(1000), ProducerId(1999))
    data = layout.producer_id_block_node(block)
    assert json.loads(data) == {"version": 1, "broker": 1, "block_start": "1000", "block_end": "1999"}
    assert layout.read_producer_id_block(Node(data, 0)) == block


def test_ids_as_text() -> None:
    for value in (UUID(int=0), UUID(int=2**128 - 1), TOPIC.topic_id):
        text = uuid_to_text(value)
        assert len(text) == 22
        assert uuid_from_text(text) == value
    with pytest.raises(ValueError):
        uuid_from_text("short")


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/brokers/topics/t", b"{}"),
        ("/brokers/topics/t", b"not json"),
        ("/brokers/topics/t", b'{"partitions":{},"topic_id":"?"}'),
        ("/brokers/ids/x", b"{}"),
        ("/config/topics/t", b"[]"),
        ("/controller", b"1"),
    ],
)
def test_a_node_that_makes_no_sense_is_named(path: str, data: bytes) -> None:
    with pytest.raises(layout.MalformedNode, match=r"/brokers|/config|/controller"):
        layout.read_image({path: Node(data, 0)})


def test_a_broker_is_as_old_as_its_node_where_nodes_are_numbered() -> None:
    tree = Tree()
    tree.do(RegisterBroker(BrokerImage(BrokerId(1), 7, None, {"A": ("h", 1)})))
    path = "/brokers/ids/1"
    numbered = {path: tree.nodes[path]._replace(created=4711)}
    assert layout.read_image(tree.nodes).brokers[BrokerId(1)].epoch == 7
    assert layout.read_image(numbered).brokers[BrokerId(1)].epoch == 4711


def test_who_led_is_kept_until_the_leader_has_confirmed_as_kafka_asks_for_it() -> None:
    tree = Tree()
    part = partition(0, 2, (1, 2))
    tree.do(CreateTopic(TOPIC._replace(partitions=(part._replace(partition_epoch=0),)), {}))
    tree.do(SetPartitions(TOPIC.name, (part._replace(partition_epoch=1, last_known_leader=BrokerId(1)),)))
    path = layout.state_path(TOPIC.name, 0)
    state = json.loads(tree.nodes[path].data)
    assert (state["last_known_leader"], state["leader_recovery_state"]) == (1, 1)
    tree.do(SetPartitions(TOPIC.name, (part._replace(partition_epoch=2),)))
    assert not {"last_known_leader", "leader_recovery_state"} & json.loads(tree.nodes[path].data).keys()


def test_brokers_that_confirm_say_so() -> None:
    tree = Tree()
    broker = BrokerImage(BrokerId(1), 4, None, {"PLAINTEXT": ("h", 9092)})
    tree.do(RegisterBroker(broker))
    assert "confirms_leadership" not in json.loads(tree.nodes["/brokers/ids/1"].data)
    tree.do(RegisterBroker(broker._replace(confirms_leadership=True)))
    assert json.loads(tree.nodes["/brokers/ids/1"].data)["confirms_leadership"] is True


def test_a_partition_whose_state_is_not_written_yet_has_no_leader() -> None:
    topic = b'{"partitions":{"0":[1,2]},"topic_id":"EjRWeBI0EjQSNBI0VniavA"}'
    (found,) = layout.read_image({"/brokers/topics/t": Node(topic, 0)}).topics[TopicName("t")].partitions
    assert (found.leader, found.isr, found.partition_epoch) == (NO_LEADER, (), NOT_YET_LED)
    assert found.replicas == (1, 2)


def test_a_reassignment_stands_in_the_node_of_the_topic() -> None:
    tree = Tree()
    tree.do(RegisterBroker(BrokerImage(BrokerId(1), 1, None, {})))
    tree.do(CreateTopic(TOPIC, {}))
    before = tree.image.topics[TOPIC.name].partitions[0]
    moved = before._replace(
        replicas=(BrokerId(3), *before.replicas),
        adding=(BrokerId(3),),
        removing=before.replicas,
        partition_epoch=before.partition_epoch + 1,
    )
    tree.do(SetPartitions(TOPIC.name, (moved,)))
    node = json.loads(tree.nodes[f"/brokers/topics/{TOPIC.name}"].data)
    assert node["adding_replicas"] == {"0": [3]}
    assert node["removing_replicas"] == {"0": list(before.replicas)}
    assert node["partitions"]["0"] == [3, *before.replicas]
    assert moved.target == (3,)


def test_what_changes_twice_in_a_transaction_is_written_once() -> None:
    tree = Tree()
    tree.do(CreateTopic(TOPIC, {}))
    count = len(TOPIC.partitions)
    grown = [
        SetPartitions(TOPIC.name, (partition(count + nth, 1, (1,))._replace(partition_epoch=0),)) for nth in (0, 1)
    ]
    tree.do(*grown)
    assert len(tree.image.topics[TOPIC.name].partitions) == count + 2


def test_an_image_of_others_is_left_alone() -> None:
    image: MetadataImage = with_topic(cluster(1), "a", partition(0, 1, (1,)))
    changed = apply(image, [DeleteTopic(TopicName("a"))])
    assert TopicName("a") in image.topics
    assert changed.topics == changed.topics_by_id == {}


def test_feature_levels_are_those_of_a_new_cluster_until_one_is_changed() -> None:
    tree = Tree()
    assert (tree.image.features, tree.image.features_epoch) == (INITIAL_FEATURES, 0)
    tree.do(SetFeatures({"group.version": 1}))
    assert json.loads(tree.nodes["/feature"].data) == {
        "version": 2,
        "status": 1,
        "features": {"group.version": {"max_version_level": 1}},
    }
    assert (tree.image.features, tree.image.features_epoch) == ({"group.version": 1}, 1)
    tree.do(SetFeatures({}))
    assert (tree.image.features, tree.image.features_epoch) == ({}, 2)
