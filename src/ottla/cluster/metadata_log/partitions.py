"""PURE. Partitions as Kafka's metadata records have them, and as the image has them.

Kafka's records have two sets of replicas that are not in sync: the eligible leader replicas, which have all that is
committed, and the last known ones, which may lack some of it (KIP-966). The image's facts stand in them so:

    departed                  the eligible ones, and then the last known ones, as far as they are not in sync
    eligible_count            how many are eligible
    last_known_leader         the first last known one while the leader recovers: it has led, the elected one has not;
                              likewise where nobody leads and no replica is in sync
    begins_anew               likewise, where the first two are the leader itself: it was elected without data. Kafka
                              never names a replica twice

A genuine controller understands this as it should: it elects eligible ones, and a last known one that is alone. So the
last leader is alone where it is waited for; where an eligible one is, or the last leader's disk is lost, the others
follow in their order, for an unclean election. What a genuine controller writes is understood, too: a partition that
nobody leads has the leader before as last known one.
Source: KIP-966 and KIP-858; Kafka 4.3, `PartitionRegistration`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.cluster.image import NO_LEADER, PartitionImage
from ottla.cluster.metadata_log.levels import DIRECTORIES_SINCE, ELIGIBLE_SINCE
from ottla.errors import CorruptMessage
from ottla.ids import BrokerId, LeaderEpoch, PartitionId
from ottla.protocol.metadata_records import NO_LEADER_CHANGE, PartitionChangeRecord, PartitionRecord

MIGRATING: Final = UUID(int=0)
"""The directory of a replica whose broker has not reported any."""
UNASSIGNED: Final = UUID(int=1)
"""The directory of a replica that its broker has not put anywhere yet."""
LOST: Final = UUID(int=2)
"""The directory of a replica that was in one that has failed."""
_FULL: Final = int.from_bytes(b"is full.")

RECOVERED: Final = 0
RECOVERING: Final = 1
"""The leader has to confirm that it leads: it was elected uncleanly (KIP-704), or has not led yet (ADR 15)."""
UNCHANGED: Final = -1

MOST_SHARED: Final = 1 << 14
"""Tuples of each kind that are remembered."""
_NOBODY: Final[tuple[BrokerId, ...]] = ()

Brokers = tuple[BrokerId, ...]


class PartitionState(NamedTuple):
    """A partition in the records: the image's part of it, and what the image does not have."""

    image: PartitionImage
    directories: tuple[UUID, ...]
    """The log directory of each of the replicas, in the same order."""
    recovery: int = RECOVERED
    eligible: Brokers = _NOBODY
    """The eligible leader replicas, as recorded."""
    last_known: Brokers = _NOBODY
    """The last known eligible leader replicas, as recorded."""


class Sharing:
    """Gives equal tuples one object: ten thousand partitions have a few sets of replicas and directories.

    It forgets them all when there are many: over the months nearly every order of replicas comes up.
    """

    def __init__(self) -> None:
        self._brokers: dict[tuple[int, ...], Brokers] = {}
        self._directories: dict[tuple[UUID, ...], tuple[UUID, ...]] = {}

    def brokers(self, found: Iterable[int]) -> Brokers:
        """The brokers, as one object for each set and order of them."""
        key = tuple(found)
        shared = self._brokers.get(key)
        if shared is None:
            if len(self._brokers) >= MOST_SHARED:
                self._brokers.clear()
            shared = self._brokers[key] = tuple(map(BrokerId, key))
        return shared

    def directories(self, found: Sequence[UUID], count: int) -> tuple[UUID, ...]:
        """The directories of `count` replicas; those of brokers that report none are `MIGRATING`."""
        key = tuple(found) if any(found_one != MIGRATING for found_one in found) else (MIGRATING,) * count
        if len(key) != count:
            raise CorruptMessage(f"a partition of {count} replicas has {len(key)} directories")
        if len(self._directories) >= MOST_SHARED:
            self._directories.clear()
        return self._directories.setdefault(key, key)


def marked_full(directory: UUID) -> UUID:
    """The id that stands in the place of a log directory's own while that is full (ADR 17); marked twice, its own id.

    No broker registers it, so that genuine Kafka takes a replica there for one in a failed directory.
    """
    return UUID(int=directory.int ^ _FULL)


def created(record: PartitionRecord, share: Sharing) -> PartitionState:
    """The partition of a record. Raises `CorruptMessage` if its directories are not those of its replicas."""
    recovery = _checked_recovery(record.leader_recovery_state)
    leader = BrokerId(record.leader)
    eligible = share.brokers(record.eligible_leader_replicas or ())
    last_known = share.brokers(record.last_known_elr or ())
    image = PartitionImage(
        PartitionId(record.partition_id),
        leader,
        LeaderEpoch(record.leader_epoch),
        share.brokers(record.replicas),
        share.brokers(record.isr),
        record.partition_epoch,
        share.brokers(record.adding_replicas),
        share.brokers(record.removing_replicas),
    )
    if recovery or eligible or last_known:
        image = _with_departed(image, recovery, eligible, last_known)
    directories = share.directories(record.directories, len(record.replicas))
    return PartitionState(image, directories, recovery, eligible, last_known)


