"""PURE. The topics of the metadata log: replayed by record, and seen as images that share what has not changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.cluster.image import PartitionImage, Replica, TopicImage
from ottla.cluster.metadata_log.partitions import (
    LOST,
    MOST_SHARED,
    PartitionState,
    Sharing,
    changed,
    created,
    without_eligible,
)
from ottla.errors import CorruptMessage
from ottla.ids import BrokerId, PartitionId, TopicId, TopicName

if TYPE_CHECKING:
    from ottla.cluster.metadata_log.registrations import BrokerRegistration
    from ottla.protocol.metadata_records import (
        ClearElrRecord,
        PartitionChangeRecord,
        PartitionRecord,
        RemoveTopicRecord,
        TopicRecord,
    )

Placement = tuple[tuple[BrokerId, ...], tuple[UUID, ...]]


class FailedReplicas(NamedTuple):
    """The replicas in directories that their brokers do not have online."""

    replicas: frozenset[Replica] = frozenset()
    full: frozenset[Replica] = frozenset()
    """Those of them whose directory is only full."""


class TopicState:
    """A topic in the records: its partitions by number."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: TopicName, topic_id: TopicId) -> None:
        self.name: Final = name
        self.topic_id: Final = topic_id
        self.partitions: Final[dict[int, PartitionState]] = {}


