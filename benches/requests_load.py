"""Requests without a client library, sent as fast as they are answered, to see what one of them costs the broker.

`python -m benches.requests_load produce|heartbeats|metadata|fan-out|classic-group ...` prints one line of JSON. The
broker's processor time is read from the operating system by its process id.
"""

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import psutil

from benches.members_load import ClassicMember, Connection, RefusedError
from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.messages import fetch, heartbeat, metadata, produce
from ottla.protocol.messages import find_coordinator as fc
from ottla.protocol.schema import Message
from ottla.records.record import Record, encode_batch

_WINDOW: Final = 5
"""Requests in flight on a connection, as producers have them."""
_CONNECTIONS: Final = 4
_VERSIONS: Final = {produce.ProduceRequest: 12, heartbeat.HeartbeatRequest: 4, metadata.MetadataRequest: 12}
_FETCH_VERSION: Final = 12
_MOST_WARM_UPS: Final = 16
_FALLS: Final = 0.9
"""A warm-up whose requests cost less than this share of the cheapest before shows that a compiler is still at work."""


class CpuMeter:
    """Processor seconds of the broker since the meter was made."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._before = self._read()

    def _read(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def seconds(self) -> float:
        return self._read() - self._before


async def pipeline(bootstrap: str, request: Message, count: int, *, window: int) -> None:
    """Send `request` `count` times over one connection, `window` of them in flight. The last answer is checked.

    Raises:
        RefusedError: the broker answered with an error.
    """
    host, _, port = bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    version = _VERSIONS[type(request)]
    frame = b"".join(bytes(piece) for piece in encode_request(request, version, 1, "load"))  # type: ignore[arg-type] # no region
    sent = min(window, count)
    writer.write(frame * sent)
    answer = b""
    for _ in range(count):
        size = int.from_bytes(await reader.readexactly(4), "big")
        answer = await reader.readexactly(size)
        if sent < count:
            writer.write(frame)
            sent += 1
    _check(decode_response(type(request).API_KEY, version, answer)[1])  # type: ignore[arg-type] # a request has a key
    writer.close()


def _check(answer: Any) -> None:
    codes = {getattr(answer, "error_code", 0)}
    if isinstance(answer, produce.ProduceResponse):
        codes |= {one.error_code for topic in answer.responses for one in topic.partition_responses}
    if codes - {0}:
        raise RefusedError(f"a {type(answer).__name__} has the errors {codes}")


async def repeated(given: argparse.Namespace, request: Message) -> dict[str, float]:
    """Microseconds of the broker's processor for one request of many equal ones, when that has settled."""

    async def send(count: int) -> None:
        each = count // _CONNECTIONS
        await asyncio.gather(*(pipeline(given.bootstrap, request, each, window=_WINDOW) for _ in range(_CONNECTIONS)))

    await _warm_up(lambda: send(max(given.count // 4, _CONNECTIONS)), given.pid)
    meter = CpuMeter(given.pid)
    began = asyncio.get_running_loop().time()
    await send(given.count)
    elapsed = asyncio.get_running_loop().time() - began
    return {"cpu_us": 1e6 * meter.seconds() / given.count, "per_s": given.count / elapsed}


async def _warm_up(load: Callable[[], Awaitable[None]], pid: int) -> None:
    """Repeat a load until it was no cheaper twice in a row: a virtual machine compiles what it runs often."""
    cheapest, settled = math.inf, 0
    for _ in range(_MOST_WARM_UPS):
        meter = CpuMeter(pid)
        await load()
        used = meter.seconds()
        settled = 0 if used < _FALLS * cheapest else settled + 1
        cheapest = min(cheapest, used)
        if settled == 2:
            return


def produce_request(topic: str, size_bytes: int) -> produce.ProduceRequest:
    """One record of `size_bytes` to partition 0, acks=all."""
    batch = encode_batch([Record(0, int(time.time() * 1000), None, bytes(size_bytes))])
    partition = produce.PartitionProduceData(index=0, records=bytes(batch))
    data = produce.TopicProduceData(name=topic, partition_data=[partition])
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


async def heartbeats(given: argparse.Namespace) -> dict[str, float]:
    """Heartbeats of one member of a classic group, which are answered without any write."""
    member = ClassicMember(await Connection.open(given.bootstrap), "beating", given.topic)
    while not member.settled:
        await member.step()
    member_id, generation = member.identity
    beat = heartbeat.HeartbeatRequest(group_id="beating", generation_id=generation, member_id=member_id)
    return await repeated(given, beat)


async def fan_out(given: argparse.Namespace) -> dict[str, float]:
    """`given.consumers` wait at the end of one partition, to which 20 records a second are written.

    Microseconds of the broker's processor for a fetch that brings a record.
    """
    consumers = [_Consumer(given.topic) for _ in range(given.consumers)]
    for consumer in consumers:
        await consumer.connect(given.bootstrap)
    tasks = [asyncio.create_task(consumer.run()) for consumer in consumers]
    request = produce_request(given.topic, 100)
    await asyncio.sleep(1.0)

    async def write(count: int) -> None:
        for _ in range(count):
            await pipeline(given.bootstrap, request, 1, window=1)
            await asyncio.sleep(0.05)

    await _warm_up(lambda: write(max(given.count // 4, 1)), given.pid)
    before, meter = sum(consumer.fetched for consumer in consumers), CpuMeter(given.pid)
    await write(given.count)
    fetched = sum(consumer.fetched for consumer in consumers) - before
    used = meter.seconds()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"cpu_us": 1e6 * used / fetched, "fetches": fetched}


class _Consumer:
    """Follows partition 0 with a fetch session of its own, as client libraries do."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._offset = 0
        self.fetched = 0
        """Fetches that brought records."""

    async def connect(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))

    async def run(self) -> None:
        session_id, epoch, moved = 0, 0, True
        while True:
            partition = fetch.FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=1 << 20)
            topics = [fetch.FetchTopic(topic=self._topic, partitions=[partition])] if moved else []
            request = fetch.FetchRequest(
                max_wait_ms=10_000, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics
            )
            pieces = encode_request(request, _FETCH_VERSION, 1, "load")
            self._writer.write(b"".join(bytes(piece) for piece in pieces))  # type: ignore[arg-type] # no region
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = await self._reader.readexactly(size)
            api_key = fetch.FetchRequest.API_KEY
            assert api_key is not None
            answer = decode_response(api_key, _FETCH_VERSION, frame)[1]
            session_id, epoch = answer.session_id, epoch + 1
            moved = False
            for topic in answer.responses:
                for one in topic.partitions:
                    if one.records is not None and len(one.records) and one.high_watermark > self._offset:
                        self._offset, moved = one.high_watermark, True
                        self.fetched += 1


async def classic_group(given: argparse.Namespace) -> dict[str, float]:
    """`given.consumers` members join one classic group at once: until all are settled, and what that costs.

    A group with more members than partitions leaves most of them without any, as it does in production.
    """
    members = [
        ClassicMember(await Connection.open(given.bootstrap), "crowd", given.topic) for _ in range(given.consumers)
    ]
    meter, loop = CpuMeter(given.pid), asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(_until_in(member, members) for member in members))
    return {"seconds": loop.time() - began, "cpu_s": meter.seconds()}


async def _until_in(member: ClassicMember, everyone: list[ClassicMember]) -> None:
    """Joins, and beats as clients do, until all members are in one generation."""

    def all_in() -> bool:
        generations = {one.identity[1] for one in everyone}
        return len(generations) == 1 and -1 not in generations

    while not all_in():
        await member.step()
        for _ in range(30):
            if all_in() or member.identity[1] < 0:
                break
            await asyncio.sleep(0.1)


async def run(given: argparse.Namespace) -> dict[str, float]:
    """Make the coordinators' topic, then what was asked for."""
    connection = await Connection.open(given.bootstrap)
    for _ in range(200):
        found = await connection.ask(fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["first"]), 4)
        if not found.coordinators[0].error_code:
            break
        await asyncio.sleep(0.1)
    await connection.close()
    loads: dict[str, Callable[[argparse.Namespace], Any]] = {
        "produce": lambda given: repeated(given, produce_request(given.topic, 1000)),
        "heartbeats": heartbeats,
        "metadata": lambda given: repeated(given, metadata.MetadataRequest(topics=None)),
        "fan-out": fan_out,
        "classic-group": classic_group,
    }
    result: dict[str, float] = await loads[given.what](given)
    return result


def main(arguments: list[str]) -> None:
    """Parse the command line, run, print the result."""
    parser = argparse.ArgumentParser(prog="benches.requests_load")
    parser.add_argument("what", choices=["produce", "heartbeats", "metadata", "fan-out", "classic-group"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--pid", type=int, required=True, help="of the broker")
    parser.add_argument("--count", type=int, default=0, help="requests, or records of `fan-out`")
    parser.add_argument("--consumers", type=int, default=0, help="of `fan-out` and `classic-group`")
    print(json.dumps(asyncio.run(run(parser.parse_args(arguments)))))


if __name__ == "__main__":
    main(sys.argv[1:])
