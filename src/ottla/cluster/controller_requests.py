"""PURE. The controller's requests to the brokers after a change: two images in, requests for each broker out.

    leader, epoch or replicas changed   LeaderAndIsr to the replicas' brokers
    anything changed                    UpdateMetadata to every broker
    no replica any more, topic deleted  StopReplica, which deletes the files
    broker new, or restarted            everything about it, and everything that it needs

Source: Kafka 3.9, `ControllerChannelManager.AbstractControllerBrokerRequestBatch`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.cluster.image import (
    NO_LEADER,
    NOT_YET_LED,
    SECURITY_PROTOCOL_CODES,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    Replica,
    TopicImage,
)
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, PartitionId, TopicId, TopicPartition
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ALL_STATES: Final = 2
"""The type of a request that names everything: what it does not name is not there any more."""
SOME_STATES: Final = 1
LEADER_WHEN_DELETED: Final = -2
EPOCH_WHEN_DELETED: Final = -2
PLAINTEXT: Final = 0
RECOVERED: Final = 0
RECOVERING: Final = 1
"""The leader has to confirm that it leads. (KIP-704 requires the same after an unclean election.)"""

LACKS_ROOM: Final = ErrorCode.LEADER_NOT_AVAILABLE
"""A broker's answer to LeaderAndIsr for a replica whose log directory is full: another replica is to lead, and this one
is to leave the in-sync set, while others are in it. (Genuine controllers look at KAFKA_STORAGE_ERROR alone.)"""

Withheld = Mapping[TopicId, Collection[PartitionId]]
NOTHING: Final[Withheld] = {}

Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class Sender(NamedTuple):
    """The controller that speaks."""

    controller_id: BrokerId
    controller_epoch: int
    listener: str
    """The name of the listener at which brokers reach each other."""


def requests_after(
    sender: Sender, old: MetadataImage, new: MetadataImage, withheld: Withheld = NOTHING
) -> dict[BrokerId, list[Request]]:
    """The requests for each live broker, in this order, after `old` has become `new`.

    Brokers that are not in `old`, or there with another epoch, are sent everything; the others no UpdateMetadata of the
    partitions that are `withheld`.
    """
    fresh = {
        broker.broker_id
        for broker in new.brokers.values()
        if broker.broker_id not in old.brokers or old.brokers[broker.broker_id].epoch != broker.epoch
    }
    changed, gone = _changes(old, new)
    recreated = [topic for topic in gone if topic.name in new.topics]
    deleted = [topic for topic in gone if topic.name not in new.topics]
    shown = _without(changed, withheld)
    planned: dict[BrokerId, list[Request]] = {}
    same_brokers = old.brokers == new.brokers
    for broker in new.brokers.values():
        requests: list[Request] = []
        if broker.broker_id in fresh:
            requests.append(_update_metadata(sender, broker, new, _everything(new), (), ALL_STATES))
            requests.append(_leader_and_isr(sender, broker, new, _everything(new), ALL_STATES, old))
        else:
            stopped = _stopped(broker.broker_id, old, (), recreated)
            if stopped:  # by name, so before the new topic's replicas are there
                requests.append(_stop_replica(sender, broker, stopped, {}))
            moved = [(topic, [part for part in parts if _has_moved(old, topic, part)]) for topic, parts in changed]
            of_broker = _held_by(broker.broker_id, moved)
            if of_broker:
                requests.append(_leader_and_isr(sender, broker, new, of_broker, SOME_STATES, old))
            if shown or gone or not same_brokers:
                requests.append(_update_metadata(sender, broker, new, shown, gone))
            stopped = _stopped(broker.broker_id, old, changed, deleted)
            if stopped:
                requests.append(_stop_replica(sender, broker, stopped, {}))
        if requests:
            planned[broker.broker_id] = requests
    return planned


class OwnChanges(NamedTuple):
    """A broker's own part of a change that it reads in the log of a quorum."""

    lead_and_follow: LeaderAndIsrRequest | None
    stop: StopReplicaRequest | None
    partitions: Collection[tuple[UUID, int]] | None
    """Its partitions that have changed in any way, by topic id; None for all."""


