"""Taking over log directories that genuine Kafka wrote: finding the topics in them.

<log dir>/meta.properties                          cluster.id, node.id
<log dir>/orders-0/partition.metadata              topic_id
<log dir>/orders-0/leader-epoch-checkpoint         the epochs in which it was written
<log dir>/__cluster_metadata-0/*.log, *.checkpoint all the rest: settings, epochs, producer ids (KRaft)
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from ottla.cluster.commands import Command, CreateTopic, SetConfigs
from ottla.cluster.controller import CLUSTER_METADATA_TOPIC, check_topic_name
from ottla.cluster.image import INTERNAL_TOPICS, PartitionImage, ResourceType, TopicImage
from ottla.cluster.scram_credentials import SCRAM_CODES
from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.client_metrics_settings import CLIENT_METRICS_SETTINGS
from ottla.config.group_settings import GROUP_SETTINGS
from ottla.config.setting import Change
from ottla.config.topic_settings import TOPIC_SETTINGS
from ottla.errors import InvalidConfig, InvalidRequest, InvalidTopic, OttlaError
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName, uuid_from_text
from ottla.quotas.entities import Entity, checked_value, entity_of

if TYPE_CHECKING:
    from ottla.cluster.metadata_log.state import ClusterState

log = logging.getLogger(__name__)

QUORUM_DIRECTORY: Final = f"{CLUSTER_METADATA_TOPIC}-0"
_SNAPSHOT_NAME: Final = re.compile(r"\d{20}-\d{10}\.checkpoint")
_NOT_PARTITIONS: Final = ("-delete", "-stray", "-future")
FIRST_FREE_PRODUCER_ID: Final = 1 << 40
"""Where producer ids go on when it cannot be known which were given out: far above any that were."""


class AdoptionProblem(OttlaError):
    """The log directories cannot be taken over; the message names the directory and the reason."""


@dataclass(slots=True)
class AdoptedTopic:
    """A topic found in log directories; `leader_epochs[n]` is the highest epoch known of partition n."""

    name: TopicName
    topic_id: TopicId | None = None
    leader_epochs: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class AdoptedMetadata:
    """The metadata found in log directories of the cluster they come from."""

    topics: dict[TopicName, AdoptedTopic] = field(default_factory=dict)
    configs: dict[tuple[ResourceType, str], Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0

    def commands(self, broker_id: BrokerId) -> list[Command]:
        """The commands that create these topics and settings in a cluster of one broker."""
        made: list[Command] = []
        for topic in sorted(self.topics.values(), key=lambda found: found.name):
            partitions = tuple(
                PartitionImage(
                    PartitionId(number),
                    leader=broker_id,
                    leader_epoch=LeaderEpoch(topic.leader_epochs[number] + 1),
                    replicas=(broker_id,),
                    isr=(broker_id,),
                    partition_epoch=0,
                )
                for number in range(len(topic.leader_epochs))
            )
            topic_id = topic.topic_id or TopicId(uuid4())
            configs = self.configs.get((ResourceType.TOPIC, topic.name), {})
            made.append(CreateTopic(TopicImage(topic.name, topic_id, partitions), configs))
        made += [
            SetConfigs(resource_type, name, configs)
            for (resource_type, name), configs in self.configs.items()
            if resource_type is not ResourceType.TOPIC
        ]
        return made


def find_adoptable(log_dirs: Iterable[Path], node_id: BrokerId) -> AdoptedMetadata | None:
    """The topics and settings to take over from the log directories; None if they hold no partition.

    If the log of Kafka's quorum is there, it defines topics and settings, and directories of unknown topics
    are set aside. Otherwise every topic found is taken over, with settings that lose nothing.

    Raises `AdoptionProblem` when a topic is incomplete or found twice under different ids, or other brokers are in the
    cluster.
    """
    log_dirs = list(log_dirs)
    found = _find_topics(log_dirs)
    quorum = _read_quorum_log(log_dirs)
    if quorum is not None:
        return _adopt_quorum(quorum, found, node_id)
    if not found:
        return None
    for topic in found.values():
        missing = sorted(set(range(max(topic.leader_epochs) + 1)) - set(topic.leader_epochs))
        if missing:
            raise AdoptionProblem(
                f"topic {topic.name}: no log directory holds partition {', '.join(map(str, missing))}; "
                "directories of one broker of several cannot be taken over alone"
            )
    log.warning(
        "there is no %s with the settings of topics: internal topics are compacted, others are kept forever "
        "(retention.ms=-1) until they are set anew",
        QUORUM_DIRECTORY,
    )
    configs = {
        (ResourceType.TOPIC, str(name)): {"cleanup.policy": "compact"}
        if name in INTERNAL_TOPICS
        else {"retention.ms": "-1"}
        for name in found
    }
    return AdoptedMetadata(found, dict(configs), FIRST_FREE_PRODUCER_ID)


def _find_topics(log_dirs: Sequence[Path]) -> dict[TopicName, AdoptedTopic]:
    found: dict[TopicName, AdoptedTopic] = {}
    places: dict[tuple[TopicName, int], Path] = {}
    for log_dir in log_dirs:
        if not log_dir.is_dir():
            continue
        for directory in sorted(log_dir.iterdir()):
            name, number = _partition_of(directory)
            if name is None:
                continue
            if (name, number) in places:
                raise AdoptionProblem(f"{directory} and {places[name, number]} are the same partition")
            places[name, number] = directory
            topic = found.setdefault(name, AdoptedTopic(name))
            topic.leader_epochs[number] = _last_epoch(directory)
            topic_id = _topic_id(directory)
            if topic_id is not None:
                if topic.topic_id not in (None, topic_id):
                    raise AdoptionProblem(
                        f"{directory / 'partition.metadata'}: other partitions of the topic have another id"
                    )
                topic.topic_id = topic_id
    return found


def _read_quorum_log(log_dirs: Sequence[Path]) -> "ClusterState | None":
    """Replay the newest snapshot of Kafka's metadata and the segments after it; None if there is no such log."""
    directory = next((path for path in (log_dir / QUORUM_DIRECTORY for log_dir in log_dirs) if path.is_dir()), None)
    if directory is None:
        return None
    from ottla.cluster.quorum_log import QuorumLog  # only for directories that come from Kafka

    found = QuorumLog()
    snapshots = sorted(file for file in directory.glob("*.checkpoint") if _SNAPSHOT_NAME.fullmatch(file.name))
    if snapshots:
        # A snapshot's own offsets say nothing; its name is the offset of the first record that is not in it.
        next_offset = int(snapshots[-1].name.partition("-")[0])
        found.read_snapshot(snapshots[-1].read_bytes(), str(snapshots[-1]), next_offset)
    for segment in sorted(directory.glob("*.log")):
        found.read(segment.read_bytes(), str(segment))
    return found.state


