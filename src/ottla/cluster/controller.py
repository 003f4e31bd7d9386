"""PURE. The controller's decisions: a request and an image in, a change of the image or a refusal out.

Refusals carry Kafka's error codes and, where people or programs have come to know them, Kafka's words.
"""

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.cluster.commands import CreateTopic, DeleteTopic, SetPartitions
from ottla.cluster.image import (
    NO_LEADER,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from ottla.config.broker import ALL_DIRECTORIES, BrokerConfig
from ottla.errors import ApiError, ErrorCode, InvalidConfig, InvalidRequest, InvalidTopic, TopicAlreadyExists
from ottla.errors import UnknownTopicOrPartition as UnknownTopic
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName

MAX_TOPIC_NAME_LENGTH: Final = 249
USE_DEFAULT: Final = -1
MAX_PARTITIONS_AT_ONCE: Final = 10_000

CLUSTER_METADATA_TOPIC: Final = TopicName("__cluster_metadata")
"""Kafka keeps its own metadata in a log of this name; no topic may be called so."""

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


class NewTopic(NamedTuple):
    """A topic to create; `USE_DEFAULT` leaves a number to the broker's settings."""

    name: TopicName
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """Partition and its replicas, if the creator wants to place them."""
    configs: Mapping[str, str | None] = {}


class Registered(NamedTuple):
    """What a quorum of controllers knows of registered brokers, beside the image: with ZooKeeper, nothing."""

    fenced: tuple[BrokerId, ...] = ()
    """Brokers that may get followers where living ones are too few."""
    cordoned: frozenset[BrokerId] = frozenset()
    """Brokers that get no new replicas, since all their log directories are cordoned."""


NOTHING_REGISTERED: Final = Registered()


class ElectionType(IntEnum):
    """Which replicas may be elected (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


# -- topics --------------------------------------------------------------------------------------------------------


def check_topic_name(name: str) -> None:
    """Raise `InvalidTopic`, in Kafka's words, for a name that no topic may have."""
    if not name:
        raise InvalidTopic("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopic(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        raise InvalidTopic(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{MAX_TOPIC_NAME_LENGTH}"
        )
    if _LEGAL_NAME.fullmatch(name) is None:
        raise InvalidTopic(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )


class TakenNames:
    """Names of existing topics, with `.` and `_` made equal, during one decision about new topics."""

    def __init__(self) -> None:
        self._by_unified: dict[str, TopicName] | None = None

    def colliding(self, image: MetadataImage, name: str) -> TopicName | None:
        """A topic whose name differs from `name` only in `.` and `_`; metrics could not tell them apart.

        `image` is read once; names of later decisions have to be added.
        """
        if "." not in name and "_" not in name:
            return None
        if self._by_unified is None:
            self._by_unified = {_unified(other): other for other in image.topics}
        return self._by_unified.get(_unified(name))

    def add(self, name: TopicName) -> None:
        """Another topic has been decided on."""
        if self._by_unified is not None:
            self._by_unified[_unified(name)] = name


def _unified(name: str) -> str:
    return name.replace(".", "_")


def plan_topic(
    image: MetadataImage,
    config: BrokerConfig,
    new: NewTopic,
    *,
    topic_id: TopicId,
    first_broker: int,
    taken: TakenNames | None = None,
    registered: Registered = NOTHING_REGISTERED,
) -> CreateTopic:
    """Decide on a new topic.

    `topic_id` is its id; `first_broker`, any number, rotates the placement of partitions. With `taken`, names of
    earlier
    decisions are known, and this one is added.

    Raises:
        InvalidTopic, TopicAlreadyExists, InvalidConfig, InvalidRequest, ApiError (INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT).
    """
    check_topic_name(new.name)
    if new.name == CLUSTER_METADATA_TOPIC:
        raise InvalidRequest(f"Creation of internal topic {new.name} is prohibited.")
    if new.name in image.topics:
        raise TopicAlreadyExists(f"Topic '{new.name}' already exists.")
    taken = taken or TakenNames()
    colliding = taken.colliding(image, new.name)
    if colliding is not None:
        raise InvalidTopic(f"Topic '{new.name}' collides with existing topic: {colliding}")
    configs = {name: _not_null(name, value) for name, value in new.configs.items()}
    config.topics.check(configs)
    if new.assignments:
        placed = _manual_placement(image, new, registered)
    else:
        placed = _automatic_placement(image, config, new, first_broker, registered)
    partitions = tuple(_new_partition(image, number, replicas) for number, replicas in enumerate(placed))
    taken.add(new.name)
    return CreateTopic(TopicImage(new.name, topic_id, partitions), configs)


def _not_null(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidConfig(f"Null value not supported for topic configs: {name}")
    return value


def _automatic_placement(
    image: MetadataImage, config: BrokerConfig, new: NewTopic, first_broker: int, registered: Registered
) -> list[tuple[BrokerId, ...]]:
    if new.replication_factor < USE_DEFAULT or new.replication_factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if new.partition_count < USE_DEFAULT or new.partition_count == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    count = config.num_partitions if new.partition_count == USE_DEFAULT else new.partition_count
    factor = config.default_replication_factor if new.replication_factor == USE_DEFAULT else new.replication_factor
    try:
        return place_replicas(
            without_cordoned(image, config, registered),
            first_partition=0,
            partition_count=count,
            replication_factor=factor,
            start=first_broker,
            fenced=registered.fenced,
        )
    except ApiError as refused:
        if refused.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
            raise
        raise ApiError(refused.code, f"Unable to replicate the partition {factor} time(s): {refused}") from refused


def _manual_placement(image: MetadataImage, new: NewTopic, registered: Registered) -> list[tuple[BrokerId, ...]]:
    if new.replication_factor != USE_DEFAULT:
        raise InvalidRequest("A manual partition assignment was specified, but replication factor was not set to -1.")
    if new.partition_count != USE_DEFAULT:
        raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
    placed: dict[int, tuple[BrokerId, ...]] = {}
    factor: int | None = None
    for number, replicas in new.assignments:
        if number in placed:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {number}",
            )
        placed[number] = check_assignment(image, replicas, factor, registered)
        factor = len(replicas)
    if sorted(placed) != list(range(len(placed))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [placed[number] for number in range(len(placed))]


def check_assignment(
    image: MetadataImage, replicas: Sequence[int], factor: int | None, registered: Registered = NOTHING_REGISTERED
) -> tuple[BrokerId, ...]:
    """Check the replicas someone wants for one partition; raises `ApiError` INVALID_REPLICA_ASSIGNMENT."""
    problem: str | None = None
    if not replicas:
        problem = "The manual partition assignment includes an empty replica list."
    elif len(set(replicas)) < len(replicas):
        twice = next(replica for replica in replicas if list(replicas).count(replica) > 1)
        problem = f"The manual partition assignment includes the broker {twice} more than once."
    elif factor is not None and len(replicas) != factor:
        problem = (
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )
    for replica in sorted(replicas):
        if replica not in image.brokers and replica not in registered.fenced:
            problem = f"The manual partition assignment includes broker {replica}, but no such broker is registered."
            break
    if problem is None and not any(replica in image.brokers for replica in replicas):
        problem = "All brokers specified in the manual partition assignment are fenced or in controlled shutdown."
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return tuple(BrokerId(replica) for replica in replicas)


def without_cordoned(
    image: MetadataImage, config: BrokerConfig, registered: Registered = NOTHING_REGISTERED
) -> MetadataImage:
    """The image without the brokers that get no new replicas, all their log directories being cordoned (KIP-1066).

    `config` is this broker's. Of other brokers only settings that were altered are known, and only `*` means all.
    """
    cordoned = {
        broker
        for broker in image.brokers
        if image.config(ResourceType.BROKER, str(broker)).get("cordoned.log.dirs", "").strip() == ALL_DIRECTORIES
    }
    cordoned |= registered.cordoned
    if len(config.cordoned_log_dirs) == len(config.log_dirs):
        cordoned.add(config.node_id)
    if not cordoned:
        return image
    return image._replace(brokers={key: broker for key, broker in image.brokers.items() if key not in cordoned})


def place_replicas(
    image: MetadataImage,
    *,
    first_partition: int,
    partition_count: int,
    replication_factor: int,
    start: int,
    fenced: Sequence[BrokerId] = (),
) -> list[tuple[BrokerId, ...]]:
    """Spread partitions over the living brokers: leaders in turn, replicas of one partition on different racks.

    Where those are too few, `fenced` brokers get followers, in turn.

    Raises `ApiError`: INVALID_REPLICATION_FACTOR when there are too few brokers, POLICY_VIOLATION for absurd counts.
    """
    brokers = _alternating_racks(image)
    if not brokers:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        )
    missing = max(0, replication_factor - len(brokers))
    if missing > len(fenced):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers) + len(fenced)} "
            "broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    if partition_count > MAX_PARTITIONS_AT_ONCE:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    count = len(brokers)
    placed: list[tuple[BrokerId, ...]] = []
    for number in range(first_partition, first_partition + partition_count):
        leader = (start + number) % count
        # Followers start one further on every round, so that a broker's followers are not always the same.
        shift = (start + number) // count % max(1, count - 1)
        near = replication_factor - 1 - missing
        followers = [(leader + 1 + (shift + nth) % max(1, count - 1)) % count for nth in range(near)]
        waiting = [fenced[(number + nth) % len(fenced)] for nth in range(missing)]
        placed.append((*(brokers[at] for at in (leader, *followers)), *waiting))
    return placed