def own_changes(
    sender: Sender,
    broker: BrokerImage,
    old: MetadataImage,
    new: MetadataImage,
    *,
    everything: bool,
    lost: Collection[tuple[UUID, int]] = (),
    due: Collection[tuple[UUID, int]] = (),
    is_stopping: bool = False,
) -> OwnChanges:
    """What a controller would send the broker about its replicas; `everything` when it has just been started.

    `lost` are partitions, by topic id, that it could not hold: it tries again with each change of them, since a replica
    may be created anew once a leader has confirmed that it has everything. `due` are those that it tries again now, for
    no change of theirs. A replica of a topic that was deleted and created again is not stopped: to hold the new one
    removes it, and the name would stop the new one. One that `is_stopping` does not begin to follow what it is not in
    sync with, as in Kafka: to copy from the new leaders would keep them busy, for nothing.
    """
    if everything:
        return OwnChanges(_leader_and_isr(sender, broker, new, _everything(new), ALL_STATES, old), None, None)
    own = broker.broker_id
    changed, gone = _changes(old, new, own)
    # A quorum's controller changes in-sync sets by itself, which their leaders know from the log alone.
    moved = [
        (topic, [part for part in parts if part.leader == own or _has_moved(old, topic, part)])
        for topic, parts in changed
    ]
    named = {(topic.topic_id, part.partition) for topic, parts in moved for part in parts}
    held = _held_by(own, [*moved, *_again(old, new, {each for each in lost if each not in named}, due)])
    kept = {TopicPartition(topic.name, part.partition) for topic, parts in held for part in parts}
    stopped = {replica: epoch for replica, epoch in _stopped(own, old, changed, gone).items() if replica not in kept}
    released: dict[TopicPartition, int] = {}
    if is_stopping:
        released = {
            TopicPartition(topic.name, part.partition): int(part.leader_epoch)
            for topic, parts in held
            for part in parts
            if own not in part.isr
        }
        held = _only(held, lambda part: own in part.isr)
    return OwnChanges(
        _leader_and_isr(sender, broker, new, held, SOME_STATES, old) if held else None,
        _stop_replica(sender, broker, stopped, released) if stopped or released else None,
        _touched(old, new, own),
    )


def announcements(sender: Sender, image: MetadataImage, parts: Withheld) -> dict[BrokerId, list[Request]]:
    """What has every broker learn of partitions that were withheld, as far as they are still there."""
    shown = [
        (topic, [topic.partitions[number] for number in sorted(numbers)])
        for topic_id, numbers in parts.items()
        if (topic := image.topics_by_id.get(topic_id)) is not None
    ]
    if not shown:
        return {}
    return {broker.broker_id: [_update_metadata(sender, broker, image, shown, ())] for broker in image.brokers.values()}


def probe_requests(sender: Sender, image: MetadataImage, broker_id: BrokerId) -> dict[BrokerId, list[Request]]:
    """Send a broker all its replicas again, so that it reports those it has lost."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return {}
    held = _held_by(broker_id, _everything(image))
    return {broker_id: [_leader_and_isr(sender, broker, image, held, SOME_STATES, image)]} if held else {}


def waiting_to_follow(image: MetadataImage) -> dict[Replica, int]:
    """Replicas that live brokers could not create, where that is safe by now, with the partition epoch: a
    replica lost with its disk can then be created anew."""
    waiting: dict[Replica, int] = {}
    for broker_id, topic, number in image.failed_replicas:
        part = image.partition(TopicPartition(topic, number))
        if (
            part is not None
            and broker_id in image.brokers
            and broker_id in part.replicas
            and broker_id not in part.isr
            and part.leader != NO_LEADER == part.last_known_leader
        ):
            waiting[broker_id, topic, number] = part.partition_epoch
    return waiting


def requests_to_follow(
    sender: Sender, image: MetadataImage, replicas: Iterable[Replica]
) -> dict[BrokerId, list[Request]]:
    """Requests that make brokers retry to create replicas."""
    held: dict[BrokerId, _Parts] = {}
    for broker_id, topic, number in sorted(replicas):
        found = image.topics[topic]
        held.setdefault(broker_id, []).append((found, [found.partitions[number]]))
    return {
        broker_id: [_leader_and_isr(sender, image.brokers[broker_id], image, parts, SOME_STATES, image)]
        for broker_id, parts in held.items()
    }


def release_requests(sender: Sender, image: MetadataImage, broker_id: BrokerId) -> dict[BrokerId, list[Request]]:
    """Requests that make a stopping broker stop following; it keeps its files."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return {}
    released = {
        TopicPartition(topic.name, part.partition): int(part.leader_epoch)
        for topic in image.topics.values()
        for part in topic.partitions
        if broker_id in part.replicas and part.leader != broker_id
    }
    return {broker_id: [_stop_replica(sender, broker, {}, released)]} if released else {}


_Parts = list[tuple[TopicImage, list[PartitionImage]]]


def _everything(image: MetadataImage) -> _Parts:
    return [(topic, list(topic.partitions)) for topic in image.topics.values()]


