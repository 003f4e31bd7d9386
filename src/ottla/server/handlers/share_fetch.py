"""ShareFetch (v1-v2): acquires records for a member of a share group, for a limited time (KIP-932).

Reads the partitions of a share session and acquires what is available. A request that finds less than `min_bytes`
parks, and is woken by an append, or by records that have become available again. Acknowledgements that come along are
answered when they are written; a request that has some does not wait for records any longer than for that. A request
that renews locks (KIP-1222) asks for no records; one in the mode `record_limit` (KIP-1206) gets at most as many as it
asks for.
"""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.errors import ApiError, ErrorCode, OffsetOutOfRange, OttlaError
from ottla.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.session_epochs import FINAL_EPOCH, INITIAL_EPOCH
from ottla.replication.delayed import DelayedFetch
from ottla.server.context import Deferred, RequestContext
from ottla.server.share_acknowledgements import SHARE_GROUPS_ARE_OFF, Acknowledging, may_read, member_key
from ottla.server.share_group_requests import are_offered
from ottla.share_partitions.led_partition import LedSharePartition
from ottla.share_partitions.reads import Look, SlowRead, Taken
from ottla.share_partitions.sessions import MemberKey, SharedPartition, ShareSession

if TYPE_CHECKING:
    import asyncio

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager
    from ottla.server.memory import MemoryBudget
    from ottla.share_partitions.led_partitions import SharePartitions

log = logging.getLogger(__name__)

NO_LEADER: Final = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
RECORD_LIMIT: Final = 1
"""The acquire mode of KIP-1206 in which no record more is given than was asked for."""
NOTHING: Final = Taken(b"", [])
NO_SUCH_TOPIC: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
"""Such partitions hold the others up no longer than they would take without them."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that this handler uses."""

    config: "BrokerConfig"
    loop: "asyncio.AbstractEventLoop"
    metadata: "MetadataView"
    replicas: "ReplicaManager"
    share_partitions: "SharePartitions"
    memory: "MemoryBudget"