def _alternating_racks(image: MetadataImage) -> list[BrokerId]:
    by_rack: dict[str | None, list[BrokerId]] = {}
    for broker_id in sorted(image.brokers):
        by_rack.setdefault(image.brokers[broker_id].rack, []).append(broker_id)
    racks = [by_rack[rack] for rack in sorted(by_rack, key=lambda rack: rack or "")]
    longest = max((len(rack) for rack in racks), default=0)
    return [rack[nth] for nth in range(longest) for rack in racks if nth < len(rack)]


def _new_partition(image: MetadataImage, number: int, replicas: tuple[BrokerId, ...]) -> PartitionImage:
    isr = tuple(replica for replica in replicas if replica in image.brokers)
    return PartitionImage(
        PartitionId(number),
        leader=isr[0] if isr else NO_LEADER,
        leader_epoch=LeaderEpoch(0),
        replicas=replicas,
        isr=isr or replicas[:1],
        partition_epoch=0,
    )


def plan_deletion(image: MetadataImage, config: BrokerConfig, name: TopicName) -> DeleteTopic:
    """Decide on a topic's end; raises `UnknownTopicOrPartition`, or `ApiError` TOPIC_DELETION_DISABLED."""
    if not config.delete_topic_enable:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    if name not in image.topics:
        raise UnknownTopic("This server does not host this topic-partition.")
    return DeleteTopic(name)


