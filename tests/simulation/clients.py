"""Clients of the simulated cluster, on machines of their own: a producer that wants acks=all, and a consumer."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.peer.client import PeerClient, PeerUnavailable
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import iter_batches
from ottla.records.record import Record, decode_records, encode_batch
from ottla.testing.simulation.machine import PORT
from ottla.testing.simulation.network import SimNetwork
from tests.simulation.history import History, Place

METADATA: Final = 12
PRODUCE: Final = 9
FETCH: Final = 12
"""Versions that name topics."""
ANSWER_WITHIN_S: Final = 8.0
PAUSE_S: Final = 0.1


class SimClient:
    """Knows who leads, as far as it has been told."""

    def __init__(self, network: SimNetwork, name: str, brokers: Sequence[str], topic: str) -> None:
        self._network = network
        self._loop = network.loop
        self._host = network.host(name)
        self._random: Random = network.loop.random
        self._name = name
        self._topic = topic
        self._peers = {
            broker: PeerClient(broker, PORT, name, connect=self._host.connect)  # type: ignore[arg-type]
            for broker in brokers
        }
        self._leaders: dict[int, str] = {}

    async def _find_leaders(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        asked = self._peers[self._random.choice(list(self._peers))]
        try:
            answer = await asked.ask(request, METADATA, timeout_s=ANSWER_WITHIN_S)
        except PeerUnavailable:
            return
        hosts = {broker.node_id: broker.host for broker in answer.brokers}
        self._leaders = {
            part.partition_index: hosts[part.leader_id]
            for topic in answer.topics
            for part in topic.partitions
            if part.leader_id in hosts
        }

    async def _leader(self) -> tuple[int, PeerClient]:
        """A partition, and who is said to lead it."""
        while not self._leaders:
            await self._find_leaders()
            if not self._leaders:
                await asyncio.sleep(PAUSE_S)
        partition = self._random.choice(sorted(self._leaders))
        return partition, self._peers[self._leaders[partition]]

    async def _start_over(self) -> None:
        self._leaders = {}
        await asyncio.sleep(self._random.uniform(0, PAUSE_S))


class SimProducer(SimClient):
    """Produces one small batch after the other, each value once."""

    def __init__(
        self, network: SimNetwork, name: str, brokers: Sequence[str], topic: str, history: History, *, acks: int = -1
    ) -> None:
        super().__init__(network, name, brokers, topic)
        self._history = history
        self._acks = acks
        self._numbers = itertools.count()

    async def run(self) -> None:
        """Until cancelled. Raises Violation."""
        while True:
            partition, leader = await self._leader()
            values = [f"{self._name}:{next(self._numbers)}".encode() for _ in range(self._random.randrange(1, 4))]
            batch = encode_batch([Record(number, 0, None, value) for number, value in enumerate(values)])
            data = TopicProduceData(
                name=self._topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
            )
            request = ProduceRequest(acks=self._acks, timeout_ms=5_000, topic_data=[data])
            try:
                answer = await leader.ask(request, PRODUCE, timeout_s=ANSWER_WITHIN_S)
            except PeerUnavailable:
                self._history.refused += len(values)
                await self._start_over()
                continue
            (result,) = answer.responses[0].partition_responses
            if result.error_code != ErrorCode.NONE:
                self._history.refused += len(values)
                await self._start_over()
                continue
            place = Place(self._topic, partition)
            for offset, value in enumerate(values, result.base_offset):
                self._history.acknowledge(place, offset, value, self._loop.time())
            await asyncio.sleep(self._random.expovariate(20))


class SimConsumer(SimClient):
    """Reads partitions from their beginning, over and over, and remembers what stood where."""

    def __init__(self, network: SimNetwork, name: str, brokers: Sequence[str], topic: str, history: History) -> None:
        super().__init__(network, name, brokers, topic)
        self._history = history
        self._positions: dict[int, int] = {}

    async def run(self) -> None:
        """Until cancelled. Raises Violation."""
        while True:
            partition, leader = await self._leader()
            position = self._positions.get(partition, 0)
            try:
                end, found = await fetch(leader, Place(self._topic, partition), position)
            except (PeerUnavailable, FetchRefused):
                await self._start_over()
                continue
            for offset, value in found.items():
                self._history.see(Place(self._topic, partition), offset, value, self._loop.time())
            position = max([offset + 1 for offset in found] or [min(position, end)])
            # going back now and then shows what has been truncated under somebody who had read it
            self._positions[partition] = 0 if self._random.random() < 0.02 else position
            await asyncio.sleep(self._random.expovariate(20))


class FetchRefused(Exception):
    """The broker does not lead the partition, or cannot read it."""


async def fetch(leader: PeerClient, place: Place, position: int) -> tuple[int, dict[int, bytes]]:
    """The high watermark, and what stands from an offset on. Raises FetchRefused, PeerUnavailable."""
    part = FetchPartition(partition=place.partition, fetch_offset=position, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=place.topic, partitions=[part])]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=topics, forgotten_topics_data=[])
    answer = await leader.ask(request, FETCH, timeout_s=ANSWER_WITHIN_S)
    if answer.error_code or not answer.responses:
        raise FetchRefused(answer.error_code)
    (data,) = answer.responses[0].partitions
    if data.error_code:
        raise FetchRefused(data.error_code)
    return data.high_watermark, dict(_values(data.records, position))


def _values(records: Any, position: int) -> Iterator[tuple[int, bytes]]:
    buffer = b"" if records is None else bytes(records)
    for header in iter_batches(buffer, allow_partial_end=True):
        for record in decode_records(buffer, header):
            if record.offset >= position:
                yield record.offset, record.value or b""
