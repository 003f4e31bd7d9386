"""Internal topics of streams groups: created once, in the background, and not again at once if that fails."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, cast

from ottla.cluster.controller import USE_DEFAULT, NewTopic
from ottla.config.group_settings import GroupSettings
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.streams_groups import KNOWN_FAILURES, StreamsGroupCoordinator
from ottla.errors import ApiError, ErrorCode, InvalidRequest, OttlaError, TopicAlreadyExists
from ottla.groups.streams.configured import Status, StatusCode
from ottla.groups.streams.events import StreamsBeat, StreamsHeartbeat
from ottla.groups.streams.topology import InternalTopicInfo
from ottla.ids import GroupId, MemberId, TopicName
from ottla.testing import ManualClock

R, C = TopicName("r"), TopicName("c")
BEAT = StreamsHeartbeat(GroupId("g"), MemberId("a"), 1, 0, None, "c", "/h")
MISSING = Status(StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: c, r")


def on_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Environment:
    """A group coordinator that has one answer, and metadata that creates, or refuses, as a test chooses."""

    def __init__(self) -> None:
        self.create: tuple[InternalTopicInfo, ...] = (
            InternalTopicInfo(R, 3, 2, (("k", "v"),)),
            InternalTopicInfo(C, 3),
        )
        self.asked: list[list[NewTopic]] = []
        self.refusals: dict[TopicName, OttlaError] = {}
        self.is_down = False
        self.may_go_on = asyncio.Event()
        self.clock = ManualClock()
        self.groups = StreamsGroupCoordinator(cast("GroupCoordinator", self), self, self.clock)

    def submit(self, key: str, event_for: Any) -> "asyncio.Future[StreamsBeat]":
        reply: asyncio.Future[StreamsBeat] = asyncio.get_running_loop().create_future()
        reply.set_result(StreamsBeat(statuses=(MISSING,), create=self.create))
        return reply

    async def create_missing(self, topics: Sequence[NewTopic]) -> list[OttlaError | None]:
        self.asked.append(list(topics))
        await self.may_go_on.wait()
        if self.is_down:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "down")
        return [self.refusals.get(topic.name) for topic in topics]

    def group_settings(self, group_id: str) -> GroupSettings:
        return GroupSettings(streams_heartbeat_interval_ms=1_000)

    async def beat(self) -> tuple[Status, ...]:
        """A heartbeat, and whatever it sets in motion."""
        beat = await self.groups.heartbeat(BEAT)
        for _ in range(5):
            await asyncio.sleep(0)
        return self.groups.with_failures(beat)


@on_a_loop
async def test_missing_topics_are_created_once() -> None:
    environment = Environment()
    assert await environment.beat() == (MISSING,)
    await environment.beat()
    assert environment.asked == [
        [NewTopic(R, 3, 2, configs={"k": "v"}), NewTopic(C, 3, USE_DEFAULT)],
    ], "they are under way"
    environment.may_go_on.set()
    environment.create = ()
    await environment.beat()
    assert len(environment.asked) == 1


@on_a_loop
async def test_what_cannot_be_created_is_named_and_tried_again_later() -> None:
    environment = Environment()
    environment.may_go_on.set()
    environment.refusals = {R: InvalidRequest("nine replicas"), C: TopicAlreadyExists("made meanwhile")}
    await environment.beat()
    environment.create = environment.create[:1]
    (status,) = await environment.beat()
    assert status.detail == "Internal topics are missing: c, r; Creation failed: r (nine replicas)."
    assert len(environment.asked) == 1
    environment.clock.advance(seconds=2)
    environment.refusals = {}
    assert await environment.beat() == (MISSING,)
    assert [[topic.name for topic in topics] for topics in environment.asked] == [[R, C], [R]]


@on_a_loop
async def test_metadata_that_is_down_is_a_failure_of_all() -> None:
    environment = Environment()
    environment.may_go_on.set()
    environment.is_down = True
    await environment.beat()
    (status,) = await environment.beat()
    assert status.detail.endswith("Creation failed: c (down), r (down).")


@on_a_loop
async def test_only_so_many_failures_are_remembered() -> None:
    environment = Environment()
    environment.may_go_on.set()
    environment.is_down = True
    environment.create = tuple(InternalTopicInfo(TopicName(f"t{number}"), 1) for number in range(KNOWN_FAILURES + 5))
    await environment.beat()
    (status,) = await environment.beat()
    assert f"and {KNOWN_FAILURES - 3} more." in status.detail


@on_a_loop
async def test_creation_ends_with_the_broker() -> None:
    environment = Environment()
    await environment.beat()
    await environment.groups.stop()
    await environment.beat()
    assert len(environment.asked) == 2, "what was left off is begun anew"
    await environment.groups.stop()