def _adopt_quorum(
    quorum: "ClusterState", found: Mapping[TopicName, AdoptedTopic], node_id: BrokerId
) -> AdoptedMetadata:
    others = sorted(quorum.brokers.keys() - {node_id})
    if others:  # even if everything is here: they go on, and what either side acknowledged would be lost on the other
        raise AdoptionProblem(
            f"{QUORUM_DIRECTORY}: the brokers {others} are in the cluster, too. To have this node take part, name "
            "all controllers in controller.quorum.bootstrap.servers or controller.quorum.voters (in the former, if it "
            "is to vote alone from now on). If the other brokers are gone for good, "
            f"move {QUORUM_DIRECTORY} away: topics are then taken over as they are here, without "
            "their settings"
        )
    adopted = AdoptedMetadata(next_producer_id=quorum.next_producer_id or 0)
    for known in quorum.topics.states.values():
        name = known.name
        on_disk = found.get(name)
        epochs: dict[int, int] = {}
        if on_disk is not None and on_disk.topic_id not in (None, known.topic_id):
            on_disk = None  # what is left of an older topic of this name
        for number, recorded in sorted(known.partitions.items()):
            partition = recorded.image
            if on_disk is not None and number in on_disk.leader_epochs:
                epochs[number] = max(partition.leader_epoch, on_disk.leader_epochs[number])
            elif partition.replicas == (node_id,):
                epochs[number] = partition.leader_epoch  # created a moment ago: there is nothing in it yet
            else:
                raise AdoptionProblem(
                    f"topic {name}: partition {number} is kept by brokers {[*partition.replicas]} and in none of the "
                    "log directories; directories of one broker of several cannot be taken over alone"
                )
        adopted.topics[name] = AdoptedTopic(name, known.topic_id, epochs)
    for (resource_type, resource), configs in quorum.configs.items():
        entity = entity_of(resource_type, resource)
        if entity is None:
            kept = _kept_configs(resource_type, resource, configs, node_id)
        else:
            kept = _kept_quotas(entity, configs)
        if kept:
            adopted.configs[resource_type, resource] = kept
    return adopted


