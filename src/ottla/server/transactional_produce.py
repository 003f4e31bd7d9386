"""Produce requests with transactional batches: verified before a partition takes the first of a transaction.

    every partition has records of the transaction already ----------------------------------> append
    some have not, or a request of this producer is waiting --> wait, ask the coordinator ---> append what may be

A producer has up to five requests under way, and their batches must be appended in the order in which they were sent:
while one is being verified, those that come after it wait. A request to very many partitions is worked on in slices
(ADR 22) and always waits for its producer's turn; until it has it, its connection is held.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.coordinators.verification import ABORTABLE, FIRST, SECOND, Generation
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import ProducerIdAndEpoch, TopicPartition
from ottla.records.batch import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    NO_PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
)
from ottla.server.context import Deferred, RequestContext
from ottla.slices import Steps, run_at_once

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.coordinators.verification import TransactionVerifier
    from ottla.log.producer_state import Verification
    from ottla.metadata.view import MetadataView
    from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.partition import Partition
    from ottla.server.keyed_queue import KeyedQueue
    from ottla.slices import Slices

    Verdicts: TypeAlias = Mapping[tuple[int, int], "Verification | OttlaError"]
    """By position of the topic in the request and number of the partition: what its batch is appended with, or why it
    is not."""

    Answer: TypeAlias = "ProduceResponse | Deferred[ProduceResponse | None] | None"
    LaterAnswer: TypeAlias = Coroutine[Any, Any, Answer]
    AppendAll: TypeAlias = Callable[["ProduceRequest", RequestContext, "Verdicts"], Answer | LaterAnswer]

ABORTABLE_SINCE: Final = 11
SECOND_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
STEP_MASK: Final = 15

ASK_AGAIN: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors of the transaction coordinator that a producer could not handle."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that a produce request uses."""

    config: "BrokerConfig"
    clock: "Clock"
    loop: "asyncio.AbstractEventLoop"
    metadata: "MetadataView"
    replicas: "ReplicaManager"
    verifier: "TransactionVerifier"
    transactional_queue: "KeyedQueue"
    slices: "Slices"


def has_transactional_records(request: "ProduceRequest") -> bool:
    """Whether a batch in it is marked as transactional; nothing else is checked."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) > ATTRIBUTES_AT + 1
                and records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG
                and records[MAGIC_AT] == MAGIC_V2
            ):
                return True
    return False


def handle_transactional(
    parts: Parts, request: "ProduceRequest", context: RequestContext, append_all: "AppendAll"
) -> "Answer | LaterAnswer":
    """Have everything appended that may be.

    Refused as a whole: TRANSACTIONAL_ID_AUTHORIZATION_FAILED without a transactional id, INVALID_PRODUCER_ID_MAPPING
    for batches of several producers.
    """
    producers = run_at_once(_producers_in(request))
    verdicts = _verdicts_without_asking(parts, request, context, producers)
    if verdicts is not None:
        return append_all(request, context, verdicts)
    return _Waiting(parts, request, context, producers.pop(), append_all).start()


async def handle_many(
    parts: Parts,
    request: "ProduceRequest",
    context: RequestContext,
    append_all: "AppendAll",
    release: Callable[[], None],
) -> "Answer":
    """The same for very many partitions, with `append_all` working in slices too. `release` is called as soon as
    another request of the connection may be looked at."""
    try:
        producers = await parts.slices.run(_producers_in(request))
        verdicts = _verdicts_without_asking(parts, request, context, producers)
        if verdicts is not None:
            answer = append_all(request, context, verdicts)
            return await answer if isinstance(answer, Coroutine) else answer
        queued = _Waiting(parts, request, context, producers.pop(), append_all).enqueue()
    finally:
        release()
    return await queued


def _producers_in(request: "ProduceRequest") -> Steps[set[ProducerIdAndEpoch]]:
    """The producers of its transactional batches."""
    producers: set[ProducerIdAndEpoch] = set()
    for topic in request.topic_data:
        for number, data in enumerate(topic.partition_data):
            header = _transactional_header(data.records)
            if header is not None:
                producers.add(ProducerIdAndEpoch(header.producer_id, header.producer_epoch))
            if number & STEP_MASK == STEP_MASK:
                yield
    return producers


def _verdicts_without_asking(
    parts: Parts, request: "ProduceRequest", context: RequestContext, producers: set[ProducerIdAndEpoch]
) -> "Verdicts | None":
    """None if it is one producer's, with a transactional id, and has to be verified."""
    if request.transactional_id is None:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _all_refused(request, code, "transactional records need a transactional id")
    if len(producers) > 1:
        code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return _all_refused(request, code, "transactional records of several producers")
    is_needed = parts.verifier.is_needed(generation_of(context.api_version))
    return None if producers and is_needed else {}


