"""A broker of its own with several log directories, one of which fails while it runs."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.support.raw_client import ask

from ottla.broker import Broker
from ottla.errors import ErrorCode
from ottla.platform import Platform
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import Record, encode_batch
from ottla.testing.faulty_fs import FaultyFS, Operation

WRITES = (Operation.WRITE, Operation.SYNC, Operation.CREATE, Operation.RENAME)


class Bench:
    """A broker with the directories `a` and `b`, of which one may fail."""

    def __init__(self, directory: Path, broker: Broker, files: FaultyFS) -> None:
        self.broker = broker
        self._directory = directory
        self._files = files
        self.stopped = asyncio.Event()
        broker.on_failure = self.stopped.set

    async def ask(self, request: Any, version: int) -> Any:
        return await asyncio.to_thread(ask, f"127.0.0.1:{self.broker.port}", request, version)

    async def create(self, name: str, partitions: int) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        assert not (await self.ask(CreateTopicsRequest(topics=[topic]), 7)).topics[0].error_code

    async def produce(self, topic: str, partition: int) -> int:
        """The error code."""
        batch = encode_batch([Record(0, 1, None, b"v")])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        answer = await self.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    def fail(self, name: str) -> None:
        for operation in WRITES:
            self._files.fail(operation, f"{self._directory}/{name}/*", times=None)

    def held_in(self, name: str) -> set[str]:
        """The partitions whose logs are in a directory."""
        found = self.broker.replicas.directories.at(str(self._directory / name))
        assert found is not None
        return {str(topic_partition) for topic_partition in found.logs}


def run(directory: Path, test: Callable[[Bench], Coroutine[Any, Any, None]], metadata_in: str) -> None:
    files = FaultyFS()
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": f"{directory}/a,{directory}/b",
        "metadata.log.dir": f"{directory}/{metadata_in}",
    }

    async def main() -> None:
        (directory / metadata_in).mkdir()
        async with Broker.configured(None, settings, platform=Platform(fs=files)) as broker:
            await asyncio.wait_for(test(Bench(directory, broker, files)), 30)

    asyncio.run(main())


def test_the_other_directories_go_on_and_take_what_is_new(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.create("t", 4)
        dead, alive = bench.held_in("a"), bench.held_in("b")
        assert len(dead) == len(alive) == 2
        bench.fail("a")
        codes = {f"t-{number}": await bench.produce("t", number) for number in range(4)}
        assert codes == dict.fromkeys(dead, ErrorCode.KAFKA_STORAGE_ERROR) | dict.fromkeys(alive, 0)
        await bench.create("u", 2)
        grown = CreatePartitionsTopic(name="t", count=6, assignments=None)
        answer = await bench.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=5000, validate_only=False), 3)
        assert not answer.results[0].error_code
        assert bench.held_in("b") == alive | {"u-0", "u-1", "t-4", "t-5"}
        for number in range(4):  # nothing was made anew in place of what cannot be read
            assert await bench.produce("t", number) == codes[f"t-{number}"]
        assert not bench.stopped.is_set()

    run(tmp_path, test, "metadata")


def test_a_broker_alone_holds_what_lacked_room_as_soon_as_there_is_some(tmp_path: Path) -> None:
    """Logs that its start could not open, and those of a topic that was created meanwhile."""
    files = FaultyFS()
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}

    async def serving(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async with Broker.configured(None, settings, platform=Platform(fs=files)) as broker:
            await asyncio.wait_for(story(Bench(tmp_path, broker, files)), 30)

    async def before(bench: Bench) -> None:
        await bench.create("old", 2)
        assert await bench.produce("old", 0) == 0

    async def lacking(bench: Bench) -> None:
        files.fail(Operation.CREATE, "*/new-*", error=errno.ENOSPC, times=3)
        await bench.create("new", 2)
        assert await bench.produce("old", 0)
        for partition in [("old", 0), ("old", 1), ("new", 0), ("new", 1)]:
            while await bench.produce(*partition):
                await asyncio.sleep(0.1)
        assert bench.broker.replicas.find("old", 0).log.log_end_offset == 2  # type: ignore[union-attr]

    asyncio.run(serving(before))
    files.fail(Operation.OPEN, "*/old-*/*.log", error=errno.ENOSPC, times=6)
    asyncio.run(serving(lacking))


@pytest.mark.parametrize(
    ("dead", "says"),
    [
        (("a", "b"), "no log directory is left"),
        (("a",), "has failed, which has the broker's metadata (Input/output error"),
    ],
)
def test_without_its_metadata_or_any_directory_it_stops(tmp_path: Path, dead: tuple[str, ...], says: str) -> None:
    async def test(bench: Bench) -> None:
        await bench.create("t", 4)
        for name in dead:
            bench.fail(name)
        for number in range(4):
            await bench.produce("t", number)
        await bench.stopped.wait()
        assert says in str(bench.broker.failure)

    run(tmp_path, test, "a" if len(dead) == 1 else "metadata")
