"""PURE. The changes that metadata can undergo, and what each does to an image."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.cluster.image import (
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from ottla.ids import BrokerId, TopicName

K = TypeVar("K")
V = TypeVar("V")


class CreateTopic(NamedTuple):
    """A topic that was not there."""

    topic: TopicImage
    configs: Mapping[str, str]


class DeleteTopic(NamedTuple):
    """A topic goes, with its settings."""

    name: TopicName


class BeginDeletion(NamedTuple):
    """A topic that is too large to go at once is going; nothing is to be seen of that yet."""

    name: TopicName


class SetPartitions(NamedTuple):
    """Partitions that are new (numbered from the end on) or have changed."""

    topic: TopicName
    partitions: tuple[PartitionImage, ...]


class SetConfigs(NamedTuple):
    """All the settings of one resource; empty when none is left."""

    resource_type: ResourceType
    name: str
    configs: Mapping[str, str]


class RegisterBroker(NamedTuple):
    """A broker is alive, or has changed its addresses."""

    broker: BrokerImage


class RemoveBroker(NamedTuple):
    """A broker is gone."""

    broker_id: BrokerId


class SetController(NamedTuple):
    """Another broker decides; `NO_LEADER` for none."""

    controller_id: BrokerId = NO_LEADER


class SetFeatures(NamedTuple):
    """All finalized feature levels above 0."""

    levels: Mapping[str, int]


Command = (
    CreateTopic
    | BeginDeletion
    | DeleteTopic
    | SetPartitions
    | SetConfigs
    | SetFeatures
    | RegisterBroker
    | RemoveBroker
    | SetController
)


def apply(image: MetadataImage, commands: Sequence[Command]) -> MetadataImage:
    """The image after these changes, in order. They must fit: KeyError for a topic that is not there.

    Mappings in which nothing changes stay the same objects.
    """
    draft = Draft(image)
    for command in commands:
        draft.apply(command)
    return draft.result()


class Draft:
    """An image that changes command by command, each at its own cost alone, however much else there is."""

    def __init__(self, image: MetadataImage) -> None:
        self._before = image
        self._topics = dict(image.topics)
        self._by_id = dict(image.topics_by_id)
        self._configs = dict(image.configs)
        self._brokers = dict(image.brokers)
        self.image = image._replace(
            topics=self._topics, topics_by_id=self._by_id, configs=self._configs, brokers=self._brokers
        )
        """As of the last command; its mappings change with the next one, so callers must not keep it."""

    def apply(self, command: Command) -> None:
        """Make one change. It must fit: KeyError for a topic that is not there."""
        topics, by_id, configs = self._topics, self._by_id, self._configs
        match command:
            case CreateTopic(topic, topic_configs):
                topics[topic.name] = by_id[topic.topic_id] = topic
                if topic_configs:
                    configs[ResourceType.TOPIC, topic.name] = topic_configs
            case DeleteTopic(name):
                del by_id[topics.pop(name).topic_id]
                configs.pop((ResourceType.TOPIC, name), None)
            case BeginDeletion():
                pass
            case SetPartitions(name, changed):
                topic = with_partitions(topics[name], changed)
                topics[name] = by_id[topic.topic_id] = topic
            case SetConfigs(resource_type, name, resource_configs):
                if resource_configs:
                    configs[resource_type, name] = resource_configs
                else:
                    configs.pop((resource_type, name), None)
            case SetFeatures(levels):
                self.image = self.image._replace(features=levels, features_epoch=self.image.features_epoch + 1)
            case RegisterBroker(broker):
                self._brokers[broker.broker_id] = broker
            case RemoveBroker(broker_id):
                del self._brokers[broker_id]
            case SetController(broker_id):
                self.image = self.image._replace(controller_id=broker_id)

    def result(self) -> MetadataImage:
        """The image after all changes; the draft ends with it."""
        before = self._before
        return self.image._replace(
            brokers=_same_or(before.brokers, self._brokers),
            topics=_same_or(before.topics, self._topics),
            topics_by_id=_same_or(before.topics_by_id, self._by_id),
            configs=_same_or(before.configs, self._configs),
        )


def _same_or(old: Mapping[K, V], new: Mapping[K, V]) -> Mapping[K, V]:
    """The old mapping if nothing in it has changed, so that subscribers can compare by `is`."""
    return old if new == old else new


def with_partitions(topic: TopicImage, changed: Sequence[PartitionImage]) -> TopicImage:
    """The topic with partitions that are new (numbered from its end on) or have changed."""
    partitions = list(topic.partitions)
    for partition in changed:
        if partition.partition == len(partitions):
            partitions.append(partition)
        else:
            partitions[partition.partition] = partition
    return topic._replace(partitions=tuple(partitions))