def _changes(old: MetadataImage, new: MetadataImage, leader: BrokerId | None = None) -> tuple[_Parts, list[TopicImage]]:
    """Partitions that are new or different, or offline somewhere else, and topics that are gone.

    A new partition epoch alone is a difference to `leader`, whose proposals name it.
    """
    failures = {(topic, partition) for _, topic, partition in old.failed_replicas ^ new.failed_replicas}
    if old.topics is new.topics and not failures:
        return [], []
    failing = {topic for topic, _ in failures}
    changed: _Parts = []
    for name, topic in new.topics.items():
        before = old.topics.get(name)
        if before is topic and name not in failing:
            continue
        known = before.partitions if before is not None and before.topic_id == topic.topic_id else ()
        parts = [
            part
            for part in topic.partitions
            if part.partition >= len(known)
            or _differs(known[part.partition], part)
            or (part.leader == leader and part.partition_epoch != known[part.partition].partition_epoch)
            or (name, part.partition) in failures
        ]
        if parts:
            changed.append((topic, parts))
    gone = [topic for topic in old.topics.values() if topic.topic_id not in new.topics_by_id]
    return changed, gone


def _touched(old: MetadataImage, new: MetadataImage, own: BrokerId) -> list[tuple[UUID, int]]:
    """The broker's partitions that are new or have changed in any way, by topic id."""
    if old.topics is new.topics:
        return []
    found: list[tuple[UUID, int]] = []
    for name, topic in new.topics.items():
        before = old.topics.get(name)
        if before is not topic:
            known = before.partitions if before is not None and before.topic_id == topic.topic_id else ()
            found += [
                (topic.topic_id, part.partition)
                for part in topic.partitions
                if own in part.replicas and (part.partition >= len(known) or known[part.partition] is not part)
            ]
    return found


def _without(parts: _Parts, withheld: Withheld) -> _Parts:
    if not withheld:
        return parts
    left = [
        (topic, [part for part in some if part.partition not in withheld.get(topic.topic_id, ())])
        for topic, some in parts
    ]
    return [(topic, some) for topic, some in left if some]


def _differs(before: PartitionImage, part: PartitionImage) -> bool:
    """Whether more has happened than that the leader has confirmed that it leads."""
    if before.last_known_leader == part.last_known_leader and before.begins_anew == part.begins_anew:
        return before != part
    return _unless_decided(before, part) != part


def _unless_decided(before: PartitionImage, part: PartitionImage) -> PartitionImage:
    """`before`, with what only controllers have to know as it is in `part`."""
    return before._replace(
        partition_epoch=part.partition_epoch,
        last_known_leader=part.last_known_leader,
        departed=part.departed,
        eligible_count=part.eligible_count,
        begins_anew=part.begins_anew,
    )


def _has_moved(old: MetadataImage, topic: TopicImage, part: PartitionImage) -> bool:
    """Whether more than the in-sync set has changed, which the leader knows already. A partition without a state yet,
    or
    no longer with one, has no leader."""
    if part.partition_epoch == NOT_YET_LED:
        return False
    before = _before(old, topic, part)
    if before is None:
        return True
    return _unless_decided(before, part)._replace(isr=part.isr) != part


def _before(old: MetadataImage, topic: TopicImage, part: PartitionImage) -> PartitionImage | None:
    known = old.topics_by_id.get(topic.topic_id)
    return None if known is None or part.partition >= len(known.partitions) else known.partitions[part.partition]


def _again(
    old: MetadataImage, new: MetadataImage, lost: Iterable[tuple[UUID, int]], due: Collection[tuple[UUID, int]]
) -> _Parts:
    """The partitions among those not held that are due, or have changed in any way: a confirmation changes nothing
    else."""
    found: _Parts = []
    for topic_id, number in lost:
        topic, before = new.topics_by_id.get(TopicId(topic_id)), old.topics_by_id.get(TopicId(topic_id))
        if topic is None or number >= len(topic.partitions):
            continue
        has_changed = (
            before is None or number >= len(before.partitions) or before.partitions[number] != topic.partitions[number]
        )
        if has_changed or (topic_id, number) in due:
            found.append((topic, [topic.partitions[number]]))
    return found


def _held_by(broker_id: BrokerId, parts: _Parts) -> _Parts:
    return _only(parts, lambda part: broker_id in part.replicas)


def _only(parts: _Parts, is_wanted: Callable[[PartitionImage], bool]) -> _Parts:
    wanted = [(topic, [part for part in some if is_wanted(part)]) for topic, some in parts]
    return [(topic, some) for topic, some in wanted if some]


def _leader_and_isr(
    sender: Sender, broker: BrokerImage, image: MetadataImage, parts: _Parts, kind: int, old: MetadataImage
) -> LeaderAndIsrRequest:
    held = _held_by(broker.broker_id, parts)
    leaders = {part.leader for _, some in held for part in some}
    return LeaderAndIsrRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker.epoch,
        type=kind,
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=topic.name,
                topic_id=topic.topic_id,
                partition_states=[
                    LeaderAndIsrPartitionState(
                        partition_index=part.partition,
                        controller_epoch=sender.controller_epoch,
                        leader=part.leader,
                        leader_epoch=part.leader_epoch,
                        isr=list(part.isr),
                        partition_epoch=part.partition_epoch,
                        replicas=list(part.replicas),
                        adding_replicas=list(part.adding),
                        removing_replicas=list(part.removing),
                        is_new=_is_new(broker.broker_id, part, _before(old, topic, part), kind),
                        leader_recovery_state=RECOVERED if part.last_known_leader == NO_LEADER else RECOVERING,
                    )
                    for part in some
                ],
            )
            for topic, some in held
        ],
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=leader, host_name=host, port=port)
            for leader in sorted(leaders)
            if (address := _address(image, leader, sender.listener)) is not None
            for host, port in (address,)
        ],
    )


