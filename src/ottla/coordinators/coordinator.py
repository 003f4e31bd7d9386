"""What every coordinator of a broker is: machines run on the partitions of one topic, asked by key."""

from typing import TYPE_CHECKING, Any, Final, Generic

from ottla.coordination.state_machine import ReplyT, Request
from ottla.coordinators.machine_at_work import EventT, RecordT
from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.coordinators.topic import CoordinatorTopic
from ottla.errors import OttlaError
from ottla.ids import LeaderEpoch, PartitionId

if TYPE_CHECKING:
    import asyncio

LOAD_TIMEOUT_S: Final = 1.0


class Coordinator(Generic[EventT, RecordT]):
    """Asks the machine that stands for a key. Everything happens on the loop's thread.

    `NotCoordinator`, `CoordinatorLoadInProgress` or an `ApiError` are raised where no machine could answer; the
    error's `code` is for the client.
    """

    def __init__(self, topic: CoordinatorTopic, runtime: CoordinatorRuntime[EventT, RecordT]) -> None:
        self.topic = topic
        self._runtime = runtime

    def on_leadership(self, partition: PartitionId, epoch: LeaderEpoch) -> None:
        """This broker leads the partition of the coordinator's topic."""
        self._runtime.on_leadership(partition, epoch)

    def on_resign(self, partition: PartitionId) -> None:
        """This broker no longer leads the partition."""
        self._runtime.on_resign(partition)

    def partition_for(self, key: str) -> PartitionId:
        """The partition of the coordinator's topic that stands for the key."""
        return self.topic.partition_for(key)

    def is_active(self, partition: PartitionId) -> bool:
        """Is the partition led by this broker, and read?"""
        return self._runtime.is_active(partition)

    async def until_active(self, partition: PartitionId, *, expected: bool = False) -> None:
        """Wait a moment for a partition that is just being read, which saves its clients a round of retries.

        `expected`: even if this broker does not lead it yet, because the topic has just been created.
        """
        await self._runtime.until_active(partition, LOAD_TIMEOUT_S, expected=expected)

    async def drain(self, timeout_s: float) -> None:
        """Take no requests from now on, and wait so long at most for what is being written."""
        await self._runtime.drain(timeout_s)

    async def stop(self) -> None:
        """Let writes finish, then answer all waiting requests with NOT_COORDINATOR."""
        await self._runtime.stop()

    def submit(self, key: str, request: Request[ReplyT]) -> "asyncio.Future[ReplyT]":
        """The reply of the machine that stands for the key.

        The future is done already if the reply waits for no write.
        """
        return self._runtime.submit(self.partition_for(key), request)

    async def submit_to_all(self, request: Request[Any]) -> list[OttlaError]:
        """Put a request to every machine of this broker, one after the other; what was raised instead of a reply."""
        failures: list[OttlaError] = []
        for partition in self._runtime.partitions():
            try:
                await self._runtime.submit(partition, request)
            except OttlaError as error:
                failures.append(error)
        return failures
