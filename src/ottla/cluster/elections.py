"""PURE. Elects leaders when brokers come and go, stop, or are reassigned: an image in, its changes out.

    a broker has gone       its partitions go to the first replica that is in sync and alive; it leaves the in-sync sets
    a broker has come       partitions without a leader get one
    a broker wants to stop, or its address refuses connections   as if it had gone, while its session lasts
    a log directory is full   the same for the replicas in it, until there is room again
    a disk was replaced     a broker without its replica does not lead it; if all in-sync ones lack it, an eligible one
    does
    by the clock            leadership goes back to the preferred replicas
    an election is requested   the preferred replica leads, or any that is alive

A broker that lacks one of its replicas reports it, and counts as one whose log directory has failed
(ADR 21). `departures.py` keeps the other replicas with all records. With `eligible.leader.replicas.version` 1, any of
those leads as soon as no in-sync one is alive, and the last in-sync one is among them when it goes (KIP-966).
Without an in-sync replica a partition has no leader, unless `unclean.leader.election.enable` lets one that may
lack records lead. When the last in-sync replicas fail together, the in-sync set shrinks to the last leader: only it
certainly has everything on its disk, since the power may have failed (KIP-966 waits for the last known leader
likewise).
An elected broker may be dead already while its session still lives. Until it has confirmed, it has not led, and the
previous leader is the one with all records (ADR 15).
Source: Kafka 3.9, `PartitionLeaderElectionAlgorithms`, `KafkaController`.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from ottla.cluster.commands import SetPartitions
from ottla.cluster.controller import ElectionType, with_leader
from ottla.cluster.image import NO_LEADER, NOT_YET_LED, MetadataImage, PartitionImage, Replica, TopicImage
from ottla.errors import ApiError, ErrorCode
from ottla.errors import UnknownTopicOrPartition as UnknownTopic
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicName, TopicPartition

AllowsUnclean = Callable[[TopicName], bool]
"""May a replica of this topic lead that is not in sync? (`unclean.leader.election.enable`)"""


class Unclean(NamedTuple):
    """A leader was elected that was not in sync: what it lacks is lost."""

    topic_partition: TopicPartition
    leader: BrokerId
    in_sync: tuple[BrokerId, ...]
    """Those that had everything, none of them alive."""


class Outages(NamedTuple):
    """What makes replicas of living brokers unfit to lead; nothing of it is in the store."""

    stopping: frozenset[BrokerId] = frozenset()
    """Brokers that want to stop."""
    offline: frozenset[Replica] = frozenset()
    """Replicas in log directories that have failed."""
    silent: frozenset[BrokerId] = frozenset()
    """Brokers whose address refuses connections, while their session lasts (ADR 16)."""
    full: frozenset[Replica] = frozenset()
    """Replicas in log directories that have no room left."""

    def is_going(self, broker_id: BrokerId, topic: TopicName, partition: PartitionId) -> bool:
        """Whether this replica leads, and is in sync, only where no other one can."""
        return broker_id in self.stopping or broker_id in self.silent or (broker_id, topic, partition) in self.full


NO_OUTAGES: Final = Outages()


class Elected(NamedTuple):
    """What changes, and what that costs."""

    changes: list[SetPartitions]
    unclean: list[Unclean]


def elect_where_needed(
    image: MetadataImage,
    outages: Outages,
    allows_unclean: AllowsUnclean,
    touched: Collection[TopicName] | None = None,
) -> Elected:
    """Give every partition a leader that is alive and fit, and take replicas that are not out of the in-sync sets.

    Only partitions that need it change. `touched` names the topics to look at; None for all.
    """
    changes: list[SetPartitions] = []
    unclean: list[Unclean] = []
    topics = image.topics.values() if touched is None else [image.topics[name] for name in touched]
    for topic in topics:
        changed: list[PartitionImage] = []
        for partition in topic.partitions:
            now = _repaired(image, topic, partition, outages, allows_unclean)
            if now is partition:
                continue
            changed.append(now)
            # The previous leader leads again where the elected one has never confirmed: it lacks nothing.
            has_all = (NO_LEADER, *partition.isr, *partition.eligible, partition.last_known_leader)
            complete = partition.isr or partition.eligible or (partition.last_known_leader,)
            if partition.partition_epoch != NOT_YET_LED and now.leader not in has_all:
                unclean.append(Unclean(TopicPartition(topic.name, partition.partition), now.leader, complete))
        if changed:
            changes.append(SetPartitions(topic.name, tuple(changed)))
    return Elected(changes, unclean)


def fit_replicas(
    image: MetadataImage, topic: TopicName, partition: PartitionImage, outages: Outages
) -> tuple[BrokerId, ...]:
    """The replicas that are alive, and whose log directory has not failed."""
    return tuple(
        replica
        for replica in partition.replicas
        if replica in image.brokers and (replica, topic, partition.partition) not in outages.offline
    )


def _repaired(
    image: MetadataImage,
    topic: TopicImage,
    partition: PartitionImage,
    outages: Outages,
    allows_unclean: AllowsUnclean,
) -> PartitionImage:
    alive = fit_replicas(image, topic.name, partition, outages)
    if partition.partition_epoch == NOT_YET_LED:
        return _first_leader(partition, alive) if alive else partition
    leader, isr = partition.leader, partition.isr
    able = tuple(replica for replica in alive if not outages.is_going(replica, topic.name, partition.partition))
    in_sync = tuple(replica for replica in isr if replica in able)
    if leader in able:
        # A replica out of sync stays out for a while: only a leader adds it again.
        return partition if in_sync == isr else with_leader(image, partition, leader, in_sync)
    successor = next((replica for replica in partition.replicas if replica in in_sync), None)
    if successor is not None:
        return _unless_its_disk_failed(with_leader(image, partition, successor, in_sync), topic.name, outages)
    # Departing replicas stay in the set as long as no other can take over.
    going_on = tuple(replica for replica in isr if replica in alive)
    if leader in going_on:
        return partition if going_on == isr else with_leader(image, partition, leader, going_on)
    stopping = next((replica for replica in partition.replicas if replica in going_on), None)
    if stopping is not None:
        return _unless_its_disk_failed(with_leader(image, partition, stopping, going_on), topic.name, outages)
    if _lacks_nothing(partition, partition.last_known_leader) and partition.last_known_leader in alive:
        return _led_again(image, partition)
    eligible = tuple(replica for replica in able if replica in partition.eligible)
    if eligible and (image.elects_eligible or not isr):
        return _unless_its_disk_failed(with_leader(image, partition, eligible[0], eligible[:1]), topic.name, outages)
    if eligible and _have_lost_it(image, topic.name, partition, outages):
        return _led_uncleanly(image, partition, _most_complete(partition, eligible))
    if able and allows_unclean(topic.name):
        return _led_uncleanly(image, partition, _most_complete(partition, able))
    if leader == NO_LEADER and not (isr and image.elects_eligible):
        return partition
    return _led_by_nobody(image, partition)


def _unless_its_disk_failed(partition: PartitionImage, topic: TopicName, outages: Outages) -> PartitionImage:
    """Do not wait for a previous leader whose log directory has failed."""
    if (partition.last_known_leader, topic, partition.partition) in outages.offline:
        return partition._replace(last_known_leader=NO_LEADER)
    return partition


def _lacks_nothing(partition: PartitionImage, last_leader: BrokerId) -> bool:
    """Whether no other replica may have more than the previous leader: the elected one has not confirmed that it leads,
    or nobody leads and no replica is eligible (KIP-966's last known leader)."""
    return bool(partition.isr) or last_leader in partition.eligible or not partition.eligible


def _led_again(image: MetadataImage, partition: PartitionImage) -> PartitionImage:
    """The elected broker has never led: the previous leader, which certainly has all records, leads again."""
    return with_leader(image, partition, partition.last_known_leader, (partition.last_known_leader,))


def _have_lost_it(image: MetadataImage, topic: TopicName, partition: PartitionImage, outages: Outages) -> bool:
    """Whether all replicas that would be waited for have reported that they lost the partition."""
    sure = partition.last_known_leader
    waited_for = partition.isr if sure == NO_LEADER else (*partition.isr, sure)
    return all(
        replica in image.brokers and (replica, topic, partition.partition) in outages.offline for replica in waited_for
    )


def _most_complete(partition: PartitionImage, able: tuple[BrokerId, ...]) -> BrokerId:
    """The replica that left the in-sync set last, of those that are not in sync."""
    return next((replica for replica in partition.departed if replica in able), able[0])


def _led_uncleanly(image: MetadataImage, partition: PartitionImage, leader: BrokerId) -> PartitionImage:
    return with_leader(image, partition, leader, (leader,))._replace(last_known_leader=NO_LEADER)


def _led_by_nobody(image: MetadataImage, partition: PartitionImage) -> PartitionImage:
    """The in-sync set keeps the brokers to wait for: the last leader, not one that was elected without confirming. With
    `eligible.leader.replicas.version` 1 it is empty, and they are eligible."""
    isr = partition.isr
    sure = partition.last_known_leader
    if sure == NO_LEADER:
        sure = partition.leader if partition.leader in isr else NO_LEADER
    if image.elects_eligible:
        # Those in sync become eligible: they are waited for until they register as brokers that may have lost records.
        last = next(replica for replica in (sure, *isr, partition.leader) if replica != NO_LEADER)
        return with_leader(image, partition, NO_LEADER, ())._replace(last_known_leader=last)
    # One that is there, but may not lead, has lost its disk: it is not the one to be waited for.
    return with_leader(image, partition, NO_LEADER, isr if sure == NO_LEADER or sure in image.brokers else (sure,))


def _first_leader(partition: PartitionImage, alive: tuple[BrokerId, ...]) -> PartitionImage:
    return partition._replace(leader=alive[0], leader_epoch=LeaderEpoch(0), isr=alive, partition_epoch=0)


def led_by(image: MetadataImage, broker_id: BrokerId) -> Iterable[tuple[TopicImage, PartitionImage]]:
    """The partitions that a broker leads, of those that others hold, too: it keeps them from stopping unnoticed."""
    for topic in image.topics.values():
        for partition in topic.partitions:
            if partition.leader == broker_id and len(partition.replicas) > 1:
                yield topic, partition


def may_hand_over(image: MetadataImage, outages: Outages, broker_id: BrokerId) -> bool:
    """Whether a broker leads something that another in-sync replica could lead."""
    return any(
        replica != broker_id
        and replica in partition.isr
        and not outages.is_going(replica, topic.name, partition.partition)
        for topic, partition in led_by(image, broker_id)
        for replica in fit_replicas(image, topic.name, partition, outages)
    )


def return_to_preferred(image: MetadataImage, outages: Outages, tolerated_percent: float) -> list[SetPartitions]:
    """Give leadership back to preferred replicas that are alive and in sync, where a broker has lost too much of it.

    A broker's imbalance is the share of the partitions that it should lead and does not; `tolerated_percent` is
    leader.imbalance.per.broker.percentage. Partitions that are being reassigned are left alone.
    """
    should_lead: dict[BrokerId, int] = {}
    away: dict[BrokerId, list[tuple[TopicName, PartitionImage]]] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            preferred = partition.replicas[0]
            should_lead[preferred] = should_lead.get(preferred, 0) + 1
            if partition.leader != preferred:
                away.setdefault(preferred, []).append((topic.name, partition))
    changes: dict[TopicName, list[PartitionImage]] = {}
    for preferred, partitions in away.items():
        if 100 * len(partitions) <= tolerated_percent * should_lead[preferred]:
            continue
        for name, partition in partitions:
            able = fit_replicas(image, name, partition, outages)
            if (
                preferred in able
                and preferred in partition.isr
                and not outages.is_going(preferred, name, partition.partition)
                and not partition.is_reassigned
            ):
                changes.setdefault(name, []).append(with_leader(image, partition, preferred, partition.isr))
    return [SetPartitions(name, tuple(partitions)) for name, partitions in changes.items()]


def plan_election(
    image: MetadataImage, outages: Outages, topic_partition: TopicPartition, election: ElectionType
) -> SetPartitions:
    """Elect a leader on request.

    An unclean election takes the live replica that was last in sync. If no replica with records is left, the first
    live one starts empty: nothing else brings such a partition back.

    Raises `UnknownTopicOrPartition`, or `ApiError`: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
    ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    topic = image.topics.get(topic_partition.topic)
    if topic is None:
        raise UnknownTopic(f"No such topic as {topic_partition.topic}")
    partition = image.partition(topic_partition)
    if partition is None:
        raise UnknownTopic(f"No such partition as {topic_partition}")
    preferred = partition.replicas[0]
    fit = fit_replicas(image, topic.name, partition, outages)
    if partition.leader in fit and (election is ElectionType.UNCLEAN or partition.leader == preferred):
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    able = tuple(replica for replica in fit if not outages.is_going(replica, topic.name, partition.partition))
    if election is ElectionType.PREFERRED:
        if preferred not in able or preferred not in partition.isr:
            raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
        return SetPartitions(topic.name, (with_leader(image, partition, preferred, partition.isr),))
    in_sync = tuple(replica for replica in partition.isr if replica in able)
    if in_sync:
        return SetPartitions(topic.name, (with_leader(image, partition, in_sync[0], in_sync),))
    if _lacks_nothing(partition, partition.last_known_leader) and partition.last_known_leader in able:
        return SetPartitions(topic.name, (_led_again(image, partition),))
    # Where no other is there, one without room leads: it can be read.
    lacking = able or tuple(replica for replica in fit if replica not in outages.stopping | outages.silent)
    if lacking:
        return SetPartitions(topic.name, (_led_uncleanly(image, partition, _most_complete(partition, lacking)),))
    empty = next((replica for replica in partition.replicas if replica in image.brokers), None)
    if fit or empty is None:
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    return SetPartitions(topic.name, (_led_uncleanly(image, partition, empty)._replace(begins_anew=True),))


def renew_after_restarts(image: MetadataImage, modified: Callable[[TopicName, int], int]) -> list[SetPartitions]:
    """The consequences of restarts that no controller has seen: a broker's epoch is above the number of the transaction
    that `modified` a partition last.

    Such a broker may have lost unsynced records. If it leads, it gets a new leader epoch, since followers
    could hold other records of the same one. If it does not lead, it leaves the in-sync set: another live replica has
    all
    committed records, or the leader has them on its disk, and is waited for. A broker that was elected, and restarted
    before
    it confirmed, has never led, and counts like any other restarted one.
    """
    changes: list[SetPartitions] = []
    for topic in image.topics.values():
        renewed: list[PartitionImage] = []
        for partition in topic.partitions:
            if partition.partition_epoch == NOT_YET_LED:
                continue
            since = modified(topic.name, partition.partition)
            restarted = {broker for broker in partition.isr if _epoch(image, broker) > since} - {partition.leader}
            in_sync = tuple(replica for replica in partition.isr if replica not in restarted)
            has_restarted = _epoch(image, partition.leader) > since
            if has_restarted and partition.last_known_leader != NO_LEADER:
                renewed.append(_led_by_another(image, partition, in_sync))
                continue
            others_are_sure = partition.leader in in_sync or any(replica in image.brokers for replica in in_sync)
            if has_restarted or (restarted and others_are_sure):
                renewed.append(with_leader(image, partition, partition.leader, in_sync))
        if renewed:
            changes.append(SetPartitions(topic.name, tuple(renewed)))
    return changes


def _led_by_another(image: MetadataImage, partition: PartitionImage, in_sync: tuple[BrokerId, ...]) -> PartitionImage:
    """Elect another than the unconfirmed leader; `in_sync` are the replicas that have not restarted, perhaps including
    it.
    """
    others = tuple(replica for replica in in_sync if replica != partition.leader)
    successor = next(
        (replica for replica in partition.replicas if replica in others and replica in image.brokers), None
    )
    if successor is not None:
        return with_leader(image, partition, successor, others)
    if partition.last_known_leader in image.brokers:
        return _led_again(image, partition)
    return _led_by_nobody(image, partition)


def _epoch(image: MetadataImage, broker_id: BrokerId) -> int:
    """-1 for one that is not alive."""
    broker = image.brokers.get(broker_id)
    return -1 if broker is None else broker.epoch