class Topics:
    """All topics, and what of them has changed since the last image."""

    def __init__(self, like: Mapping[TopicName, TopicImage]) -> None:
        """`like`: topics of an earlier image, whose objects are used again for equal ones."""
        self.states: Final[dict[UUID, TopicState]] = {}
        self.ids: Final[dict[TopicName, UUID]] = {}
        self._like = like
        self._share = Sharing()
        self._changed: dict[UUID, set[int]] = {}
        """Numbers of the partitions that have changed since the last images were made, by topic."""
        self._removed: set[TopicState] = set()
        self._by_name: Mapping[TopicName, TopicImage] = {}
        self._by_id: Mapping[TopicId, TopicImage] = {}
        self._is_full: dict[Replica, bool] = {}
        """The replicas in directories that are not online: whether the directory is only full."""
        self._failed = FailedReplicas()
        self._failed_in: dict[Placement, tuple[tuple[BrokerId, bool], ...]] = {}

    # -- records -----------------------------------------------------------------------------------------------------

    def create(self, record: TopicRecord) -> None:
        """A topic without partitions. Raises `CorruptMessage` if there is one of its name or id."""
        name = TopicName(record.name)
        if name in self.ids or record.topic_id in self.states:
            raise CorruptMessage(f"topic {name} ({record.topic_id}) is created a second time")
        self.ids[name] = record.topic_id
        self.states[record.topic_id] = TopicState(name, TopicId(record.topic_id))
        self._changed[record.topic_id] = set()

    def remove(self, record: RemoveTopicRecord) -> TopicName:
        """Remove a topic; returns its name. Raises `CorruptMessage` if there is none."""
        state = self._state(record.topic_id)
        del self.states[record.topic_id], self.ids[state.name]
        self._changed.pop(record.topic_id, None)
        self._removed.add(state)
        return state.name

    def create_partition(self, record: PartitionRecord) -> None:
        """A partition, in place of one that was there. Raises `CorruptMessage` if there is no such topic."""
        state = self._state(record.topic_id)
        if record.partition_id < 0:
            raise CorruptMessage(f"topic {state.name} has a partition {record.partition_id}")
        self._put(state, created(record, self._share))

    def change_partition(self, record: PartitionChangeRecord) -> None:
        """Raises `CorruptMessage` if there is no such partition."""
        state = self._state(record.topic_id)
        before = state.partitions.get(record.partition_id)
        if before is None:
            raise CorruptMessage(f"partition {record.partition_id} of {state.name} changes, and was never created")
        self._put(state, changed(before, record, self._share))

    def clear_eligible(self, record: ClearElrRecord) -> None:
        """Forget eligible replicas, of one topic or all. Raises `CorruptMessage` if there is no such topic."""
        states: Iterable[TopicState] = self.states.values()
        if record.topic_name:
            topic_id = self.ids.get(TopicName(record.topic_name))
            if topic_id is None:
                raise CorruptMessage(
                    f"the eligible replicas of {record.topic_name} are cleared, and there is no such topic"
                )
            states = (self.states[topic_id],)
        for state in states:
            for before in list(state.partitions.values()):
                after = without_eligible(before, self._share)
                if after is not before:
                    self._put(state, after)

    def _state(self, topic_id: UUID) -> TopicState:
        state = self.states.get(topic_id)
        if state is None:
            raise CorruptMessage(f"there is no topic {topic_id}")
        return state

    def _put(self, state: TopicState, partition: PartitionState) -> None:
        number = partition.image.partition
        state.partitions[number] = partition
        self._changed.setdefault(state.topic_id, set()).add(number)

    # -- images ------------------------------------------------------------------------------------------------------

    @property
    def have_changed(self) -> bool:
        """Whether anything has since the last images."""
        return bool(self._changed or self._removed)

    def images(self) -> tuple[Mapping[TopicName, TopicImage], Mapping[TopicId, TopicImage]]:
        """All topics by name and by id. Raises `CorruptMessage` if partitions are missing."""
        by_name, by_id = dict(self._by_name), dict(self._by_id)
        for state in self._removed:
            if by_id.pop(state.topic_id, None) is not None:
                by_name.pop(state.name, None)
        for topic_id, numbers in self._changed.items():
            state = self.states[topic_id]
            image = self._image(state, numbers, by_id.get(state.topic_id))
            by_name[state.name] = by_id[state.topic_id] = image
        self._by_name = self._like if by_name == self._like else by_name
        self._by_id = by_id
        self._like = {}
        return self._by_name, self._by_id

    def seen(self) -> None:
        """All that has changed is in the images that were made."""
        self._changed.clear()
        self._removed.clear()

    def _image(self, state: TopicState, numbers: set[int], before: TopicImage | None) -> TopicImage:
        count = len(state.partitions)
        if before is not None and len(before.partitions) == count:
            partitions = list(before.partitions)
            for number in numbers:
                partitions[number] = state.partitions[number].image
            return before._replace(partitions=tuple(partitions))
        missing = next((number for number in range(count) if number not in state.partitions), None)
        if missing is not None:
            raise CorruptMessage(f"topic {state.name} has {count} partitions, and none of them is partition {missing}")
        found = tuple([state.partitions[number].image for number in range(count)])
        image = TopicImage(state.name, state.topic_id, found)
        like = self._like.get(state.name)
        return like if like == image else image

    # -- failed directories ------------------------------------------------------------------------------------------

    def failed_replicas(self, brokers: Mapping[int, BrokerRegistration], *, anew: bool) -> FailedReplicas:
        """The replicas in directories that their brokers do not have online.

        `anew`: directories of brokers have changed since the last call.
        """
        if anew:
            self._failed_in.clear()
            is_full = dict(self._failed_of(((each, None) for each in self.states.values()), brokers))
        elif self.have_changed:
            gone = {state.name for state in self._removed}
            kept = {
                replica: is_full
                for replica, is_full in self._is_full.items()
                if replica[1] not in gone and replica[2] not in self._changed.get(self.ids[replica[1]], ())
            }
            touched = ((self.states[topic_id], numbers) for topic_id, numbers in self._changed.items())
            is_full = kept | dict(self._failed_of(touched, brokers))
        else:
            return self._failed
        if is_full != self._is_full:
            self._is_full = is_full
            self._failed = FailedReplicas(frozenset(is_full), frozenset(filter(is_full.get, is_full)))
        return self._failed

    def lost_by(self, broker: BrokerRegistration) -> Callable[[TopicId, PartitionImage], bool]:
        """Whether a broker that is about to register so lacks the directory of its replica of a partition."""

        def is_lost(topic_id: TopicId, partition: PartitionImage) -> bool:
            directories = self.states[topic_id].partitions[partition.partition].directories
            where = dict(zip(partition.replicas, directories, strict=True)).get(broker.broker_id, LOST)
            return not broker.is_online(where) and not broker.is_full(where)

        return is_lost

    def _failed_of(
        self, touched: Iterable[tuple[TopicState, set[int] | None]], brokers: Mapping[int, BrokerRegistration]
    ) -> Iterator[tuple[Replica, bool]]:
        """Those among the numbered partitions of topics; of all partitions for None."""
        for state, numbers in touched:
            for number in state.partitions if numbers is None else numbers:
                partition = state.partitions[number]
                placement = partition.image.replicas, partition.directories
                failed = self._failed_in.get(placement)
                if failed is None:
                    if len(self._failed_in) >= MOST_SHARED:
                        self._failed_in.clear()
                    failed = self._failed_in[placement] = _failed(placement, brokers)
                for broker, is_full in failed:
                    yield (broker, state.name, PartitionId(number)), is_full


def _failed(placement: Placement, brokers: Mapping[int, BrokerRegistration]) -> tuple[tuple[BrokerId, bool], ...]:
    return tuple(
        (broker, brokers[broker].is_full(directory))
        for broker, directory in zip(*placement, strict=True)
        if broker in brokers and not brokers[broker].is_online(directory)
    )