def _kept_quotas(entity: Entity, settings: Mapping[str, str]) -> dict[str, str]:
    """The quotas of an entity, and what a user logs in with, that exist here too; a warning names each other one."""
    kept: dict[str, str] = {}
    for key, value in settings.items():
        try:
            kept[key] = value if key in SCRAM_CODES.values() else checked_value(entity, key, float(value))
        except InvalidRequest as problem:
            log.warning("a quota of %s is not taken over: %s", entity.parts(), problem)
    return kept


def _kept_configs(
    resource_type: ResourceType, resource: str, configs: Mapping[str, str], node_id: BrokerId
) -> dict[str, str]:
    """The settings of a resource that exist here too; one warning names the others."""
    kept: dict[str, str] = {}
    for name, value in configs.items():
        setting = None
        if resource_type == ResourceType.TOPIC:
            setting = TOPIC_SETTINGS[name].setting if name in TOPIC_SETTINGS else None
        elif resource_type == ResourceType.BROKER and resource in ("", str(node_id)):
            setting = BROKER_SETTINGS.get(name)
            if setting is not None and setting.change is Change.READ_ONLY:
                setting = None
        elif resource_type == ResourceType.GROUP:
            setting = GROUP_SETTINGS[name].setting if name in GROUP_SETTINGS else None
        elif resource_type == ResourceType.CLIENT_METRICS:
            setting = CLIENT_METRICS_SETTINGS.get(name)
        try:
            if setting is None:
                raise InvalidConfig("Ottla does not act on it here")
            setting.parse(value)
        except InvalidConfig as problem:
            log.warning("%s=%s of %s is not taken over: %s", name, value, resource or "all brokers", problem)
        else:
            kept[name] = value
    return kept


def _partition_of(directory: Path) -> tuple[TopicName | None, int]:
    name, _, number = directory.name.rpartition("-")
    if not number.isdecimal() or directory.name.endswith(_NOT_PARTITIONS) or name == CLUSTER_METADATA_TOPIC:
        return None, 0
    try:
        check_topic_name(name)
    except InvalidTopic:
        return None, 0
    if not directory.is_dir():
        return None, 0
    return TopicName(name), int(number)


def _topic_id(directory: Path) -> TopicId | None:
    """The id in `partition.metadata`, which partitions from before Kafka 2.8 lack."""
    file = directory / "partition.metadata"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "topic_id":
            try:
                topic_id = uuid_from_text(value.strip())
            except ValueError as error:
                raise AdoptionProblem(f"{file}: {error}") from error
            return None if topic_id == UUID(int=0) else TopicId(topic_id)
    raise AdoptionProblem(f"{file}: holds no topic_id")


def _last_epoch(directory: Path) -> int:
    """The last epoch of `leader-epoch-checkpoint`: version, count, then a line of epoch and start offset each."""
    file = directory / "leader-epoch-checkpoint"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return 0
    try:
        epochs: Sequence[int] = [int(line.split()[0]) for line in lines[2:] if line.strip()]
    except ValueError as error:
        raise AdoptionProblem(f"{file}: {error}") from error
    return max(epochs, default=0)
