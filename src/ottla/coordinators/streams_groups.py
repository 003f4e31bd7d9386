"""Streams groups of a broker (KIP-1071): the group coordinator knows the groups, and has their internal topics created.

    heartbeat ---> group: topics are missing ---> answer: MISSING_INTERNAL_TOPICS
                                        |
                                        +-------> metadata: created ---> group: topics have changed

Methods return the machine's reply, or raise the errors of `Coordinator`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.clock import Clock
from ottla.cluster.controller import USE_DEFAULT, NewTopic
from ottla.config.group_settings import GroupSettings
from ottla.errors import OttlaError, TopicAlreadyExists
from ottla.groups.streams.configured import Status, StatusCode
from ottla.groups.streams.events import DescribeStreamsGroups, StreamsBeat, StreamsGroupDescription, StreamsHeartbeat
from ottla.groups.streams.topology import ANY_COUNT, InternalTopicInfo
from ottla.ids import GroupId, TopicName
from ottla.tasks import Tasks

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator

log = logging.getLogger(__name__)

KNOWN_FAILURES: Final = 1_000
"""Topics whose creation has failed that are remembered, to be tried again later and reported until then."""
NAMED_FAILURES: Final = 3


class TopicCreator(Protocol):
    """The metadata, as streams groups use it; methods are `MetadataView`'s."""

    async def create_missing(self, topics: Sequence[NewTopic]) -> list[OttlaError | None]: ...

    def group_settings(self, group_id: str) -> GroupSettings: ...


class _Failure(NamedTuple):
    message: str
    until_ms: int
    """It is not tried again before."""


class StreamsGroupCoordinator:
    """The streams groups that this broker coordinates. Everything happens on the loop's thread."""

    def __init__(self, groups: "GroupCoordinator", metadata: TopicCreator, clock: Clock) -> None:
        self._groups = groups
        self._metadata = metadata
        self._clock = clock
        self._under_way: set[TopicName] = set()
        self._failures: dict[TopicName, _Failure] = {}
        """In the order in which they happened."""
        self._tasks = Tasks()

    async def stop(self) -> None:
        """Cancel work under way: the next heartbeat begins it anew, here or elsewhere."""
        await self._tasks.close()

    def heartbeat(
        self, event: StreamsHeartbeat, may_create: Callable[[TopicName], bool] | None = None
    ) -> "asyncio.Future[StreamsBeat]":
        """The reply to a member that joins, lives or leaves; the request is valid. Missing topics are created while
        the member waits for its next heartbeat.

        `may_create`: whether the member has the right to create a topic; None if it may create all.
        """
        reply: asyncio.Future[StreamsBeat] = self._groups.submit(event.group_id, event)
        if reply.done():
            self._create_for(event.group_id, reply, may_create)
        else:
            reply.add_done_callback(lambda done: self._create_for(event.group_id, done, may_create))
        return reply

    async def describe(self, group_id: GroupId) -> StreamsGroupDescription:
        """A streams group; the description of any other carries GROUP_ID_NOT_FOUND."""
        descriptions = await self._groups.submit(group_id, DescribeStreamsGroups((group_id,)))
        return descriptions[0]

    # --- internal topics ---

    def _create_for(
        self,
        group_id: GroupId,
        reply: "asyncio.Future[StreamsBeat]",
        may_create: Callable[[TopicName], bool] | None,
    ) -> None:
        if reply.cancelled() or reply.exception() is not None or not reply.result().create:
            return
        self._forget_old_failures()
        topics = [
            topic
            for topic in reply.result().create
            if topic.name not in self._under_way and topic.name not in self._failures
        ]
        if may_create is not None:
            for topic in topics:
                if not may_create(topic.name):
                    self._refuse(group_id, topic.name)
            topics = [topic for topic in topics if topic.name not in self._failures]
        if not topics:
            return
        self._under_way.update(topic.name for topic in topics)
        self._tasks.spawn(self._create(group_id, topics), f"internal topics of streams group {group_id}")

    async def _create(self, group_id: GroupId, topics: Sequence[InternalTopicInfo]) -> None:
        names = [topic.name for topic in topics]
        try:
            answers: Sequence[OttlaError | None] = await self._metadata.create_missing(
                [_new_topic(topic) for topic in topics]
            )
        except OttlaError as error:
            answers = [error] * len(topics)
        finally:
            self._under_way.difference_update(names)
        refused = {
            name: answer
            for name, answer in zip(names, answers, strict=True)
            if answer is not None and not isinstance(answer, TopicAlreadyExists)
        }
        created = [name for name in names if name not in refused]
        if created:
            log.info("streams group %s: created %s", group_id, ", ".join(created))
        again_ms = self._clock.now_ms() + 2 * self._metadata.group_settings(group_id).streams_heartbeat_interval_ms
        for name, refusal in refused.items():
            log.warning("streams group %s: topic %s cannot be created: %s", group_id, name, refusal)
            self._failures[name] = _Failure(str(refusal), again_ms)
        while len(self._failures) > KNOWN_FAILURES:
            del self._failures[next(iter(self._failures))]

    def _refuse(self, group_id: GroupId, name: TopicName) -> None:
        log.warning("streams group %s: its member has no right to create topic %s", group_id, name)
        self._failures[name] = _Failure(
            "unauthorized to CREATE the topic",
            self._clock.now_ms() + self._metadata.group_settings(group_id).streams_heartbeat_interval_ms,
        )

    def _forget_old_failures(self) -> None:
        now_ms = self._clock.now_ms()
        for name in [name for name, failure in self._failures.items() if failure.until_ms <= now_ms]:
            del self._failures[name]

    def with_failures(self, beat: StreamsBeat) -> tuple[Status, ...]:
        """What the member is informed of, with the reasons why topics could not be created."""
        failed = {topic.name: self._failures[topic.name] for topic in beat.create if topic.name in self._failures}
        if not failed:
            return beat.statuses
        return tuple(_with_reasons(status, failed) for status in beat.statuses)


def _with_reasons(status: Status, failed: Mapping[TopicName, _Failure]) -> Status:
    if status.code is not StatusCode.MISSING_INTERNAL_TOPICS:
        return status
    shown = ", ".join(_named(failed))
    left = len(failed) - NAMED_FAILURES
    more = f" and {left} more" if left > 0 else ""
    return status._replace(detail=f"{status.detail}; Creation failed: {shown}{more}.")


def _named(failed: Mapping[TopicName, _Failure]) -> Iterable[str]:
    return [f"{name} ({failure.message})" for name, failure in sorted(failed.items())][:NAMED_FAILURES]


def _new_topic(topic: InternalTopicInfo) -> NewTopic:
    replicas = USE_DEFAULT if topic.replication_factor == ANY_COUNT else topic.replication_factor
    return NewTopic(topic.name, topic.partitions, replicas, configs=dict(topic.configs))