def plan_growth(
    image: MetadataImage,
    config: BrokerConfig,
    name: TopicName,
    total: int,
    assignments: Sequence[Sequence[int]] | None,
    registered: Registered = NOTHING_REGISTERED,
) -> SetPartitions:
    """Decide on a topic's growth to `total` partitions; `assignments` places the new ones.

    Raises `UnknownTopicOrPartition`, or `ApiError`: INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopic("This server does not host this topic-partition.")
    current = len(topic.partitions)
    if total == current:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if total < current:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {current} partition(s); {total} would not be an increase.",
        )
    added = total - current
    factor = topic.replication_factor
    if assignments is None:
        open_to_new = without_cordoned(image, config, registered)
        first = topic.partitions[0].replicas[0]
        placed = place_replicas(
            open_to_new,
            first_partition=current,
            partition_count=added,
            replication_factor=factor,
            start=sorted(open_to_new.brokers).index(first) if first in open_to_new.brokers else 0,
            fenced=registered.fenced,
        )
    else:
        if len(assignments) != added:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(assignments)} assignment(s) were "
                "specified.",
            )
        placed = [check_assignment(image, replicas, factor, registered) for replicas in assignments]
    return SetPartitions(
        name, tuple(_new_partition(image, current + nth, replicas) for nth, replicas in enumerate(placed))
    )


# -- leaders -------------------------------------------------------------------------------------------------------


def with_leader(
    image: MetadataImage, partition: PartitionImage, leader: BrokerId, isr: tuple[BrokerId, ...]
) -> PartitionImage:
    """The partition under a leader, in a new leader epoch (KIP-101).

    The previous leader is remembered until the new one has confirmed, if it is a broker that confirms.
    """
    sure = partition.last_known_leader
    if leader != partition.leader:
        sure = partition.leader if sure == NO_LEADER else sure
        successor = image.brokers.get(leader)
        if sure == leader or successor is None or not successor.confirms_leadership:
            sure = NO_LEADER
    return partition._replace(
        leader=leader,
        isr=isr,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        partition_epoch=partition.partition_epoch + 1,
        last_known_leader=sure if sure in partition.replicas else NO_LEADER,
        begins_anew=False,
    )


def plan_new_epochs(image: MetadataImage, broker_id: BrokerId) -> list[SetPartitions]:
    """A new leader epoch for all that `broker_id` leads, or could: what it had not synced may be gone."""
    planned: list[SetPartitions] = []
    for topic in image.topics.values():
        changed = tuple(
            with_leader(image, partition, broker_id, partition.isr)
            for partition in topic.partitions
            if partition.leader == broker_id or (partition.leader == NO_LEADER and broker_id in partition.isr)
        )
        if changed:
            planned.append(SetPartitions(topic.name, changed))
    return planned