def handle(
    parts: Parts, request: ShareFetchRequest, context: RequestContext
) -> "ShareFetchResponse | Deferred[ShareFetchResponse]":
    """Answer later, unless the request as a whole is wrong."""
    sessions = parts.share_partitions.sessions
    epoch = request.share_session_epoch
    asked = [(topic.topic_id, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    if not are_offered(parts.metadata):
        return _failure(ErrorCode.UNSUPPORTED_VERSION, SHARE_GROUPS_ARE_OFF)
    if request.is_renew_ack and (problem := _renewal_problem(request)):
        return _failure(ErrorCode.INVALID_REQUEST, problem)
    try:
        member = member_key(request.group_id, request.member_id)
        if epoch == INITIAL_EPOCH:
            if any(partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions):
                return _failure(ErrorCode.INVALID_REQUEST, "a share session does not begin with acknowledgements")
            session = sessions.open(member, asked, context.connection_id)
        else:
            session = sessions.use(member, epoch)
            if epoch != FINAL_EPOCH:
                forgotten = [
                    (topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions
                ]
                session.update(asked, forgotten)
    except OttlaError as error:
        failure = _failure(error.code, str(error))
        if error.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return failure
        # Asking again at once would not help: the client waits as long as it would have for records.
        deferred: Deferred[ShareFetchResponse] = Deferred()
        timer = parts.loop.call_later(max(request.max_wait_ms, 0) / 1_000, deferred.complete, failure)
        deferred.on_abandoned = timer.cancel
        return deferred
    return _ShareFetch(parts, request, member, session, context).start()


def _renewal_problem(request: ShareFetchRequest) -> str | None:
    """A request that renews locks is answered at once, so it fetches nothing."""
    limits = {
        "maxBytes": request.max_bytes,
        "minBytes": request.min_bytes,
        "maxRecords": request.max_records,
        "maxWaitMs": request.max_wait_ms,
    }
    wrong = [name for name, value in limits.items() if value != 0]
    return f"{', '.join(wrong)} must be 0 in a request that renews locks" if wrong else None


def _failure(code: ErrorCode, message: str) -> ShareFetchResponse:
    return ShareFetchResponse(
        error_code=code, error_message=message, acquisition_lock_timeout_ms=0, responses=[], node_endpoints=[]
    )


class _ShareFetch:
    """One request under way: tried at once, again when woken, and answered at the latest when its time is up."""

    def __init__(
        self,
        parts: Parts,
        request: ShareFetchRequest,
        member: MemberKey,
        session: ShareSession,
        context: RequestContext,
    ) -> None:
        self._request = request
        self._access = context.access
        self._metered = context.metered
        self._parts = parts
        self._share = parts.share_partitions
        self._member = member
        self._session = session
        self._is_last = request.share_session_epoch == FINAL_EPOCH
        self._max_bytes = max(min(request.max_bytes, parts.config.fetch_max_bytes), 0)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._deferred: Deferred[ShareFetchResponse] = Deferred()
        self._ends_at = parts.loop.time() + request.max_wait_ms / 1_000
        self._parked: DelayedFetch | None = None
        self._is_reading = False
        self._gone = False
        self._fetched: dict[SharedPartition, PartitionData] | None = None
        """What it is going to be given; nothing more is acquired then."""
        self._led: dict[SharedPartition, LedSharePartition] = {}
        """Asked for once: if one of them is lost meanwhile, it knows why."""
        self._unreadable: dict[SharedPartition, OttlaError] = {}
        """Why the log of a partition could not be read, when that was tried in a thread."""
        self._acknowledging: Acknowledging | None = None

    def start(self) -> "Deferred[ShareFetchResponse]":
        self._deferred.on_abandoned = self._abandoned
        self._acknowledging = Acknowledging(
            self._share,
            self._member,
            self._request.topics,
            self._acknowledged,
            may_renew=self._request.is_renew_ack,
            access=self._access,
        )
        if self._is_last or self._request.is_renew_ack:
            self._fetched = {}
            self._answer_if_complete()
        elif self._fetched is None:
            self._go_on(last=self._request.max_wait_ms <= 0 or self._has_news)
        return self._deferred

    @property
    def _has_news(self) -> bool:
        """Whether its acknowledgements, if it has any, are answered."""
        acknowledging = self._acknowledging
        return acknowledging is not None and acknowledging.is_done and bool(acknowledging.results)

    def _abandoned(self) -> None:
        """The client has left. What it was just given is released with its session."""
        self._gone = True
        if self._parked is not None:
            self._parked.cancel()

    def _acknowledged(self) -> None:
        """Its acknowledgements are answered: that is news enough, with whatever records there are now."""
        if self._gone or self._acknowledging is None:  # None: all were answered at once, or there were none
            return
        if self._fetched is None and self._acknowledging.results:
            if self._is_reading:
                return
            if self._parked is not None:
                self._parked.cancel()
            self._go_on(last=True)
        else:
            self._answer_if_complete()

    # -- looking for records -----------------------------------------------------------------------------------------

    def _go_on(self, *, last: bool) -> None:
        """Take what there is, or wait for more."""
        try:
            settled = self._try(last=last)
        except Exception as error:
            self._deferred.complete(error)
            return
        if not settled:
            self._parked = DelayedFetch(
                [waiting for led in self._led.values() for waiting in (led.waiters, led.replica.fetch_waiters)],
                max(self._ends_at - self._parts.loop.time(), 0),
                self._parts.replicas.timeouts,
                self._parts.replicas.parked_fetches,
                self._retry,
            )

    def _retry(self, last: bool) -> bool:
        try:
            return self._try(last=last)
        except Exception as error:  # the caller that woke this fetch has others to wake
            self._deferred.complete(error)
            return True

    def _try(self, *, last: bool) -> bool:
        """Whether it is settled what to answer, or will be when the log has been read. If not, nothing is acquired."""
        while True:
            attempt = self._look_around()
            if attempt.slow is not None:
                self._read_slowly(*attempt.slow)
                return True
            if not (last or attempt.must_answer or attempt.size_bytes >= self._min_bytes):
                return False
            taken = self._take(attempt.found)
            if taken or last or attempt.must_answer:
                break
            if not attempt.found:
                return False
            # All of the found records are undeliverable (aborted, say): look at the following ones.
        self._fetched = {partition: _data(partition, records) for partition, records in taken.items()}
        for partition, code in attempt.errors.items():
            self._fetched[partition] = _data(partition, error=code)
        self._answer_if_complete()
        return True

    def _look_around(self) -> "_Attempt":
        attempt = _Attempt()
        request, left = self._request, self._parts.memory.room_for_answer()
        room = min(self._max_bytes, left)
        partitions = self._session.rotated(request.share_session_epoch)
        for number, partition in enumerate(partitions):
            try:
                if partition in self._unreadable:
                    raise self._unreadable[partition]
                if not may_read(self._access, partition[0]):
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no right to read the topic")
                led = self._led.get(partition)
                if led is None:
                    led = self._led[partition] = self._share.lead(self._member.group_id, partition)
                terms = led.terms(
                    self._member.member_id,
                    request.max_records,
                    request.batch_size,
                    room // (len(partitions) - number),
                    at_least_one=not attempt.found,
                    strictly=request.share_acquire_mode == RECORD_LIMIT,
                )
                found = led.look(terms) if request.max_records > 0 and left > 0 else None
            except OttlaError as error:
                attempt.errors[partition] = error.code
                attempt.must_answer |= error.code not in NO_SUCH_TOPIC
                if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                    log.warning("share fetch from %s-%d failed: %s", *partition, error)
                continue
            if isinstance(found, SlowRead):
                # What else is there comes with it, or with the next request.
                attempt.slow = attempt.slow or (led, found)
            elif found is not None:
                attempt.found.append((partition, led, found))
                attempt.size_bytes += found.size_bytes
                room = max(room - found.size_bytes, 0)
        attempt.must_answer |= len(attempt.errors) == len(partitions)
        return attempt

    def _take(self, found: "list[tuple[SharedPartition, LedSharePartition, Look]]") -> dict[SharedPartition, Taken]:
        """Acquire, in the turn of the loop in which it was found."""
        given: dict[SharedPartition, Taken] = {}
        wanted = self._request.max_records
        for partition, led, look in found:
            if wanted <= 0:
                break
            taken = led.take(look, wanted)
            if taken.acquired:
                given[partition] = taken
                wanted -= sum(acquired.last + 1 - acquired.first for acquired in taken.acquired)
        return given

    def _read_slowly(self, led: LedSharePartition, read: SlowRead) -> None:
        self._is_reading = True

        def go_on(done: "asyncio.Future[None]") -> None:
            self._is_reading = False
            if self._gone:
                return
            failure = done.exception()
            if failure is not None and not isinstance(failure, OttlaError):
                self._deferred.complete(failure if isinstance(failure, Exception) else RuntimeError(str(failure)))
                return
            # Records deleted by retention meanwhile are no failure: the next read begins behind them. Other failures do
            # not concern members with other records.
            if failure is not None and not isinstance(failure, OffsetOutOfRange):
                self._unreadable[led.key.topic_id, led.key.partition] = failure
            self._go_on(last=self._has_news or self._parts.loop.time() >= self._ends_at)

        led.read_slowly(read).add_done_callback(go_on)

    # -- the answer --------------------------------------------------------------------------------------------------

    def _answer_if_complete(self) -> None:
        if self._fetched is None or self._acknowledging is None or not self._acknowledging.is_done:
            return
        if self._is_last:
            self._share.sessions.close(self._member)
        self._deferred.complete(self._response(self._fetched, self._acknowledging.results))

    def _response(
        self, fetched: dict[SharedPartition, PartitionData], acknowledged: dict[SharedPartition, ErrorCode]
    ) -> ShareFetchResponse:
        for partition, code in acknowledged.items():
            data = fetched.get(partition)
            if data is None:
                data = fetched[partition] = _data(partition)
            data.acknowledge_error_code = code
            data.acknowledge_error_message = None if code is ErrorCode.NONE else code.name
        if self._metered is not None:
            self._metered.given(sum(len(data.records or b"") for data in fetched.values()), len(fetched))
        topics: dict[UUID, ShareFetchableTopicResponse] = {}
        for (topic_id, _), data in fetched.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id, partitions=[])
            topic.partitions.append(data)
        return ShareFetchResponse(
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=self._share.lock_duration_ms(self._member.group_id),
            responses=list(topics.values()),
            node_endpoints=[],
        )


class _Attempt:
    """What one pass over the partitions has found."""

    __slots__ = ("errors", "found", "must_answer", "size_bytes", "slow")

    def __init__(self) -> None:
        self.found: list[tuple[SharedPartition, LedSharePartition, Look]] = []
        self.size_bytes = 0
        self.errors: dict[SharedPartition, ErrorCode] = {}
        self.must_answer = False
        self.slow: tuple[LedSharePartition, SlowRead] | None = None


def _data(partition: SharedPartition, taken: Taken = NOTHING, error: ErrorCode = ErrorCode.NONE) -> PartitionData:
    return PartitionData(
        partition_index=partition[1],
        error_code=error,
        error_message=None if error is ErrorCode.NONE else error.name,
        acknowledge_error_code=ErrorCode.NONE,
        current_leader=NO_LEADER,
        records=taken.records,
        acquired_records=[
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in taken.acquired
        ],
    )
