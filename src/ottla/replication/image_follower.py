"""The partitions of a standalone broker, which it creates and removes as the metadata image changes.

What cannot be made or opened for lack of room is tried again, as in a cluster (ADR 17).
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.errors import OttlaError
from ottla.ids import PartitionId, TopicId, TopicName, TopicPartition
from ottla.log.fs import is_lacking
from ottla.replication.decisions.refused_replicas import RETRY_S, RefusedReplicas
from ottla.tasks import supervised

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage, PartitionImage, TopicImage
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager

log = logging.getLogger(__name__)

FOLLOWED_PER_TURN: Final = 20


class ImageFollower:
    """Brings the replicas in line with each new image, a few in each turn of the loop.

    Owns the changes that are still to be made, and the task that makes them; on the loop's thread.
    """

    def __init__(self, replicas: "ReplicaManager", metadata: "MetadataView", loop: asyncio.AbstractEventLoop) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._broker_id = metadata.broker_id
        self._loop = loop
        self._gone: deque[tuple[TopicId, TopicName, PartitionId]] = deque()
        """Partitions of deleted topics that are still to be dropped, before anything in `_changed` is created."""
        self._changed: deque[tuple[TopicImage, PartitionImage]] = deque()
        """Partitions that the image has in another way, and that are still to be brought in line."""
        self._following: asyncio.Task[None] | None = None
        """Works through both, while there is anything in them."""
        self._refused = RefusedReplicas()
        self._retrying: asyncio.Task[None] | None = None
        """Tries those again, while there are any."""

    def start(self) -> None:
        """Create every partition of the present image."""
        for topic in self._metadata.image.topics.values():
            for part in topic.partitions:
                self.become(topic, part)

    def follow(self, old: "MetadataImage", new: "MetadataImage") -> None:
        """Create and remove partitions as the new image differs from the old one, in later turns of the loop."""
        for name, topic in old.topics.items():
            now = new.topics.get(name)
            if now is None or now.topic_id != topic.topic_id:
                self._gone += [(topic.topic_id, name, part.partition) for part in topic.partitions]
        for name, topic in new.topics.items():
            known = old.topics.get(name)
            if known is not topic:
                before = () if known is None or known.topic_id != topic.topic_id else known.partitions
                same = set(map(id, before))
                self._changed += [(topic, part) for part in topic.partitions if id(part) not in same]
        self._follow_soon()

    def _follow_soon(self) -> None:
        if (self._gone or self._changed) and self._following is None:
            self._following = supervised(self._loop, self._follow_in_turns(), "partitions of the metadata image")

    async def until_followed(self) -> None:
        """Wait until every partition of the image is created or removed."""
        if self._following is not None:
            await asyncio.wait([self._following])

    async def close(self) -> None:
        """Stop following the image; return when the changes under way are made."""
        if self._retrying is not None:
            self._retrying.cancel()
        self._gone.clear()
        self._changed.clear()
        await self.until_followed()

    async def _follow_in_turns(self) -> None:
        """A few partitions in each turn of the loop, since a topic may have thousands; the files of new ones are made
        in a thread."""
        try:
            while self._gone or self._changed:
                for _ in range(min(len(self._gone), FOLLOWED_PER_TURN)):
                    self._remove_deleted(*self._gone.popleft())
                if self._gone:
                    await asyncio.sleep(0)
                    continue
                some = [self._changed.popleft() for _ in range(min(len(self._changed), FOLLOWED_PER_TURN))]
                here = [(topic, part) for topic, part in some if self._broker_id in part.replicas]
                made = await self._replicas.prepare_logs(
                    (topic.name, topic.topic_id, part.partition) for topic, part in here
                )
                await self._replicas.reopen_logs(TopicPartition(topic.name, part.partition) for topic, part in here)
                for topic, part in here:
                    if topic.topic_id in self._metadata.image.topics_by_id:  # not deleted meanwhile
                        self.become(topic, part)
                self._replicas.remove_unclaimed(made)
                await asyncio.sleep(0)
        finally:
            self._following = None

    def _remove_deleted(self, topic_id: TopicId, name: TopicName, number: PartitionId) -> None:
        self._refused.end(TopicPartition(name, number))
        held = self._replicas.find(name, number)
        if held is None or held.log.topic_id == topic_id:
            try:
                self._replicas.remove_replica(name, number)
            except Exception:  # a defect: the partitions that follow have to go all the same
                log.exception("%s-%d cannot be removed", name, number)

    def become(self, topic: "TopicImage", part: "PartitionImage") -> None:
        """Create or update the replica, if this broker has one; a failure is logged."""
        if self._broker_id not in part.replicas:
            return
        replica = TopicPartition(topic.name, part.partition)
        is_new = not self._replicas.is_offline(replica)
        try:
            self._replicas.become(topic.name, topic.topic_id, part, is_new=is_new)
        except (OSError, OttlaError) as error:
            log.error("%s cannot be created: %s", replica, error)
            if is_lacking(error):
                self._refused.refuse(replica, topic.topic_id, is_new=is_new)
                self._retry_soon()
                return
        except Exception:  # a defect: the partitions that follow are created all the same
            log.exception("%s cannot be created", replica)
        self._refused.end(replica, is_made=self._replicas.find(*replica) is not None)

    def _retry_soon(self) -> None:
        if self._retrying is None:
            self._retrying = supervised(self._loop, self._retry(), "partitions that lacked room")

    async def _retry(self) -> None:
        try:
            while (wait_s := self._refused.wait_s(self._loop.time())) is not None:
                await asyncio.sleep(wait_s)
                if all(directory.is_full for directory in self._replicas.directories.online):
                    await asyncio.sleep(RETRY_S)
                    continue
                for topic_id, number in self._refused.take_due(self._loop.time()):
                    topic = self._metadata.image.topics_by_id.get(topic_id)
                    if topic is not None:
                        self._changed.append((topic, topic.partitions[number]))
                self._follow_soon()
                await self.until_followed()
        finally:
            self._retrying = None
