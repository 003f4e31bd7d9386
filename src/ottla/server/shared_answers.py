"""Answers to fetches that wait at the same place of the same partition, read and encoded once for all of them.

An append may wake hundreds of consumers that want the same records; their answers differ in the session's number only.
"""

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from ottla.errors import ErrorCode
from ottla.ids import Offset
from ottla.protocol.compiled import encode_part
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from ottla.protocol.primitives import Encoded
from ottla.server.fetch_sessions import FetchSession

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

CONSUMER: Final = -1
MOST_ANSWERS: Final = 16
"""Kept at a time: each may hold as much as is sent without a file region."""

Place = tuple[Hashable, ...]
"""Everything that decides about the answer of a fetch that waits, apart from the partition's log."""


_State = tuple[int, int, int, int]
"""What of a partition decides about an answer."""


class SharedAnswer(NamedTuple):
    """What one partition's fetchers get."""

    topic: Encoded
    high_watermark: Offset
    log_start_offset: Offset
    records_bytes: int

    def response(self, session: FetchSession) -> FetchResponse:
        """The answer for this session, which is given it."""
        for target in session.targets.values():
            target.last_high_watermark = self.high_watermark
            target.last_log_start_offset = self.log_start_offset
        topic = cast(FetchableTopicResponse, self.topic)  # it takes the place of one
        return FetchResponse(error_code=ErrorCode.NONE, session_id=session.session_id, responses=[topic])


class SharedAnswers:
    """The answers of this turn of the loop; on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._answers: dict[tuple[Place, _State], SharedAnswer] = {}

    def get(self, place: Place, partition: "Partition") -> SharedAnswer | None:
        """What another fetch at this place was answered in this turn, if it would be given the same now."""
        return self._answers.get((place, _state(partition))) if self._answers else None

    def put(self, place: Place, partition: "Partition", response: FetchResponse, version: int) -> None:
        """Keep a response that holds records of this partition, and nothing else, if others wait for them."""
        if len(partition.fetch_waiters) < 2 or len(self._answers) >= MOST_ANSWERS:
            return
        if not self._answers:
            self._loop.call_soon(self._answers.clear)
        source = partition.log
        topic = response.responses[0]
        self._answers[place, _state(partition)] = SharedAnswer(
            encode_part(topic, FetchResponse, version),
            source.high_watermark,
            source.log_start_offset,
            sum(len(data.records or b"") for data in topic.partitions),
        )


def place_of(request: FetchRequest, session: FetchSession, version: int) -> Place | None:
    """Where a consumer's fetch waits, if others may wait for the very same: it reads one partition, wherever it is."""
    if len(session.targets) != 1 or request.rack_id or request.replica_id != CONSUMER:
        return None
    (target,) = session.targets.values()
    return (
        target.topic,
        target.partition,
        target.fetch_offset,
        target.partition_max_bytes,
        target.current_leader_epoch,
        request.max_bytes,
        request.min_bytes,
        request.isolation_level,
        version,
    )


def _state(partition: "Partition") -> _State:
    source = partition.log
    return source.generation, source.high_watermark, source.last_stable_offset, source.log_start_offset
