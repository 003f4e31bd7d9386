"""Changes that are too much for one commit, and what becomes of them when only some of it is made."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.clock import SystemClock
from ottla.cluster.commands import (
    BeginDeletion,
    Command,
    CreateTopic,
    DeleteTopic,
    SetConfigs,
    SetPartitions,
    apply,
)
from ottla.cluster.commit_parts import PARTITIONS_PER_COMMIT, in_parts, whole_in_parts
from ottla.cluster.controller import NewTopic
from ottla.cluster.elections import NO_OUTAGES, elect_where_needed
from ottla.cluster.image import NOT_YET_LED, MetadataImage, ResourceType, TopicImage
from ottla.config import load
from ottla.errors import OttlaError
from ottla.ids import TopicId, TopicName
from ottla.metadata.service import MetadataService
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, Operation, StoreUnavailable, TransactionTooLarge
from ottla.testing.memory_store import MemoryStore, MemoryTree

COUNT = 2 * PARTITIONS_PER_COMMIT + 7
IMAGE = cluster(1, 2, 3)
T = TopicName("t")


def topic(count: int, name: str = "t") -> TopicImage:
    parts = tuple(partition(number, 1, (1, 2)) for number in range(count))
    return TopicImage(TopicName(name), TopicId(UUID(int=7)), parts)


def commands(parts: Sequence[Sequence[object]]) -> list[list[Command]]:
    return [[piece.command for piece in part] for part in parts]  # type: ignore[attr-defined] # pieces


def test_what_is_small_goes_together() -> None:
    wanted = [CreateTopic(topic(3, f"t{number}"), {}) for number in range(4)]
    assert commands(in_parts(wanted, IMAGE)) == [wanted]
    many = [CreateTopic(topic(300, f"t{number}"), {}) for number in range(3)]
    assert commands(in_parts(many, IMAGE)) == [[each] for each in many]
    assert commands(in_parts([SetConfigs(ResourceType.TOPIC, "t", {})], IMAGE)) == [
        [SetConfigs(ResourceType.TOPIC, "t", {})]
    ]


def test_a_large_topic_is_there_before_its_states_are() -> None:
    first, *others = commands(in_parts([CreateTopic(topic(COUNT), {"a": "b"})], IMAGE))
    (made,) = first
    assert isinstance(made, CreateTopic)
    assert made.configs == {"a": "b"}
    assert {part.partition_epoch for part in made.topic.partitions} == {NOT_YET_LED}
    image = apply(IMAGE, [made])
    for part in others:
        assert all(isinstance(each, SetPartitions) and len(each.partitions) <= PARTITIONS_PER_COMMIT for each in part)
        image = apply(image, part)
    assert image.topics[T] == topic(COUNT)


def test_a_topic_that_grows_much_has_all_partitions_at_once() -> None:
    before = with_topic(IMAGE, "t", *topic(3).partitions)
    grown = SetPartitions(T, topic(COUNT).partitions[3:])
    first, *others = commands(in_parts([grown], before))
    image = apply(before, first)
    assert len(image.topics[T].partitions) == COUNT
    assert image.topics[T].partitions[:3] == topic(3).partitions
    for part in others:
        image = apply(image, part)
    assert image.topics[T].partitions == topic(COUNT).partitions


def test_a_large_topic_is_marked_before_it_goes() -> None:
    before = with_topic(IMAGE, "t", *topic(COUNT).partitions)
    parts = commands(in_parts([DeleteTopic(T)], before))
    flat = [command for part in parts for command in part]
    assert flat[0] == BeginDeletion(T)
    assert flat[-1] == DeleteTopic(T)
    image = apply(before, flat[:-1])
    assert {part.partition_epoch for part in image.topics[T].partitions} == {NOT_YET_LED}


class LimitedStore(MemoryStore):
    """Takes so many operations at once, and goes away after so many transactions."""

    def __init__(self, tree: MemoryTree, *, limit: int = 2000, transactions: int | None = None) -> None:
        super().__init__(tree)
        self._limit = limit
        self._left = transactions

    async def commit(self, operations: Sequence[Operation]) -> None:
        if len(operations) > self._limit:
            raise TransactionTooLarge(f"{len(operations)} operations")
        if self._left is not None:
            if self._left == 0:
                raise StoreUnavailable("it is gone")
            self._left -= 1
        await super().commit(operations)


async def elected(tree: MemoryTree, *, transactions: int | None = None, limit: int = 2000) -> MetadataService:
    """The controller of three brokers."""
    store = LimitedStore(tree, limit=limit, transactions=None if transactions is None else transactions + 1)
    await store.open()
    known = tree.nodes.get(layout.CONTROLLER_EPOCH_PATH)
    if known is None:
        await store.commit([Create(layout.CONTROLLER_EPOCH_PATH, b"1")])
    elif transactions is not None:
        store._left = transactions
    config, _ = load(None, {"zookeeper.connect": "in-memory"})
    service = MetadataService(store, config, SystemClock())
    await service.begin_term(1, 0)
    await service.see_brokers(IMAGE.brokers)
    return service


async def settled(service: MetadataService) -> MetadataImage:
    """As a controller does that takes over."""
    await service.end_deletions()
    await service.decide(lambda image: elect_where_needed(image, NO_OUTAGES, lambda name: False).changes)
    return service.image


@pytest.mark.parametrize("commits", range(5))
def test_a_controller_that_takes_over_ends_what_another_has_begun(commits: int) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        first = await elected(tree, transactions=commits)
        (made,) = await first.create_topics([NewTopic(T, COUNT, 3)])
        assert isinstance(made, OttlaError) == (commits < 4)
        second = await elected(tree)
        image = await settled(second)
        assert len(image.topics) == (commits > 0)
        for found in image.topics.values():
            assert len(found.partitions) == COUNT
            assert all(part.leader > 0 and len(part.isr) == 3 for part in found.partitions)
        if not image.topics:
            return
        third = await elected(tree, transactions=commits)
        (gone,) = await third.delete_topics([T])
        assert isinstance(gone, OttlaError) == (commits < 5)
        assert not (await settled(await elected(tree))).topics
        assert not [path for path in tree.nodes if "/t" in path.removeprefix("/brokers/topics")]

    asyncio.run(scenario())


def test_a_topic_that_is_too_large_is_refused_and_others_are_made() -> None:
    async def scenario() -> None:
        service = await elected(MemoryTree(), limit=50)
        wanted = [NewTopic(TopicName("small"), 20, 3), NewTopic(T, 300, 3)]
        small, large = await service.create_topics(wanted)
        assert isinstance(small, CreateTopic)
        assert isinstance(large, TransactionTooLarge)
        assert set(service.image.topics) == {"small"}

    asyncio.run(scenario())


def test_a_store_that_takes_all_at_once_gets_whole_commands_a_bounded_number_at_a_time() -> None:
    small = [CreateTopic(topic(1, f"t{number}"), {}) for number in range(PARTITIONS_PER_COMMIT + 1)]
    large = CreateTopic(topic(COUNT, "large"), {})
    found = commands(whole_in_parts([*small, large], IMAGE))
    assert found == [small[:-1], small[-1:], [large]]
