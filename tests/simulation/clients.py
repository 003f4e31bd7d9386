"""Clients of the simulated cluster, on machines of their own: producers that want acks=all, and consumers."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerUnavailable
from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import BatchHeader, iter_batches
from ottla.records.control import decode_end_transaction
from ottla.records.record import Record, decode_records, encode_batch
from ottla.testing.simulation.machine import PORT
from ottla.testing.simulation.network import SimNetwork
from tests.simulation.history import History, Place

METADATA: Final = 12
PRODUCE: Final = 9
FETCH: Final = 12
"""Versions that name topics."""
LIST_OFFSETS: Final = 6
EARLIEST: Final = -2
INIT_PRODUCER_ID: Final = 4
ANSWER_WITHIN_S: Final = 3.0
PAUSE_S: Final = 0.2
NEVER_FOR_IDEMPOTENT: Final = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    )
)
"""What a producer hears that repeats each batch until it is acknowledged, if an acknowledged one was lost."""


class SimClient:
    """Knows who leads, as far as it has been told."""

    def __init__(
        self, network: SimNetwork, name: str, brokers: Sequence[str], topic: str, history: History, mean_pause_s: float
    ) -> None:
        self._loop = network.loop
        self._random = Random(network.loop.random.getrandbits(32))
        self._name = name
        self._topic = topic
        self._history = history
        self._mean_pause_s = mean_pause_s
        connect = network.host(name).connect
        self._peers = {broker: AsyncConnection(broker, PORT, name, connect=connect) for broker in brokers}
        self._leaders: dict[int, str] = {}

    async def _find_leaders(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        try:
            answer = await self._anybody().ask(request, METADATA, timeout_s=ANSWER_WITHIN_S)
        except BrokerUnavailable:
            return
        hosts = {broker.node_id: broker.host for broker in answer.brokers}
        self._leaders = {
            part.partition_index: hosts[part.leader_id]
            for topic in answer.topics
            for part in topic.partitions
            if part.leader_id in hosts
        }

    def _anybody(self) -> AsyncConnection:
        return self._peers[self._random.choice(list(self._peers))]

    async def _some_partition(self) -> int:
        while not self._leaders:
            await self._find_leaders()
            if not self._leaders:
                await asyncio.sleep(PAUSE_S)
        return self._random.choice(sorted(self._leaders))

    async def _leader_of(self, partition: int) -> AsyncConnection:
        while partition not in self._leaders:
            await self._find_leaders()
            if partition not in self._leaders:
                await asyncio.sleep(PAUSE_S)
        return self._peers[self._leaders[partition]]

    async def _start_over(self) -> None:
        self._leaders = {}
        await asyncio.sleep(self._random.uniform(0, PAUSE_S))

    async def _rest(self) -> None:
        await asyncio.sleep(self._random.expovariate(1 / self._mean_pause_s))


class SimProducer(SimClient):
    """Produces one small batch after the other, each value once; what is not acknowledged may be there or not."""

    acks = -1

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._numbers = itertools.count()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            partition = await self._some_partition()
            values = self._new_values()
            offset = await self._produce(partition, encode_batch(as_records(values)))
            if offset is None:
                self._history.refused += len(values)
                await self._start_over()
                continue
            self._acknowledged(partition, offset, values, once=False)
            await self._rest()

    def _new_values(self) -> list[bytes]:
        return [f"{self._name}:{next(self._numbers)}".encode() for _ in range(self._random.randrange(1, 4))]

    def _acknowledged(self, partition: int, first: int, values: Sequence[bytes], *, once: bool) -> None:
        place = Place(self._topic, partition)
        for offset, value in enumerate(values, first):
            self._history.acknowledge(place, offset, value, self._loop.time(), once=once)

    async def _produce(self, partition: int, batch: bytearray, *, transactional_id: str | None = None) -> int | None:
        """The offset it was acknowledged at; None if it was not, for whatever reason."""
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=self.acks,
            timeout_ms=int(ANSWER_WITHIN_S * 800),
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )
        leader = await self._leader_of(partition)
        try:
            answer = await leader.ask(request, PRODUCE, timeout_s=ANSWER_WITHIN_S)
        except BrokerUnavailable:
            return None
        (result,) = answer.responses[0].partition_responses
        if result.error_code:
            self._refused(partition, ErrorCode(result.error_code))
            return None
        return int(result.base_offset)

    def _refused(self, partition: int, code: ErrorCode) -> None:
        """A produce that is not repeated may be refused for any reason."""


class SimCarelessProducer(SimProducer):
    """Asks the leader alone to acknowledge. What it acknowledges may be lost with it: brokers that do not hold their
    leadership must not do so."""

    acks = 1

    def _acknowledged(self, _partition: int, _first: int, _values: Sequence[bytes], *, once: bool) -> None:
        """Nothing is promised."""


class SimIdempotentProducer(SimProducer):
    """Repeats each batch, with its sequence numbers, until it is acknowledged: each record is there once."""

    async def run(self) -> None:
        """Until cancelled."""
        producer_id, epoch = await self._identify()
        sequences: dict[int, int] = {}
        while True:
            partition = await self._some_partition()
            values = self._new_values()
            sequence = sequences.get(partition, 0)
            while True:
                batch = encode_batch(
                    as_records(values), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
                )
                offset = await self._produce(partition, batch)
                if offset is not None:
                    break
                await self._start_over()
            sequences[partition] = sequence + len(values)
            self._acknowledged(partition, offset, values, once=True)
            await self._rest()

    async def _identify(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while True:
            try:
                answer = await self._anybody().ask(request, INIT_PRODUCER_ID, timeout_s=ANSWER_WITHIN_S)
            except BrokerUnavailable:
                continue
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            await asyncio.sleep(PAUSE_S)

    def _refused(self, partition: int, code: ErrorCode) -> None:
        if code in NEVER_FOR_IDEMPOTENT:
            self._history.fail(
                f"{self._loop.time():.3f} s: {self._name} gets {code.name} for {self._topic}-{partition}, though it "
                "has left nothing out"
            )


class SimConsumer(SimClient):
    """Reads partitions from anybody who holds them, back and forth, as far as it is let."""

    def __init__(self, *args: Any, read_committed: bool) -> None:
        super().__init__(*args)
        self._isolation = int(read_committed)
        self._positions: dict[int, int] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            partition = await self._some_partition()
            position = self._positions.get(partition, 0)
            place = Place(self._topic, partition)
            # followers serve consumers, too (KIP-392)
            asked = self._anybody() if self._random.random() < 0.4 else await self._leader_of(partition)
            try:
                next_position, found = await fetch(asked, place, position, self._isolation)
            except (BrokerUnavailable, FetchRefused) as problem:
                await self._start_over()
                if isinstance(problem, FetchRefused) and problem.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._positions[partition] = await self._beginning(partition, position)
                continue
            for offset, value in found.items():
                self._history.see(place, offset, value, self._loop.time(), committed_only=bool(self._isolation))
            # going back now and then shows what has been truncated under somebody who had read it
            self._positions[partition] = 0 if self._random.random() < 0.02 else next_position
            await self._rest()

    async def _beginning(self, partition: int, position: int) -> int:
        """Where retention has left the log to begin, as the leader says; `position` if it does not."""
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=self._topic, partitions=[wanted])], isolation_level=0
        )
        try:
            answer = await (await self._leader_of(partition)).ask(request, LIST_OFFSETS, timeout_s=ANSWER_WITHIN_S)
        except BrokerUnavailable:
            return position
        (found,) = answer.topics[0].partitions
        return position if found.error_code else int(found.offset)


class FetchRefused(Exception):
    """The broker does not hold the partition, or cannot read it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = ErrorCode(code)