def _is_new(broker_id: BrokerId, part: PartitionImage, before: PartitionImage | None, kind: int) -> bool:
    """Whether the broker may begin with an empty replica: it has never held it for sure, or an operator wants it to.
    Otherwise a missing replica is lost, and an empty one must not lead."""
    if part.begins_anew and part.leader == broker_id:
        return True
    if before is not None and before.partition_epoch == NOT_YET_LED != part.partition_epoch:
        return True
    if kind == ALL_STATES:
        return broker_id in part.adding and broker_id not in (*part.isr, *part.eligible, part.last_known_leader)
    return before is None or broker_id not in before.replicas


def _address(image: MetadataImage, broker_id: BrokerId, listener: str) -> tuple[str, int] | None:
    broker = image.brokers.get(broker_id)
    return None if broker is None else broker.endpoints.get(listener)


def _update_metadata(
    sender: Sender,
    broker: BrokerImage,
    image: MetadataImage,
    parts: _Parts,
    gone: Iterable[TopicImage],
    kind: int = SOME_STATES,
) -> UpdateMetadataRequest:
    def state(topic: TopicImage, part: PartitionImage, *, deleted: bool = False) -> UpdateMetadataPartitionState:
        return UpdateMetadataPartitionState(
            partition_index=part.partition,
            controller_epoch=sender.controller_epoch,
            leader=LEADER_WHEN_DELETED if deleted else part.leader,
            leader_epoch=EPOCH_WHEN_DELETED if deleted else part.leader_epoch,
            isr=list(part.isr),
            zk_version=part.partition_epoch,
            replicas=list(part.replicas),
            offline_replicas=list(image.offline_replicas(topic.name, part)),
        )

    states = [
        UpdateMetadataTopicState(
            topic_name=topic.name,
            topic_id=topic.topic_id,
            partition_states=[state(topic, part, deleted=True) for part in topic.partitions],
        )
        for topic in gone
    ]
    states += [
        UpdateMetadataTopicState(
            topic_name=topic.name, topic_id=topic.topic_id, partition_states=[state(topic, part) for part in some]
        )
        for topic, some in parts
    ]
    return UpdateMetadataRequest(
        type=kind,
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=states,
        live_brokers=[
            UpdateMetadataBroker(
                id=alive.broker_id,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=port,
                        host=host,
                        listener=name,
                        security_protocol=SECURITY_PROTOCOL_CODES.get(
                            alive.security_protocols.get(name, ""), PLAINTEXT
                        ),
                    )
                    for name, (host, port) in alive.endpoints.items()
                ],
                rack=alive.rack,
            )
            for alive in image.brokers.values()
        ],
    )


def _stopped(
    broker_id: BrokerId,
    old: MetadataImage,
    changed: Iterable[tuple[TopicImage, list[PartitionImage]]],
    gone: Iterable[TopicImage],
) -> Mapping[TopicPartition, int]:
    """The replicas that the broker has to delete, each with the leader epoch in which that was decided."""
    stopped: dict[TopicPartition, int] = {}
    for topic in gone:
        for part in topic.partitions:
            if broker_id in part.replicas:
                stopped[TopicPartition(topic.name, part.partition)] = EPOCH_WHEN_DELETED
    for topic, some in changed:
        for part in some:
            before = _before(old, topic, part)
            if before is not None and broker_id in before.replicas and broker_id not in part.replicas:
                stopped[TopicPartition(topic.name, part.partition)] = part.leader_epoch
    return stopped


def _stop_replica(
    sender: Sender,
    broker: BrokerImage,
    deleted: Mapping[TopicPartition, int],
    released: Mapping[TopicPartition, int],
) -> StopReplicaRequest:
    """Replicas to delete, and those whose files stay, each with a leader epoch."""
    topics: dict[str, list[StopReplicaPartitionState]] = {}
    for replicas, delete in ((deleted, True), (released, False)):
        for (topic, partition), epoch in replicas.items():
            topics.setdefault(topic, []).append(
                StopReplicaPartitionState(partition_index=partition, leader_epoch=epoch, delete_partition=delete)
            )
    return StopReplicaRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=[
            StopReplicaTopicState(topic_name=name, partition_states=states) for name, states in topics.items()
        ],
    )