def changed(before: PartitionState, record: PartitionChangeRecord, share: Sharing) -> PartitionState:
    """The partition after a change: its epoch grows with every one, the leader's epoch with every leader.

    Raises `CorruptMessage` if its directories are not those of its replicas.
    """
    image = before.image
    replicas = image.replicas if record.replicas is None else share.brokers(record.replicas)
    directories = before.directories
    if record.directories is not None or record.replicas is not None:
        found = directories if record.directories is None else record.directories
        directories = share.directories(found, len(replicas))
    recovery = before.recovery
    if record.leader_recovery_state != UNCHANGED:
        recovery = _checked_recovery(record.leader_recovery_state)
    eligible, last_known = before.eligible, before.last_known
    if record.eligible_leader_replicas is not None:
        eligible = share.brokers(record.eligible_leader_replicas)
    if record.last_known_elr is not None:
        last_known = share.brokers(record.last_known_elr)
    is_led_anew = record.leader != NO_LEADER_CHANGE
    image = PartitionImage(
        image.partition,
        BrokerId(record.leader) if is_led_anew else image.leader,
        LeaderEpoch(image.leader_epoch + 1) if is_led_anew else image.leader_epoch,
        replicas,
        image.isr if record.isr is None else share.brokers(record.isr),
        image.partition_epoch + 1,
        image.adding if record.adding_replicas is None else share.brokers(record.adding_replicas),
        image.removing if record.removing_replicas is None else share.brokers(record.removing_replicas),
    )
    if recovery or eligible or last_known:
        image = _with_departed(image, recovery, eligible, last_known)
    return PartitionState(image, directories, recovery, eligible, last_known)


def partition_record(topic_id: UUID, partition: PartitionState, level: int) -> PartitionRecord:
    """The record of a whole partition at a level of `metadata.version`, without what that cannot express."""
    image = partition.image
    record = PartitionRecord(
        partition_id=image.partition,
        topic_id=topic_id,
        replicas=[*image.replicas],
        isr=[*image.isr],
        removing_replicas=[*image.removing],
        adding_replicas=[*image.adding],
        leader=image.leader,
        leader_recovery_state=partition.recovery,
        leader_epoch=image.leader_epoch,
        partition_epoch=image.partition_epoch,
    )
    if level >= DIRECTORIES_SINCE:
        record.directories = [*partition.directories]
    if level >= ELIGIBLE_SINCE:
        record.eligible_leader_replicas = [*partition.eligible] or None
        record.last_known_elr = [*partition.last_known] or None
    return record


def without_eligible(before: PartitionState, share: Sharing) -> PartitionState:
    """The partition after ClearElr: itself if it has no such replicas, else changed, in the next partition epoch."""
    if not before.eligible and not before.last_known:
        return before
    nobody = PartitionChangeRecord(
        partition_id=before.image.partition, topic_id=MIGRATING, eligible_leader_replicas=[], last_known_elr=[]
    )
    return changed(before, nobody, share)


def recorded(image: PartitionImage) -> tuple[int, Brokers, Brokers]:
    """Recovery state, eligible and last known replicas of the image's partition, as records have them."""
    eligible, rest = image.eligible, image.departed[image.eligible_count :]
    if image.begins_anew:
        return RECOVERING, eligible, (image.leader, image.leader, *rest)
    if image.last_known_leader != NO_LEADER:
        if image.is_abandoned:
            last = image.last_known_leader
            return RECOVERED, eligible, (last, *(replica for replica in rest if replica != last))
        return RECOVERING, eligible, (image.last_known_leader, *rest)
    return RECOVERED, eligible, rest


def _with_departed(image: PartitionImage, recovery: int, eligible: Brokers, last_known: Brokers) -> PartitionImage:
    begins_anew, known_leader = False, NO_LEADER
    if last_known and image.is_abandoned:
        known_leader = last_known[0]
    elif last_known and recovery == RECOVERING:
        begins_anew = last_known[:2] == (image.leader, image.leader)
        known_leader = NO_LEADER if last_known[0] == image.leader else last_known[0]
        last_known = last_known[1:]
    present = (*image.isr, image.leader)
    out_of_sync = tuple(replica for replica in eligible if replica not in present)
    others = tuple(replica for replica in last_known if replica not in present and replica not in out_of_sync)
    return image._replace(
        last_known_leader=known_leader,
        departed=out_of_sync + others,
        eligible_count=len(out_of_sync),
        begins_anew=begins_anew,
    )


def _checked_recovery(value: int) -> int:
    if value not in (RECOVERED, RECOVERING):
        raise CorruptMessage(f"a partition has the leader recovery state {value}, which does not exist")
    return value
