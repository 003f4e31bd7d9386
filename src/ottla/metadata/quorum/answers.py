"""Requests of other nodes that wait for their answers, and the parts of answers that come from files."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.errors import ErrorCode, OttlaError
from ottla.log.reader import ColdRead
from ottla.metadata.quorum.batches import MAX_BATCH_BYTES
from ottla.metadata.quorum.metadata_log import MetadataLog
from ottla.protocol.schema import Message
from ottla.quorum import effects
from ottla.tasks import Tasks

log = logging.getLogger(__name__)

InThread = Callable[..., Awaitable[Any]]
"""Calls its first argument with the others in a thread."""


class Answers:
    """The answers of one node, each of 8 MiB or one batch at most. On the loop's thread."""

    def __init__(self, in_thread: InThread, tasks: Tasks) -> None:
        self._in_thread = in_thread
        self._tasks = tasks
        self._waiting: dict[Any, asyncio.Future[Any]] = {}
        self._within_limit: set[int] = set()
        """The fetches of which no batch may be larger than their limit."""
        self._last_token = 0

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def open(self, *, within_limit: bool = False) -> tuple[int, "asyncio.Future[Any]"]:
        """A token for a request, and its answer to come."""
        self._last_token += 1
        if within_limit:
            self._within_limit.add(self._last_token)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._last_token] = answer
        return self._last_token, answer

    def close(self, token: int) -> None:
        """The answer was sent, or nobody waits for it any longer."""
        del self._waiting[token]
        self._within_limit.discard(token)

    def fail(self, problem: OttlaError) -> None:
        """Answer everything with an error."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(problem)
                answer.exception()  # nobody may be waiting any more, which is no failure to report

    def reply(self, token: Any, response: Message) -> None:
        """Answer a request, unless nobody waits any longer."""
        answer = self._waiting.get(token)
        if answer is not None and not answer.done():
            answer.set_result(response)

    def reply_records(self, effect: effects.ReplyRecords, metadata_log: MetadataLog) -> None:
        """Answer a fetch. With the log's lock held."""
        max_bytes = max(1, min(effect.max_bytes, MAX_BATCH_BYTES))
        found = metadata_log.read(
            effect.offset,
            max_bytes,
            upper_bound=metadata_log.end.offset,
            at_least_one=effect.token not in self._within_limit,
        )
        if isinstance(found, ColdRead):
            self._tasks.spawn(self._reply_cold(effect, found), "answer to Fetch")
            return
        effect.response.responses[0].partitions[0].records = found
        self.reply(effect.token, effect.response)

    async def _reply_cold(self, effect: effects.ReplyRecords, found: ColdRead) -> None:
        partition = effect.response.responses[0].partitions[0]
        try:
            partition.records = (await self._in_thread(found.run)).data
        except OttlaError as problem:
            log.error("cannot read the metadata log for another node: %s", problem)
            partition.error_code = problem.code
        self.reply(effect.token, effect.response)

    def reply_snapshot(self, effect: effects.ReplySnapshot, metadata_log: MetadataLog) -> None:
        """Answer a FetchSnapshot, in a later turn of the loop."""
        self._tasks.spawn(self._reply_snapshot(effect, metadata_log), "answer to FetchSnapshot")

    async def _reply_snapshot(self, effect: effects.ReplySnapshot, metadata_log: MetadataLog) -> None:
        partition = effect.response.topics[0].partitions[0]
        max_bytes = max(1, min(effect.max_bytes, MAX_BATCH_BYTES))
        try:
            partition.unaligned_records = await self._in_thread(
                metadata_log.read_snapshot, effect.snapshot, effect.position, max_bytes
            )
        except FileNotFoundError:
            partition.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        except OSError as problem:
            log.error("cannot read snapshot %s for another node: %s", effect.snapshot, problem)
            partition.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        self.reply(effect.token, effect.response)
