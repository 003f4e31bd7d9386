"""PURE. The records that carry out commands: replayed on the same state, they make the same image as the commands.

    CreateTopic     Topic, Config for each setting, Partition for each partition
    DeleteTopic     RemoveTopic; its settings go with it
    SetPartitions   Partition for new ones, PartitionChange with what has changed for the others
    SetConfigs      Config, ClientQuota, UserScramCredential for each setting that has changed
    SetFeatures     FeatureLevel for each level that has changed

A PartitionChange names no epochs: they grow when it is replayed (`partitions.py`). What no command covers is written by
`framing.framed`: registrations, access rules, delegation tokens, producer ids, begin and end of a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.cluster.commands import (
    BeginDeletion,
    Command,
    CreateTopic,
    DeleteTopic,
    SetConfigs,
    SetFeatures,
    SetPartitions,
)
from ottla.cluster.features import METADATA_VERSION
from ottla.cluster.image import NO_LEADER, PartitionImage, ResourceType, TopicImage
from ottla.cluster.metadata_log.framing import framed
from ottla.cluster.metadata_log.levels import DIRECTORIES_SINCE, ELIGIBLE_SINCE, shrinking_bumps_leader_epoch
from ottla.cluster.metadata_log.partitions import (
    RECOVERED,
    RECOVERING,
    UNASSIGNED,
    PartitionState,
    Sharing,
    changed,
    created,
    partition_record,
    recorded,
)
from ottla.cluster.metadata_log.settings import InexpressibleChange, Resource, setting_record
from ottla.ids import BrokerId, TopicName
from ottla.protocol import metadata_records as records

if TYPE_CHECKING:
    from ottla.cluster.metadata_log.state import ClusterState
    from ottla.protocol.schema import Message

_MOST_STEPS: Final = 16
"""Records for one change of a partition. Decisions take one or two steps; more would be a mistake."""


def messages_for(commands: Iterable[Command], state: ClusterState) -> list[Message]:
    """The records before they are framed. Raises as `each_record`."""
    return list(_Draft(state, state.metadata_version).each(commands))


def each_record(commands: Iterable[Command], state: ClusterState) -> Iterator[bytes]:
    """The records of the commands, one at a time, since those of thousands of partitions take long.

    The state must not change meanwhile. Raises `InexpressibleChange` for a command that has no records, or not at the
    cluster's `metadata.version`, and KeyError for a topic that is not there.
    """
    level = state.metadata_version
    for record in _Draft(state, level).each(commands):
        yield framed(record, level)


class _Draft:
    """What commands looked at so far have changed of a state."""

    def __init__(self, state: ClusterState, level: int) -> None:
        self._state = state
        self._level = level
        self._share = Sharing()
        self._ids: dict[TopicName, UUID | None] = {}
        """Topics that are created; None for one that is deleted."""
        self._partitions: dict[tuple[UUID, int], PartitionState] = {}
        self._configs: dict[Resource, Mapping[str, str]] = {}
        self._features: Mapping[str, int] = state.features

    def each(self, commands: Iterable[Command]) -> Iterator[Message]:
        """The records of all commands, in order."""
        for command in commands:
            match command:
                case CreateTopic(topic, configs):
                    yield from self._create(topic, configs)
                case DeleteTopic(name):
                    yield records.RemoveTopicRecord(topic_id=self._topic_id(name))
                    self._ids[name] = None
                    self._configs[ResourceType.TOPIC, name] = {}
                case BeginDeletion():
                    pass
                case SetPartitions(name, partitions):
                    yield from self._set_partitions(self._topic_id(name), partitions)
                case SetConfigs(resource_type, name, configs):
                    yield from self._set_configs((resource_type, name), configs)
                case SetFeatures(levels):
                    yield from self._set_features(levels)
                case _:
                    raise InexpressibleChange(f"{type(command).__name__} has no record: brokers register themselves")

    def _topic_id(self, name: TopicName) -> UUID:
        found = self._ids[name] if name in self._ids else self._state.topics.ids.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def _create(self, topic: TopicImage, configs: Mapping[str, str]) -> Iterator[Message]:
        self._ids[topic.name] = topic.topic_id
        yield records.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        yield from self._set_configs((ResourceType.TOPIC, topic.name), configs)
        for partition in topic.partitions:
            yield self._create_partition(topic.topic_id, partition)

    def _create_partition(self, topic_id: UUID, image: PartitionImage) -> records.PartitionRecord:
        places = tuple(self._place(broker) for broker in image.replicas)
        record = partition_record(topic_id, PartitionState(image, places, *recorded(image)), self._level)
        self._partitions[topic_id, image.partition] = created(record, self._share)
        return record

    def _place(self, broker_id: BrokerId) -> UUID:
        broker = self._state.brokers.get(broker_id)
        return UNASSIGNED if broker is None else broker.place_of_new_replicas()

    def _set_partitions(self, topic_id: UUID, partitions: Sequence[PartitionImage]) -> Iterator[Message]:
        state = self._state.topics.states.get(topic_id)
        for image in partitions:
            before = self._partitions.get((topic_id, image.partition))
            if before is None and state is not None:
                before = state.partitions.get(image.partition)
            if before is None:
                yield self._create_partition(topic_id, image)
            elif before.image != image:
                for record in self._changes(topic_id, before, image):
                    before = changed(before, record, self._share)
                    yield record
                self._partitions[topic_id, image.partition] = before

    def _changes(
        self, topic_id: UUID, before: PartitionState, after: PartitionImage
    ) -> Iterator[records.PartitionChangeRecord]:
        """The change, and then one for each further epoch that it is ahead."""
        image = before.image
        bumps = after.leader_epoch - image.leader_epoch
        steps = after.partition_epoch - image.partition_epoch
        if not 0 <= bumps <= _MOST_STEPS or not 0 <= steps <= _MOST_STEPS:
            raise InexpressibleChange(
                f"partition {after.partition} goes from leader epoch {image.leader_epoch} to {after.leader_epoch}, and "
                f"from partition epoch {image.partition_epoch} to {after.partition_epoch}, which no records do"
            )
        first = self._change(topic_id, before, after)
        if self._is_led_anew(image, after):
            first.leader = after.leader
        read = changed(before, first, self._share)
        # Genuine Kafka complains of an eligible replica that is in sync: the record names those that remain.
        if _facts(read.image) != _facts(after) or not set(read.eligible).isdisjoint(read.image.isr):
            self._name_facts(first, before, after)
        yield first
        for nth in range(1, max(bumps, steps)):
            further = records.PartitionChangeRecord(partition_id=after.partition, topic_id=topic_id)
            if nth < bumps:
                further.leader = after.leader
            yield further

    def _is_led_anew(self, before: PartitionImage, after: PartitionImage) -> bool:
        if before.leader != after.leader or before.leader_epoch != after.leader_epoch:
            return True
        return shrinking_bumps_leader_epoch(self._level) and not set(before.isr) <= set(after.isr)

    def _change(self, topic_id: UUID, before: PartitionState, after: PartitionImage) -> records.PartitionChangeRecord:
        image = before.image
        fields: dict[str, Any] = {}
        if after.isr != image.isr:
            fields["isr"] = [*after.isr]
        if after.replicas != image.replicas:
            fields["replicas"] = [*after.replicas]
            if self._level >= DIRECTORIES_SINCE:
                fields["directories"] = self._placed_anew(before, after.replicas)
        if after.removing != image.removing:
            fields["removing_replicas"] = [*after.removing]
        if after.adding != image.adding:
            fields["adding_replicas"] = [*after.adding]
        if recorded(after)[0] == RECOVERED != before.recovery and not _stays_uncertain(before, after):
            fields["leader_recovery_state"] = RECOVERED
        return records.PartitionChangeRecord(partition_id=after.partition, topic_id=topic_id, **fields)

    def _name_facts(self, record: records.PartitionChangeRecord, before: PartitionState, after: PartitionImage) -> None:
        """Have the record say which replicas could lead, where it is not the same as before."""
        recovery, eligible, last_known = recorded(after)
        if recovery != before.recovery:
            record.leader_recovery_state = recovery
        if self._level < ELIGIBLE_SINCE:
            return
        if eligible != before.eligible:
            record.eligible_leader_replicas = [*eligible]
        if last_known != before.last_known:
            record.last_known_elr = [*last_known]

    def _placed_anew(self, before: PartitionState, replicas: Sequence[BrokerId]) -> list[UUID]:
        known = dict(zip(before.image.replicas, before.directories, strict=True))
        return [known.get(broker) or self._place(broker) for broker in replicas]

    def _set_configs(self, resource: Resource, configs: Mapping[str, str]) -> Iterator[Message]:
        known = self._configs.get(resource)
        if known is None:
            known = self._state.configs.get(resource, {})
        for key in known:
            if key not in configs:
                yield setting_record(resource, key, None)
        for key, value in configs.items():
            if known.get(key) != value:
                yield setting_record(resource, key, value)
        self._configs[resource] = configs

    def _set_features(self, levels: Mapping[str, int]) -> Iterator[Message]:
        if METADATA_VERSION in self._features and not levels.get(METADATA_VERSION):
            raise InexpressibleChange(f"a cluster cannot be without a level of {METADATA_VERSION}")
        for feature in (*levels, *(known for known in self._features if known not in levels)):
            level = levels.get(feature, 0)
            if level != self._features.get(feature, 0):
                yield records.FeatureLevelRecord(name=feature, feature_level=level)
        self._features = levels


def _facts(image: PartitionImage) -> tuple[object, ...]:
    """Those of a partition that stand in its recovery state and in the replicas that are not in sync."""
    return image.last_known_leader, image.departed, image.eligible_count, image.begins_anew


def _stays_uncertain(before: PartitionState, after: PartitionImage) -> bool:
    """Whether a leader recovers for a reason that the image does not have, after an unclean election by Kafka.

    It has recovered when there is another leader, or when a replica has come into sync with it.
    """
    if before.recovery == RECOVERED or recorded(before.image)[0] == RECOVERING:
        return False
    is_same = before.image.leader == after.leader and before.image.leader_epoch == after.leader_epoch
    return after.leader == NO_LEADER or (is_same and len(after.isr) <= 1)
