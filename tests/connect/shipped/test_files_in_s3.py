"""Files in an S3 server whose objects are replaced, and whose requests fail and stall."""

import io
import json
import random
from collections.abc import Iterator
from typing import Any, Final

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

from ottla.connect.api import Retriable, TopicPartition
from ottla.connect.connectors.files.sink import FileSink
from ottla.connect.connectors.files.source import FileSource
from tests.support.connect_tasks import TaskContext, opened, running, sink_record
from tests.support.faulty_http import STALL_S, Fault, FaultyProxy
from tests.support.probe import free_port

ITEMS: Final = TopicPartition("items", 0)
BUCKET: Final = "bucket"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    port = free_port()
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    yield port
    server.stop()


@pytest.fixture
def client(port: int) -> Any:
    credentials = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    client: Any = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **credentials)
    client.create_bucket(Bucket=BUCKET)
    return client


def options(url: str) -> str:
    quick = {"retries": {"total_max_attempts": 1}, "read_timeout": STALL_S / 2}
    return json.dumps({"key": "k", "secret": "s", "endpoint_url": url, "config_kwargs": quick})


def lines(first: int, last: int) -> bytes:
    return "".join(f'{{"n": {n:06}}}\n'.replace(" 0", " 1") for n in range(first, last)).encode()


def numbers(records: list[Any]) -> list[int]:
    return [record.value["n"] for record in records]


def source(prefix: str, url: str) -> dict[str, str]:
    path = f"s3://{BUCKET}/{prefix}/*.jsonl"
    return {
        "path": path,
        "topic": "t",
        "poll.interval.ms": "1",
        "storage.options": options(url),
        "batch.max.rows": "50",
    }


@pytest.mark.parametrize("count", [100, 150], ids=["same size", "longer"])
def test_an_object_that_was_replaced_is_read_anew_and_one_that_has_grown_goes_on(
    client: Any, port: int, count: int
) -> None:
    prefix = f"replaced-{count}"

    def put(content: bytes) -> None:
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/a.jsonl", Body=content)

    put(lines(100_000, 100_100))
    with running(FileSource, source(prefix, f"http://127.0.0.1:{port}")) as task:
        task.take(100)
        put(lines(100_000, 100_103))
        assert numbers(task.take(3)) == [100_100, 100_101, 100_102]
        position = task.position or {}
        assert not position["file"]["tag"].startswith("inode"), "it is the ETag"
    put(lines(200_000, 200_000 + count))
    context = TaskContext({str({"file": f"{BUCKET}/{prefix}/a.jsonl"}): position})
    with running(FileSource, source(prefix, f"http://127.0.0.1:{port}"), context=context) as task:
        assert numbers(task.take(count)) == list(range(200_000, 200_000 + count))
        for _ in range(5):
            assert task.step() == []


def test_an_object_that_is_replaced_after_it_was_listed_is_not_taken_for_the_listed_one(
    client: Any, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(first: int) -> None:
        content = io.BytesIO()
        pq.write_table(pa.table({"n": range(first, first + 3000)}), content)
        client.put_object(Bucket=BUCKET, Key="late/a.parquet", Body=content.getvalue())

    config = source("late", f"http://127.0.0.1:{port}") | {
        "path": f"s3://{BUCKET}/late/*.parquet",
        "batch.max.rows": "1000",
    }
    put(100_000)
    with running(FileSource, config) as task:
        assert numbers(task.take(1000))[-1] == 100_999
        position = task.position or {}
    opened_so_far: list[str] = []
    open_file = S3FileSystem.open

    def replaced_at_last(files: Any, path: str, *arguments: Any, **options: Any) -> Any:
        if not opened_so_far:
            put(200_000)
        opened_so_far.append(path)
        return open_file(files, path, *arguments, **options)

    monkeypatch.setattr(S3FileSystem, "open", replaced_at_last)
    context = TaskContext({str({"file": f"{BUCKET}/late/a.parquet"}): position})
    with running(FileSource, config, context=context) as task:
        assert numbers(task.take(3000)) == list(range(200_000, 203_000))
    assert "replaced" in str(context.warning)


def some_faults(seed: int) -> Any:
    chance = random.Random(seed)

    def fault() -> Fault:
        return chance.choices(("none", "refuse", "reset", "cut", "stall"), (60, 10, 10, 10, 10))[0]

    return fault


def test_each_row_is_read_once_however_many_requests_fail(client: Any, port: int) -> None:
    for number in range(3):
        key = f"faulty/{number}.jsonl"
        client.put_object(Bucket=BUCKET, Key=key, Body=lines(100_000 + number * 200, 100_200 + number * 200))
    seen: list[int] = []
    positions: dict[str, Any] = {}
    retried = 0
    with FaultyProxy(port, some_faults(1)) as proxy:
        while len(seen) < 600 or proxy.faults < 10:
            with running(FileSource, source("faulty", proxy.url), context=TaskContext(positions)) as task:
                try:
                    for _ in range(10):
                        records = task.step()
                        seen += numbers(records)
                        if records:
                            positions[str(dict(records[-1].part or {}))] = records[-1].position
                except Retriable:
                    retried += 1
            assert proxy.faults < 500, seen
    assert sorted(seen) == list(range(100_000, 100_600))
    assert retried > 0


def test_each_record_is_in_one_object_however_many_requests_fail(client: Any, port: int) -> None:
    expected = list(range(60))
    with FaultyProxy(port, some_faults(2)) as proxy:
        given = {"path": f"s3://{BUCKET}/sunk", "storage.options": options(proxy.url), "flush.size": "7"}
        next_one, tries = 0, 0
        while next_one < 56:
            tries += 1
            assert tries < 200
            try:
                sink = opened(FileSink, given, ITEMS)
                next_one = sink.positions([ITEMS]).get(ITEMS, 0)
                sink.write([sink_record("items", n, {"n": n}) for n in expected[next_one:]])
            except Retriable:
                continue
        assert proxy.faults > 5
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix="sunk/items/")["Contents"]
    contents = [client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read() for each in listed]
    assert sorted(json.loads(line)["n"] for each in contents for line in each.splitlines()) == expected[:56]