class _Waiting:
    """One request, from the moment it is known to be transactional."""

    __slots__ = ("_append_all", "_context", "_generation", "_parts", "_producer", "_request")

    def __init__(
        self,
        parts: Parts,
        request: "ProduceRequest",
        context: RequestContext,
        producer: ProducerIdAndEpoch,
        append_all: "AppendAll",
    ) -> None:
        self._parts = parts
        self._request = request
        self._context = context
        self._producer = producer
        self._append_all = append_all
        self._generation = generation_of(context.api_version)

    def start(self) -> "Answer | LaterAnswer":
        is_behind_others = self._parts.transactional_queue.is_busy(self._producer.producer_id)
        if not is_behind_others and not run_at_once(self._unverified()):
            return self._append_all(self._request, self._context, {})
        keep_records(self._request)
        return self.enqueue()

    def enqueue(self) -> "LaterAnswer":
        """Go on behind what the producer has sent before; the records have to be the request's own by now."""
        return _outcome(self._parts.transactional_queue.put(self._producer.producer_id, self._verify_and_append))

    def _unverified(self) -> "Steps[dict[tuple[int, int], tuple[Partition, Verification]]]":
        """What the coordinator has to be asked about. What cannot be appended at all shows when it is tried."""
        parts = self._parts
        found: dict[tuple[int, int], tuple[Partition, Verification]] = {}
        now_ms = parts.clock.now_ms()
        for number, topic in enumerate(self._request.topic_data):
            key = topic.topic_id if self._context.api_version >= TOPIC_IDS_SINCE else topic.name
            for place, data in enumerate(topic.partition_data):
                if place & STEP_MASK == STEP_MASK:
                    yield
                header = _transactional_header(data.records)
                partition = parts.replicas.find(key, data.index)
                if header is None or partition is None:
                    continue
                try:
                    verification = partition.log.producer_state.begin_verification(
                        header, now_ms, implicit=self._generation is SECOND
                    )
                except OttlaError:
                    continue
                if verification is not None:
                    found[number, data.index] = partition, verification
        return found

    async def _verify_and_append(self) -> "Answer":
        answer = self._append_all(self._request, self._context, await self._verdicts())
        return await answer if isinstance(answer, Coroutine) else answer

    async def _verdicts(self) -> "Verdicts":
        unverified = await self._parts.slices.run(self._unverified())
        if not unverified:
            return {}
        transactional_id = self._request.transactional_id
        assert transactional_id is not None
        partitions = {partition.topic_partition for partition, _ in unverified.values()}
        refusals = await self._parts.verifier.refusals(transactional_id, self._producer, partitions, self._generation)
        verdicts: dict[tuple[int, int], Verification | OttlaError] = {}
        for key, (partition, verification) in unverified.items():
            code = refusals.get(partition.topic_partition)
            verdicts[key] = verification if code is None else self._refusal(code, partition.topic_partition)
        return verdicts

    def _refusal(self, code: ErrorCode, partition: TopicPartition) -> OttlaError:
        """NOT_ENOUGH_REPLICAS makes producers of every age try again, without asking for metadata first."""
        busy = code is ErrorCode.CONCURRENT_TRANSACTIONS and self._generation is not SECOND
        told = ErrorCode.NOT_ENOUGH_REPLICAS if code in ASK_AGAIN or busy else code
        return ApiError(
            told, f"{partition} is not known to be in the transaction: the coordinator answered {code.name}"
        )


async def _outcome(appending: "asyncio.Task[Answer]") -> "Answer":
    """The answer of queued work. The broker appends what it has accepted, also when the connection is gone."""
    return await asyncio.shield(appending)


def keep_records(request: "ProduceRequest") -> None:
    """Copy them: the bytes it came in are used again for the next request."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytearray(data.records)


def generation_of(produce_version: int) -> Generation:
    """The generation of transactions (KIP-890) that a version of Produce belongs to."""
    if produce_version >= SECOND_SINCE:
        return SECOND
    return ABORTABLE if produce_version >= ABORTABLE_SINCE else FIRST


def _transactional_header(records: Buffer | None) -> BatchHeader | None:
    """The header of a batch with a producer; None for any other, and for one that does not parse, which fails when it
    is
    appended."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    header = BatchHeader(0, *HEADER.unpack_from(records))
    if header.magic != MAGIC_V2 or not header.is_transactional or header.producer_id == NO_PRODUCER_ID:
        return None
    return header


def _all_refused(request: "ProduceRequest", code: ErrorCode, why: str) -> "Verdicts":
    return {
        (number, data.index): ApiError(code, why)
        for number, topic in enumerate(request.topic_data)
        for data in topic.partition_data
    }
