"""The share partitions that this broker leads, and the sessions of their members (KIP-932).

One `LedSharePartition` for each group that reads a partition here, made on first use and removed when the
group has no session left, when the partition goes, or when its state was initialized anew.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.cluster.image import ResourceType
from ottla.errors import ApiError, ErrorCode, UnknownTopicId, UnknownTopicOrPartition
from ottla.ids import GroupId, PartitionId, TopicId
from ottla.share.partition import Acknowledgement
from ottla.share.state import SharePartitionKey
from ottla.share_partitions.led_partition import Answer, LedSharePartition, SharePersister
from ottla.share_partitions.sessions import MemberKey, SharedPartition, ShareSessionCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.cluster.image import MetadataImage
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager

SHARE_VERSION: Final = "share.version"


class ShareFigures(NamedTuple):
    """A share group on this broker: its partitions, the records that members hold now, and were given since it came."""

    partitions: int
    in_flight: int
    delivered: int
    redelivered: int


class ShareStateSource(SharePersister, Protocol):
    """The share coordinator, as leaders of share partitions use it."""

    def on_starting_over(self, listener: "Callable[[SharePartitionKey], None]") -> None:
        """Call `listener` when the state of a share partition has to be read again."""
        ...


class SharePartitions:
    """Everything happens on the loop's thread."""

    def __init__(
        self,
        config: "BrokerConfig",
        metadata: "MetadataView",
        replicas: "ReplicaManager",
        state: ShareStateSource,
        clock: "Clock",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.sessions = ShareSessionCache(config.group_share_max_share_sessions, self._session_ended)
        self._metadata = metadata
        self._replicas = replicas
        self._state = state
        self._clock = clock
        self._loop = loop
        self._led: dict[str, dict[SharedPartition, LedSharePartition]] = {}
        self._past: dict[str, tuple[int, int]] = {}
        """Records given, and given again, by partitions that a group has here no longer: its sums must not fall."""
        state.on_starting_over(self._start_over)
        metadata.subscribe(self._follow)

    def __len__(self) -> int:
        return sum(len(led) for led in self._led.values())

    def groups(self) -> list[str]:
        """The groups that read partitions here."""
        return list(self._led)

    def figures(self, group_id: str) -> ShareFigures:
        """What a group has here, and was given."""
        led = list(self._led.get(group_id, {}).values())
        delivered, redelivered = self._past.get(group_id, (0, 0))
        return ShareFigures(
            len(led),
            sum(each.records_in_flight() for each in led),
            delivered + sum(each.delivered for each in led),
            redelivered + sum(each.redelivered for each in led),
        )

    def lead(self, group_id: str, partition: SharedPartition) -> LedSharePartition:
        """The share partition, which reads its state first when it is new.

        Raises UnknownTopicId, UnknownTopicOrPartition.
        """
        found = self._current(group_id, partition)
        if found is None:
            topic_id, number = partition
            replica = self._replicas.leader(topic_id, number)
            found = self._led.setdefault(group_id, {})[partition] = LedSharePartition(
                SharePartitionKey(GroupId(group_id), TopicId(topic_id), PartitionId(number)),
                replica,
                self._state,
                lambda: self._metadata.group_settings(group_id),
                self._clock,
                self._loop,
                self._replicas.threads.reads,
                self._forget,
                self._remove_if_unused,
            )
        return found

    def acknowledge(
        self, member: MemberKey, partition: SharedPartition, said: Sequence[Acknowledgement], answer: Answer
    ) -> None:
        """Call `answer` once the member's acknowledgements are written, or are found to be wrong."""
        topic_id, number = partition
        try:
            self._replicas.leader(topic_id, number)
        except (UnknownTopicId, UnknownTopicOrPartition) as error:
            answer(error.code)
            return
        led = self._current(member.group_id, partition)
        if led is None:
            answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            led.acknowledge(member.member_id, said, answer)

    def _current(self, group_id: str, partition: SharedPartition) -> LedSharePartition | None:
        """The share partition as it is known here, unless another broker has led it since: then it is forgotten.

        The metadata change before the replica does, so that `_follow` may find it still led.
        """
        found = self._led.get(group_id, {}).get(partition)
        if found is None or found.is_led:
            return found
        found.lose(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{found} has had another leader"))
        return None

    def lock_duration_ms(self, group_id: str) -> int:
        """How long members of this group may hold a record."""
        return self._metadata.group_settings(group_id).share_record_lock_duration_ms

    def close(self) -> None:
        """Answer waiting requests with a retriable error; unacknowledged records will be delivered again."""
        for led in self._all():
            led.lose(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker leads no share partitions any more"))

    # -- ended sessions ----------------------------------------------------------------------------------------------

    def _session_ended(self, member: MemberKey, partitions: Iterable[SharedPartition]) -> None:
        """A member may hold records of partitions that its session had forgotten, too."""
        for led in list(self._led.get(member.group_id, {}).values()):
            led.release(member.member_id)
            self._remove_if_unused(led)

    def _remove_if_unused(self, led: LedSharePartition) -> None:
        if led.is_idle and not self.sessions.has_group(led.key.group_id):
            led.lose(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{led} has no readers"))

    def _forget(self, led: LedSharePartition) -> None:
        of_group = self._led.get(led.key.group_id, {})
        partition = (led.key.topic_id, led.key.partition)
        if of_group.get(partition) is led:
            del of_group[partition]
            delivered, redelivered = self._past.pop(led.key.group_id, (0, 0))
            if of_group:
                self._past[led.key.group_id] = delivered + led.delivered, redelivered + led.redelivered
            else:
                del self._led[led.key.group_id]

    def _start_over(self, key: SharePartitionKey) -> None:
        led = self._led.get(key.group_id, {}).get((key.topic_id, key.partition))
        if led is not None:
            led.lose(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{led} starts over"))

    def _follow(self, old: "MetadataImage", new: "MetadataImage") -> None:
        if old.features is not new.features and not new.features.get(SHARE_VERSION):
            self.sessions.clear()
            self.close()
        if old.topics is not new.topics:
            for led in self._all():
                if not led.is_led or led.key.topic_id not in new.topics_by_id:
                    led.lose(UnknownTopicOrPartition(f"{led.replica.topic_partition} is gone"))
        if old.configs is not new.configs:
            for group_id, of_group in list(self._led.items()):
                key = (ResourceType.GROUP, group_id)
                if old.configs.get(key) != new.configs.get(key):
                    for led in list(of_group.values()):
                        led.settings_changed()

    def _all(self) -> list[LedSharePartition]:
        return [led for of_group in self._led.values() for led in of_group.values()]
