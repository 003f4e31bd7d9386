"""Quotas of clients, enforced: what each request uses is measured, and its connection is muted when that is too much.

    request -> Metered -> handler -> answer with `throttle_time_ms`, sent at once -> connection muted so long (KIP-219)

Quotas follow the cluster's metadata. While there are none, `ClientQuotas.enforced` is None and nothing is measured.
Source: Kafka 4.3, `KafkaApis`, `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager`.
"""

import logging
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.errors import ErrorCode, OttlaError
from ottla.protocol.api import ApiKey
from ottla.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
)
from ottla.quotas.limits import NO_LIMITS, ClientLimits, Limits, concerns_quotas, read_limits
from ottla.quotas.rates import TokenBucket, Window, whole_ms
from ottla.quotas.usage import Meters, Used, key_of
from ottla.slices import Steps

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.cluster.image import MetadataImage
    from ottla.config.broker import BrokerConfig
    from ottla.server.context import RequestContext

log = logging.getLogger(__name__)

T = TypeVar("T")
PERCENT_OF_A_SECOND: Final = 100.0
USER_PREFIX: Final = "User:"
ANSWER_BYTES: Final = 34
PARTITION_BYTES: Final = 55
"""What an answer to a fetch takes besides records, in all and for each partition; nearly so."""


