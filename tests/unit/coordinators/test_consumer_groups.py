"""What the coordinator does around the machine for consumer groups: topics, expressions, settings."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from tests.unit.coordinators.test_group_coordinator import MemoryLog, no_topic

from ottla.clock import SystemClock
from ottla.cluster.image import GROUP_METADATA_TOPIC, MetadataImage, PartitionImage, TopicImage, empty_image
from ottla.config.group_settings import GroupSettings
from ottla.coordination.state_machine import ReplyT, Request
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.image_topics import ImageTopics
from ottla.coordinators.topic import CoordinatorTopic
from ottla.errors import ErrorCode, NotCoordinator
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import JOINING, ConsumerBeat, ConsumerHeartbeat
from ottla.ids import BrokerId, GroupId, LeaderEpoch, MemberId, PartitionId, TopicId, TopicName

G = GroupId("g")


def image(**topics: int) -> MetadataImage:
    """Topics by name, with so many partitions."""
    made = {
        TopicName(name): TopicImage(
            TopicName(name),
            TopicId(UUID(bytes=name.encode().rjust(16))),
            tuple(
                PartitionImage(PartitionId(number), BrokerId(1), LeaderEpoch(0), (BrokerId(1),), (BrokerId(1),), 0)
                for number in range(count)
            ),
        )
        for name, count in topics.items()
    }
    return empty_image("c")._replace(topics=made, topics_by_id={topic.topic_id: topic for topic in made.values()})


BEFORE = image(orders=2)


class Edge:
    """A coordinator of one partition, whose members are heard through it."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self.groups = groups
        self.image = BEFORE
        self.epoch = JOINING

    def change(self, **topics: int) -> None:
        before, self.image = self.image, image(**topics)
        self.groups.on_metadata(before, self.image)

    async def beat(self, *names: str, regex: str | None = None) -> ConsumerBeat:
        """Send a heartbeat of the one member, with names and expression when it joins."""
        is_joining = self.epoch == JOINING
        beat = await self.groups.consumer_heartbeat(
            ConsumerHeartbeat(
                group_id=G,
                member_id=MemberId("m"),
                member_epoch=self.epoch,
                instance_id=None,
                rack_id=None,
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=1000 if is_joining else -1,
                topic_names=frozenset(TopicName(name) for name in names) if is_joining else None,
                topic_regex=regex,
                owned={} if is_joining else None,
            )
        )
        if not beat.error:
            self.epoch = beat.member_epoch
        return beat

    async def targets(self) -> dict[str, int]:
        """Topics that the member shall have, with how many partitions."""
        (member,) = (await self.groups.describe_consumer_group(G)).members
        return {topic.topic: len(topic.partitions) for topic in member.target_assignment}

    async def until(self, **topics: int) -> None:
        async with asyncio.timeout(10):
            while await self.targets() != topics:
                await asyncio.sleep(0.01)
                await self.beat()


def run(test: Callable[[Edge], Awaitable[None]], settings: GroupSettings | None = None) -> None:
    async def main() -> None:
        topic = CoordinatorTopic(GROUP_METADATA_TOPIC, MemoryLog(), no_topic, 1)
        groups = GroupCoordinator(
            topic,
            SystemClock(),
            config=GroupConfig(),
            topics=ImageTopics(BEFORE, 1),
            settings=None if settings is None else lambda group_id: settings,
        )
        try:
            groups.on_leadership(PartitionId(0), LeaderEpoch(0))
            await groups.until_active(PartitionId(0))
            await test(Edge(groups))
        finally:
            await groups.stop()

    asyncio.run(main())


def test_members_are_given_the_topics_of_the_image() -> None:
    async def test(edge: Edge) -> None:
        await edge.beat("orders", "later")
        assert await edge.targets() == {"orders": 2}
        edge.change(orders=3, later=1)
        await edge.until(orders=3, later=1)
        edge.change(later=1)
        await edge.until(later=1)

    run(test)


def test_several_changes_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(edge: Edge) -> None:
        told: list[frozenset[str]] = []
        submit = edge.groups._runtime.submit

        def spy(partition: PartitionId, request: Request[ReplyT]) -> "asyncio.Future[ReplyT]":
            told.append(getattr(request, "names", frozenset()))
            return submit(partition, request)

        monkeypatch.setattr(edge.groups._runtime, "submit", spy)
        edge.change(orders=2, a=1)
        edge.change(orders=2, a=1, b=1)
        edge.change(orders=2, a=1, b=1)
        await asyncio.sleep(0)
        assert told == [frozenset({"a", "b"})]

    run(test)


def test_expressions_are_looked_up_and_again_when_topics_come() -> None:
    async def test(edge: Edge) -> None:
        joined = await edge.beat(regex="o.*|later")
        assert (joined.error, joined.assignment) == (ErrorCode.NONE, {})
        await edge.until(orders=2)
        edge.change(orders=2, later=1, other=1, none=1)
        await edge.until(orders=2, later=1, other=1)

    run(test)


def test_a_bad_expression_is_refused_with_what_is_wrong_with_it() -> None:
    async def test(edge: Edge) -> None:
        refused = await edge.beat(regex="[")
        assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert refused.message == "SubscribedTopicRegex `[` is not a valid regular expression: missing ]: [."

    run(test)


def test_a_group_obeys_its_settings() -> None:
    async def test(edge: Edge) -> None:
        joined = await edge.beat("orders")
        assert joined.heartbeat_interval_ms == 77

    run(test, GroupSettings(consumer_heartbeat_interval_ms=77))


def test_a_coordinator_that_has_gone_loses_nothing_but_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def test(edge: Edge) -> None:
        await edge.beat(regex="orders")
        edge.change(orders=4)
        edge.groups.on_resign(PartitionId(0))
        with pytest.raises(NotCoordinator):
            await edge.beat()
        while edge.groups._tasks:
            await asyncio.sleep(0)

    with caplog.at_level("WARNING"):
        run(test)
    assert not caplog.records


def test_an_empty_group_id_has_no_description() -> None:
    async def test(edge: Edge) -> None:
        assert (await edge.groups.describe_consumer_group(GroupId(""))).error is ErrorCode.INVALID_GROUP_ID
        assert (await edge.groups.describe_consumer_group(G)).error is ErrorCode.GROUP_ID_NOT_FOUND

    run(test)
