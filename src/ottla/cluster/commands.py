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
    topics = dict(image.topics)
    by_id = dict(image.topics_by_id)
    configs = dict(image.configs)
    brokers = dict(image.brokers)
    controller_id = image.controller_id
    features, features_epoch = image.features, image.features_epoch
    for command in commands:
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
                features, features_epoch = levels, features_epoch + 1
            case RegisterBroker(broker):
                brokers[broker.broker_id] = broker
            case RemoveBroker(broker_id):
                del brokers[broker_id]
            case SetController(broker_id):
                controller_id = broker_id
    return image._replace(
        controller_id=controller_id,
        brokers=_same_or(image.brokers, brokers),
        topics=_same_or(image.topics, topics),
        topics_by_id=_same_or(image.topics_by_id, by_id),
        configs=_same_or(image.configs, configs),
        features=_same_or(image.features, features),
        features_epoch=features_epoch,
    )


def _same_or(old: Mapping[K, V], new: Mapping[K, V]) -> Mapping[K, V]:
    """The old mapping if nothing in it has changed, so that `is` tells subscribers what to look at."""
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
