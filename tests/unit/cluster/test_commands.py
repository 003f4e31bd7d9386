"""Changes of the image, command by command; the image before stays as it was."""

from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.commands import RegisterBroker, RemoveBroker, SetConfigs, SetController, SetFeatures, apply
from ottla.cluster.image import BrokerImage, ResourceType
from ottla.ids import BrokerId, TopicName

BEFORE = with_topic(cluster(1, 2), "t", partition(0, 1, (1,)))


def test_brokers_come_and_go_and_one_controls() -> None:
    added = BrokerImage(BrokerId(3), 7, None, {"PLAINTEXT": ("h", 9003)})
    after = apply(BEFORE, [RegisterBroker(added), RemoveBroker(BrokerId(1)), SetController(BrokerId(3))])
    assert (sorted(after.brokers), after.controller_id) == ([2, 3], 3)
    assert (sorted(BEFORE.brokers), BEFORE.controller_id) == ([1, 2], 1)
    assert after.topics is BEFORE.topics, "what is unchanged is the same object"


def test_each_change_of_features_has_an_epoch() -> None:
    after = apply(BEFORE, [SetFeatures({"group.version": 1})])
    assert (after.features, after.features_epoch) == ({"group.version": 1}, BEFORE.features_epoch + 1)


def test_settings_are_replaced_and_empty_ones_are_forgotten() -> None:
    after = apply(BEFORE, [SetConfigs(ResourceType.TOPIC, "t", {"retention.ms": "1"})])
    assert after.config(ResourceType.TOPIC, "t") == {"retention.ms": "1"}
    emptied = apply(after, [SetConfigs(ResourceType.TOPIC, "t", {}), SetConfigs(ResourceType.TOPIC, "unset", {})])
    assert emptied.config(ResourceType.TOPIC, "t") == {}


def test_topics_of_coordinators_are_internal() -> None:
    image = with_topic(BEFORE, "__consumer_offsets", partition(0, 1, (1,)))
    assert [image.topics[TopicName(name)].internal for name in ("t", "__consumer_offsets")] == [False, True]
