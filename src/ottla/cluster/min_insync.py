"""PURE. One `min.insync.replicas` for all brokers, where the cluster has eligible leader replicas (KIP-966).

A replica is eligible if nothing was committed without it, which depends on that setting. If brokers had different ones,
a broker could commit what the controller takes for not committed. So the metadata has it for all of them, none has its
own, and it can be changed, but not removed. Source: Kafka 4.3, `ConfigurationControlManager`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ottla.cluster.commands import Command, SetConfigs, SetFeatures, SetPartitions, apply
from ottla.cluster.image import (
    CLUSTER_DEFAULT,
    ELIGIBLE_LEADER_REPLICAS,
    NO_LEADER,
    MetadataImage,
    ResourceType,
    TopicImage,
)
from ottla.errors import InvalidConfig

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"


def unify_min_insync(
    features: Mapping[str, int], configs: Mapping[tuple[ResourceType, str], Mapping[str, str]], from_file: int
) -> list[SetConfigs]:
    """What makes it one setting for all brokers; `from_file` is its value where the metadata has none."""
    if not features.get(ELIGIBLE_LEADER_REPLICAS):
        return []
    everywhere = configs.get((ResourceType.BROKER, CLUSTER_DEFAULT), {})
    changes = [
        SetConfigs(kind, name, {key: value for key, value in settings.items() if key != MIN_INSYNC_REPLICAS})
        for (kind, name), settings in configs.items()
        if kind is ResourceType.BROKER and name != CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS in settings
    ]
    if MIN_INSYNC_REPLICAS not in everywhere:
        default = {**everywhere, MIN_INSYNC_REPLICAS: str(from_file)}
        changes.insert(0, SetConfigs(ResourceType.BROKER, CLUSTER_DEFAULT, default))
    return changes


def check_min_insync(image: MetadataImage, change: SetConfigs) -> None:
    """Raise `InvalidConfig` for a change of brokers' settings with which it were not one setting any longer."""
    if change.resource_type is not ResourceType.BROKER or not image.features.get(ELIGIBLE_LEADER_REPLICAS):
        return
    if change.name != CLUSTER_DEFAULT:
        if MIN_INSYNC_REPLICAS in change.configs:
            raise InvalidConfig(
                f"{MIN_INSYNC_REPLICAS} is one for all brokers while there are eligible leader replicas: set it for "
                "all of them, or for a topic"
            )
    elif MIN_INSYNC_REPLICAS in image.config(*change[:2]) and MIN_INSYNC_REPLICAS not in change.configs:
        raise InvalidConfig(
            f"{MIN_INSYNC_REPLICAS} of all brokers cannot be removed while there are eligible leader replicas: set it "
            "to another value"
        )


def consequences(image: MetadataImage, commands: Sequence[Command], from_file: int) -> list[Command]:
    """What has to be committed with changes of settings and features, in one step.

    With another `min.insync.replicas`, and when eligible replicas begin to be elected, those that there are may lack
    what their leader commits from then on, or has committed: they are eligible no longer. A partition that nobody leads
    keeps them, since nothing is committed there. `from_file` is as for `unify_min_insync`.
    """
    after = apply(image, [each for each in commands if isinstance(each, SetConfigs | SetFeatures)])
    if not after.elects_eligible:
        return []
    changed = [
        topic
        for topic in image.topics.values()
        if not image.elects_eligible or _min_insync(image, topic) != _min_insync(after, topic)
    ]
    return [*unify_min_insync(after.features, after.configs, from_file), *_forgetting(changed)]


def _min_insync(image: MetadataImage, topic: TopicImage) -> str | None:
    default = image.config(ResourceType.BROKER, CLUSTER_DEFAULT).get(MIN_INSYNC_REPLICAS)
    return image.topic_config(topic.name).get(MIN_INSYNC_REPLICAS, default)


def _forgetting(topics: Iterable[TopicImage]) -> Iterator[SetPartitions]:
    for topic in topics:
        partitions = tuple(
            partition._replace(eligible_count=0, partition_epoch=partition.partition_epoch + 1)
            for partition in topic.partitions
            if partition.eligible_count and partition.leader != NO_LEADER
        )
        if partitions:
            yield SetPartitions(topic.name, partitions)