async def fetch(asked: AsyncConnection, place: Place, position: int, isolation: int) -> tuple[int, dict[int, bytes]]:
    """What stands from an offset on, and where to go on. Raises FetchRefused, BrokerUnavailable."""
    part = FetchPartition(partition=place.partition, fetch_offset=position, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=place.topic, partitions=[part])]
    request = FetchRequest(
        max_wait_ms=100, min_bytes=1, isolation_level=isolation, topics=topics, forgotten_topics_data=[]
    )
    answer = await asked.ask(request, FETCH, timeout_s=ANSWER_WITHIN_S)
    if answer.error_code or not answer.responses:
        raise FetchRefused(answer.error_code)
    (data,) = answer.responses[0].partitions
    if data.error_code:
        raise FetchRefused(data.error_code)
    aborted = [] if data.aborted_transactions is None else data.aborted_transactions
    buffer = b"" if data.records is None else bytes(data.records)
    headers = list(iter_batches(buffer, allow_partial_end=True))
    end = headers[-1].next_offset if headers else min(position, data.high_watermark)
    found = {
        record.offset: record.value or b""
        for header in _visible(buffer, headers, aborted)
        for record in decode_records(buffer, header)
        if record.offset >= position
    }
    return end, found


def as_records(values: Sequence[bytes]) -> list[Record]:
    return [Record(number, 0, None, value) for number, value in enumerate(values)]


def _visible(
    buffer: bytes, headers: Sequence[BatchHeader], aborted: Sequence[AbortedTransaction]
) -> Iterator[BatchHeader]:
    """The batches with records for a consumer: no markers, and nothing of the transactions said to be aborted."""
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    hidden: set[int] = set()
    for header in headers:
        while waiting and waiting[-1].first_offset <= header.last_offset:
            hidden.add(waiting.pop().producer_id)
        if header.is_control:
            marker = decode_end_transaction(buffer, header)
            if marker is not None and marker.is_abort:
                hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            yield header