class QuotaExceeded(OttlaError):
    """A change of topics is more than a quota allows now. As in Kafka, the error has no message."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class ClientQuotas:
    """The quotas of a broker's clients. On the loop's thread."""

    def __init__(self, config: "BrokerConfig", clock: "Clock") -> None:
        self.limits = NO_LIMITS
        self.window = Window(config.quota_window_num, config.quota_window_size_seconds * 1000)
        mutations = Window(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        self._enforcement = Enforcement(clock, self.window, mutations)
        self.enforced: Enforcement | None = None
        """What measures requests; None while no client has a quota."""
        self._subscribers: list[Callable[[Limits], None]] = []

    def follow(self, old: "MetadataImage", new: "MetadataImage") -> None:
        """Take over the quotas of the metadata."""
        if new.configs is old.configs or not concerns_quotas(old.configs, new.configs):
            return
        self.limits = read_limits(new.configs, log.error)
        self._enforcement.limits = self.limits.clients
        self.enforced = self._enforcement if self.limits.clients else None
        for subscriber in self._subscribers:
            subscriber(self.limits)

    def subscribe(self, changed: Callable[[Limits], None]) -> None:
        """Call `changed` with all quotas, now and after every change."""
        self._subscribers.append(changed)
        changed(self.limits)

    def usage(self) -> Steps[list[Used]]:
        """What is used now of the quotas of clients that have used something lately; in steps."""
        return self._enforcement.usage()


class Enforcement:
    """Measures what clients use of their quotas, and decides how long they are throttled."""

    def __init__(self, clock: "Clock", window: Window, mutations: Window) -> None:
        self.limits: Mapping[str, ClientLimits] = {}
        self.window = window
        self.throttled: dict[str, list[float]] = {}
        """By kind: requests that were throttled since the start, and the milliseconds in all."""
        self._clock = clock
        self._meters: dict[str, Meters] = {
            PRODUCER_BYTE_RATE: Meters(partial(TokenBucket, window), window.idle_after_ms),
            CONSUMER_BYTE_RATE: Meters(partial(TokenBucket, window), window.idle_after_ms),
            REQUEST_PERCENTAGE: Meters(partial(TokenBucket, window, None, window.ms), window.idle_after_ms),
            CONTROLLER_MUTATION_RATE: Meters(partial(TokenBucket, mutations, mutations.ms), mutations.idle_after_ms),
        }

    def now_ms(self) -> float:
        """The time, on a clock that never goes back."""
        return self._clock.monotonic() * 1000

    def begin(self, context: "RequestContext", request_bytes: int) -> "Metered | None":
        """Measure a request; None for one of a client that has not authenticated yet."""
        authentication = context.authentication
        if authentication is not None and authentication.principal is None:
            return None
        user = context.principal.removeprefix(USER_PREFIX)
        return Metered(self, user, context.client_id or "", context.api_key, request_bytes)

    def meter(self, kind: str, user: str, client_id: str, now_ms: float) -> TokenBucket | None:
        """What measures the use of the quota that holds; None without one."""
        limits = self.limits.get(kind)
        limit = None if limits is None else limits.of(user, client_id)
        return None if limit is None else self._meters[kind].of(key_of(limit), limit.per_s, now_ms)

    def note_throttled(self, kind: str, throttle_ms: int) -> None:
        """Count a request whose client is throttled for so long by the quotas of a kind."""
        counts = self.throttled.setdefault(kind, [0, 0])
        counts[0] += 1
        counts[1] += throttle_ms

    def usage(self) -> Steps[list[Used]]:
        """What is used now, in steps."""
        now_ms = self.now_ms()
        found = []
        for kind, meters in self._meters.items():
            limits = self.limits.get(kind)
            for entity, meter in meters.in_use(now_ms):
                if limits is not None and isinstance(entity, Entity) and limits.has(entity):
                    throttled_ms = whole_ms(meter.excess_ms(now_ms))
                    found.append(Used(kind, entity, meter.limit, meter.per_s(now_ms), throttled_ms))
                yield
        return found


class Metered:
    """What one request uses of its client's quotas."""

    __slots__ = (
        "_api_key",
        "_client_id",
        "_enforcement",
        "_request_bytes",
        "_spent_s",
        "_throttle_ms",
        "_throttled_by",
        "_user",
    )

    def __init__(
        self, enforcement: Enforcement, user: str, client_id: str, api_key: ApiKey, request_bytes: int
    ) -> None:
        self._enforcement = enforcement
        self._user = user
        self._client_id = client_id
        self._api_key = api_key
        self._request_bytes = request_bytes
        self._spent_s: float | None = 0.0
        """Processor time that is not accounted for yet; None when the request has been answered."""
        self._throttle_ms = 0.0
        self._throttled_by = ""
        """The kind of quota that demands the most."""

    def spend(self, seconds: float) -> None:
        """The request has taken so much of the loop's time."""
        if self._spent_s is not None:
            self._spent_s += seconds
        elif (meter := self._meter(REQUEST_PERCENTAGE)) is not None:
            meter.add(seconds * PERCENT_OF_A_SECOND, self._enforcement.now_ms())

    def _meter(self, kind: str) -> TokenBucket | None:
        enforcement = self._enforcement
        return enforcement.meter(kind, self._user, self._client_id, enforcement.now_ms())

    def answered(self, *, has_answer: bool) -> int:
        """Account for the request, which is answered now; how many milliseconds to throttle its client for."""
        if self._api_key is ApiKey.PRODUCE:
            self._use(PRODUCER_BYTE_RATE, self._request_bytes)
        if has_answer:  # as in Kafka, time does not count where an answer cannot say so (acks=0)
            self._account_for_time()
        throttle_ms = whole_ms(self._throttle_ms)
        if throttle_ms:
            self._enforcement.note_throttled(self._throttled_by, throttle_ms)
        return throttle_ms

    def _throttle_for(self, kind: str, excess_ms: float) -> None:
        if excess_ms > self._throttle_ms:
            self._throttle_ms, self._throttled_by = excess_ms, kind

    def _use(self, kind: str, amount: float) -> None:
        meter = self._meter(kind)
        if meter is not None:
            now_ms = self._enforcement.now_ms()
            meter.add(amount, now_ms)
            self._throttle_for(kind, meter.excess_ms(now_ms))

    def _account_for_time(self) -> None:
        spent_s, self._spent_s = self._spent_s, None
        meter = None if spent_s is None else self._meter(REQUEST_PERCENTAGE)
        if meter is not None and spent_s is not None:
            now_ms = self._enforcement.now_ms()
            meter.add(spent_s * PERCENT_OF_A_SECOND, now_ms)
            excess_ms = min(meter.excess_ms(now_ms), self._enforcement.window.sample_ms)
            self._throttle_for(REQUEST_PERCENTAGE, excess_ms)

    # -- fetches -----------------------------------------------------------------------------------------------------

    def largest_fetch_bytes(self) -> int | None:
        """How many bytes one answer may have, so that the quota can ever allow it; None without a quota."""
        meter = self._meter(CONSUMER_BYTE_RATE)
        return None if meter is None else int(min(self._most(meter), 2**31 - 1))

    def _most(self, meter: TokenBucket) -> float:
        return meter.limit * self._enforcement.window.burst_ms / 1000

    def fetched(self, record_bytes: int, partitions: int) -> bool:
        """Account for an answer with records. False if it must be sent without them, since they are too many now.

        A batch larger than the quota ever allows is given when nothing was used before, and throttled for (Kafka never
        gives it).
        """
        self._account_for_time()
        meter = self._meter(CONSUMER_BYTE_RATE)
        if meter is not None:
            now_ms, size = self._enforcement.now_ms(), record_bytes + ANSWER_BYTES + partitions * PARTITION_BYTES
            is_huge = size > self._most(meter) and meter.excess_ms(now_ms) == 0
            meter.add(size, now_ms)
            self._throttle_for(CONSUMER_BYTE_RATE, meter.excess_ms(now_ms))
            if self._throttle_ms >= 0.5 and record_bytes and not is_huge:
                meter.add(-size, now_ms)
        else:
            is_huge = False
        return self._throttle_ms < 0.5 or is_huge

    def given(self, record_bytes: int, partitions: int) -> None:
        """Account for records that are given in any case: members of share groups have acquired them."""
        self._use(CONSUMER_BYTE_RATE, record_bytes + ANSWER_BYTES + partitions * PARTITION_BYTES)

    # -- changes of topics -------------------------------------------------------------------------------------------

    @property
    def limits_changes(self) -> bool:
        """Whether a quota for changes of topics holds."""
        return self._meter(CONTROLLER_MUTATION_RATE) is not None

    def refusal(self, partitions: int, *, strictly: bool) -> QuotaExceeded | None:
        """Account for partitions that are created or deleted; or why that has to wait, `strictly`.

        Clients too old to understand that may go on, and are throttled.
        """
        meter = self._meter(CONTROLLER_MUTATION_RATE)
        if meter is None:
            return None
        now_ms = self._enforcement.now_ms()
        if strictly and meter.excess_ms(now_ms) > 0:
            self._throttle_for(CONTROLLER_MUTATION_RATE, meter.excess_ms(now_ms))
            return QuotaExceeded()
        meter.add(partitions, now_ms)
        if not strictly:
            self._throttle_for(CONTROLLER_MUTATION_RATE, meter.excess_ms(now_ms))
        return None


@coroutine
def _timed(
    work: Coroutine[Any, Any, T], spend: Callable[[float], None], now: Callable[[], float]
) -> Generator[Any, Any, T]:
    problem: BaseException | None = None
    while True:
        began = now()
        try:
            awaited = work.send(None) if problem is None else work.throw(problem)
        except StopIteration as finished:
            result: T = finished.value
            return result
        finally:
            spend(now() - began)
        problem = None
        try:
            yield awaited
        except BaseException as thrown:
            problem = thrown


async def timed(work: Coroutine[Any, Any, T], spend: Callable[[float], None], now: Callable[[], float]) -> T:
    """Run a coroutine, and report the time of each of its steps, not that in between."""
    return await _timed(work, spend, now)
