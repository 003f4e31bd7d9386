"""Fetch (v4-v18): batches as they lie in the file, from the positions of an incremental session (KIP-227).

A fetch that finds less than `min_bytes` parks on its partitions and is woken by the append that moves their high
watermark. Large ranges are sent from the file (`ottla.log.file_region`); ranges that are not in the page cache are read
in a thread, so that the loop does not wait for a disk.

A follower reads to the end of the log. Its offset and epoch (KIP-320) say what it has. A consumer in another rack is
referred to a replica in its own (KIP-392), and may read from a follower up to the high watermark.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.replication.delayed import DelayedFetch
from ottla.server.context import Deferred, RequestContext
from ottla.server.fetch_attempt import READ_COMMITTED, FetchAttempt, Parts
from ottla.server.fetch_sessions import FetchSession
from ottla.server.shared_answers import Place, place_of
from ottla.slices import run_at_once

if TYPE_CHECKING:
    import asyncio

    from ottla.replication.partition import Partition

_Answer = FetchResponse | Deferred[FetchResponse]
LONGEST_SYNC_S: Final = 5.0
"""How long a fetch waits, at least, for records that were acknowledged with acks=1 and are being synced."""
MOST_LOOKS: Final = 3
"""How often the partitions of a fetch are looked at while they change under it; then it is answered."""
SEVERAL: Final = 50
"""Partitions; of fetches of more, a connection has one waiting at a time."""


def handle(parts: Parts, request: FetchRequest, context: RequestContext) -> "_Answer | Coroutine[Any, Any, _Answer]":
    """Answer at once if there is enough or anything is wrong; park otherwise."""
    opened = parts.fetch_sessions.open(request, context.api_version, parts.loop.time())
    if isinstance(opened, ErrorCode):
        return FetchResponse(error_code=opened, responses=[])
    session, incremental = opened
    if context.metered is not None and (most := context.metered.largest_fetch_bytes()) is not None:
        request.max_bytes = min(request.max_bytes, most)
    request.topics = []  # the session has what it needs of them, and a fetch may wait for long
    fetch = _Fetch(parts, request, context, session, incremental)
    attempt = fetch.attempt(first=True)
    if not attempt.is_large:
        return fetch.start(attempt)
    context.is_large = True  # its answer may be, however little of the session the request mentions
    return fetch.start_in_slices(attempt)


class _Fetch:
    """One fetch under way: tried at once, again when woken, and answered at the latest when its time is up."""

    __slots__ = (
        "_answering",
        "_appended_when_parked",
        "_context",
        "_deferred",
        "_ends_at",
        "_incremental",
        "_is_quiet",
        "_min_bytes",
        "_parked",
        "_parts",
        "_request",
        "_roles_when_parked",
        "_session",
        "_shared_place",
        "_stable_when_parked",
        "_waits_until",
    )

    def __init__(
        self, parts: Parts, request: FetchRequest, context: RequestContext, session: FetchSession, incremental: bool
    ) -> None:
        self._parts = parts
        self._request = request
        self._context = context
        self._session = session
        self._incremental = incremental
        self._ends_at: float | None = None
        """When its time is up, if it waits longer: for records acknowledged with acks=1 to be visible."""
        self._stable_when_parked = 0
        self._roles_when_parked: list[int] = []
        """What this broker was to the partitions it waits for: when that changes, it is answered."""
        self._deferred: Deferred[FetchResponse] = Deferred()
        self._min_bytes = min(request.min_bytes, request.max_bytes, parts.config.fetch_max_bytes)
        self._answering: asyncio.Task[None] | None = None
        """Held so that it is not collected."""
        self._parked: list[Partition] = []
        self._shared_place: Place | None = None
        """Where it waits, if others may wait for the same."""
        self._appended_when_parked = 0
        self._is_quiet = False
        """Whether nothing can have changed since it was parked: it would have been woken."""
        self._waits_until: float | None = None
        """When its time is up, if it waits for a change of any partition."""

    def attempt(self, *, first: bool = False) -> FetchAttempt:
        """A look at the partitions. The `first` one notes the follower's progress."""
        return FetchAttempt(self._parts, self._request, self._context, self._session, self._incremental, first=first)

    def start(self, attempt: FetchAttempt) -> "_Answer":
        """Look at the partitions; answer, or wait."""
        run_at_once(attempt.look())
        if attempt.cold:
            self._read_cold(attempt)
        elif self._is_enough(attempt):
            return run_at_once(attempt.response())
        else:
            self._park(attempt)
        return self._deferred

    async def start_in_slices(self, attempt: FetchAttempt) -> "_Answer":
        """As `start`, of many partitions; what moves while the others are looked at must not be missed."""
        slices = self._parts.slices
        looks, is_settled = 0, False
        while not is_settled:
            if looks:
                attempt = self.attempt()
            attempt.marks = []
            await slices.run(attempt.look())
            if attempt.cold:
                self._read_cold(attempt)
                return self._deferred
            is_settled = self._is_enough(attempt)
            if not is_settled and not attempt.has_changed():
                self._park(attempt)
                return self._deferred
            looks += 1
            is_settled |= looks >= MOST_LOOKS and not attempt.owes_visibility
        return await slices.run(attempt.response())

    def _is_enough(self, attempt: FetchAttempt) -> bool:
        return (
            attempt.must_answer
            or (len(self._session.targets) > SEVERAL and self._context.is_behind_others)
            or attempt.total_bytes >= self._min_bytes
            or (self._request.max_wait_ms <= 0 and not attempt.owes_visibility)
        )

    def _park(self, attempt: FetchAttempt) -> None:
        self._is_quiet = attempt.is_quiet
        if attempt.is_partial:
            self._park_until_a_change(attempt.replica)
            return
        self._parked = attempt.partitions
        is_follower = attempt.replica >= 0
        if (
            len(self._parked) == 1
            and not is_follower
            and self._context.access is None
            and self._context.metered is None
        ):
            self._shared_place = place_of(self._request, self._session, self._context.api_version)
        wait_s = self._request.max_wait_ms / 1000
        if attempt.owes_visibility:
            self._ends_at = self._parts.loop.time() + wait_s
            wait_s = max(wait_s, LONGEST_SYNC_S)
        if self._min_bytes > 1:
            self._appended_when_parked = self._appended() - attempt.total_bytes
        if self._request.isolation_level == READ_COMMITTED:
            self._stable_when_parked = self._stable()
        self._roles_when_parked = self._roles()
        delayed = DelayedFetch(
            [partition.follower_waiters if is_follower else partition.fetch_waiters for partition in self._parked],
            wait_s,
            self._parts.replicas.timeouts,
            self._parts.replicas.parked_fetches,
            self._retry,
        )
        self._deferred.on_abandoned = delayed.cancel

    def _park_until_a_change(self, replica: int) -> None:
        """Wait for a change of any partition of a follower: one that was not looked at may be the next to change."""
        replicas, wait_s = self._parts.replicas, self._request.max_wait_ms / 1000
        self._waits_until = self._parts.loop.time() + wait_s
        waiters = [replicas.led_changes.waiting(replica)]
        delayed = DelayedFetch(waiters, wait_s, replicas.timeouts, replicas.parked_fetches, self._retry)
        self._deferred.on_abandoned = delayed.cancel

    def _appended(self) -> int:
        return sum(partition.appended_bytes for partition in self._parked)

    def _stable(self) -> int:
        return sum(partition.log.last_stable_offset for partition in self._parked)

    def _roles(self) -> list[int]:
        """Leader epochs, doubled, and one more where this broker leads."""
        return [2 * partition.leader_epoch + partition.leading for partition in self._parked]

    def _retry(self, last: bool) -> bool:
        if last and self._is_quiet:
            self._deferred.complete(
                FetchResponse(error_code=ErrorCode.NONE, session_id=self._session.session_id, responses=[])
            )
            return True
        self._is_quiet = False
        if self._waits_until is not None and not last:
            self._look_again(self._waits_until)
            return True
        if self._shared_place is not None:
            shared = self._parts.shared_answers.get(self._shared_place, self._parked[0])
            if shared is not None:
                self._parked[0].throughput.fetched_bytes += shared.records_bytes
                self._deferred.complete(shared.response(self._session))
                return True
        min_bytes = self._min_bytes
        if self._roles_when_parked != self._roles():
            last = True
        if (
            self._ends_at is not None
            and self._parts.loop.time() >= self._ends_at
            and not any(partition.owes_visibility for partition in self._parked)
        ):
            last = True  # its time was up, but for what had been acknowledged
        too_little = min_bytes > 1 and self._appended() - self._appended_when_parked < min_bytes
        if too_little and not last:
            return False
        if not last and self._request.isolation_level == READ_COMMITTED and self._stable() == self._stable_when_parked:
            return False  # what has been committed lies behind an open transaction
        attempt = self.attempt()
        if attempt.is_large:
            self._answering = self._parts.loop.create_task(self._answer_in_slices(attempt))
            return True
        try:
            run_at_once(attempt.look())
            if attempt.cold:
                self._read_cold(attempt)
                return True
            if not (last or attempt.must_answer or attempt.total_bytes >= min_bytes):
                return False
            response: FetchResponse | Exception = self._shared(attempt)
        except Exception as error:  # the caller that woke this fetch has others to wake
            response = error
        self._deferred.complete(response)
        return True

    def _look_again(self, ends_at: float) -> None:
        """Something has happened to a partition, which may be one of the session's."""
        self._waits_until = None
        self._request.max_wait_ms = max(0, int((ends_at - self._parts.loop.time()) * 1000))
        attempt = self.attempt()
        if attempt.is_large:
            self._answering = self._parts.loop.create_task(self._look_again_in_slices(attempt))
            return
        try:
            answer: _Answer | Exception = self.start(attempt)
        except Exception as error:  # the caller that woke this fetch has others to wake
            answer = error
        if not isinstance(answer, Deferred):
            self._deferred.complete(answer)

    async def _look_again_in_slices(self, attempt: FetchAttempt) -> None:
        try:
            answer: _Answer | Exception = await self.start_in_slices(attempt)
        except Exception as error:
            answer = error
        if not isinstance(answer, Deferred):
            self._deferred.complete(answer)

    def _shared(self, attempt: FetchAttempt) -> FetchResponse:
        """The response, which those that wait at the same place get, too."""
        response = run_at_once(attempt.response())
        if self._shared_place is not None and attempt.may_be_shared and attempt.total_bytes >= self._min_bytes:
            version = self._context.api_version
            self._parts.shared_answers.put(self._shared_place, self._parked[0], response, version)
        return response

    async def _answer_in_slices(self, attempt: FetchAttempt) -> None:
        """Answer with what there is now, of many partitions: enough has come, or time is up."""
        slices = self._parts.slices
        try:
            await slices.run(attempt.look())
            if attempt.cold:
                self._read_cold(attempt)
                return
            response: FetchResponse | Exception = await slices.run(attempt.response())
        except Exception as error:
            response = error
        self._deferred.complete(response)

    def _read_cold(self, attempt: FetchAttempt) -> None:
        """Read from the disk in a thread when the connection's turn has come, then answer, with however much that
        gave."""

        def answer(failure: Exception | None) -> None:
            self._deferred.complete(run_at_once(attempt.response()) if failure is None else failure)

        self._deferred.on_abandoned = self._parts.cold_fetches.run(
            self._context.connection_id, attempt.read_cold, answer
        )
