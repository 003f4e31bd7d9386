"""Files in and out, on a disk and on an S3 server."""

import datetime as dt
import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from ottla.connect import schema as connect
from ottla.connect.api import ConnectError, Retriable, SourceRecord, TopicPartition
from ottla.connect.connectors.files.sink import FileSink
from ottla.connect.connectors.files.source import FileSource
from tests.support.connect_tasks import TaskContext, opened, running, sink_record
from tests.support.eventually import eventually
from tests.support.probe import free_port

ITEMS = TopicPartition("items", 0)


def source(path: Path | str, **more: str) -> dict[str, str]:
    given = {"path": str(path), "topic": "rows", "poll_interval_ms": "10"} | more
    return {name.replace("_", "."): value for name, value in given.items()}


def values(records: list[SourceRecord]) -> list[Any]:
    return [each.value for each in records]


def at(*records: SourceRecord) -> Any:
    return TaskContext({str(dict(each.part or {})): each.position or {} for each in records})


def test_csv_rows_with_types_and_what_is_added_later(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('id,name,price\n1,"a\nb",1.5\n2,,\n')
    settings = source(tmp_path, csv_types="id:int64,price:float64", key_fields="id")
    with running(FileSource, settings) as task:
        first, second = task.take(2)
        assert (first.key, first.value) == ({"id": 1}, {"id": 1, "name": "a\nb", "price": 1.5})
        assert second.value == {"id": 2, "name": "", "price": None}
        assert first.value_schema is not None
        assert first.value_schema.by_name["id"].schema == connect.INT64.as_optional()
        with file.open("a") as more:
            more.write('3,"half')
            more.flush()
            task.step()
            more.write(' a line",2\n4,last,3')
        assert [each["name"] for each in values(task.take(2))] == ["half a line", "last"]
    with running(FileSource, settings, context=at(first)) as task:
        assert [each["id"] for each in values(task.take(3))] == [2, 3, 4]


def test_json_lines_of_many_files_also_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n\n{"n": 2}\n')
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write('{"n": 3}\n{"n": 4}\n')
    with running(FileSource, source(tmp_path / "*.jsonl*", batch_max_rows="1")) as task:
        records = task.take(4)
        assert values(records) == [{"n": n} for n in (1, 2, 3, 4)]
        (tmp_path / "c.jsonl").write_text('{"n": 5}\n')
        assert values(task.take(1)) == [{"n": 5}]
    with running(FileSource, source(tmp_path / "*.jsonl*"), context=at(records[1], records[2])) as task:
        assert values(task.take(2)) == [{"n": 4}, {"n": 5}]


def test_parquet_goes_on_in_the_middle_of_a_file(tmp_path: Path) -> None:
    columns = {
        "n": pa.array(range(100), pa.int32()),
        "price": pa.array([Decimal("1.50")] * 100, pa.decimal128(9, 2)),
        "at": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)] * 100, pa.timestamp("us", "UTC")),
        "tags": pa.array([["a"]] * 100, pa.list_(pa.string())),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=30)
    with running(FileSource, source(tmp_path)) as task:
        records = task.take(100)
        assert [each["n"] for each in values(records)] == list(range(100))
        expected = {"n": 7, "price": Decimal("1.50"), "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "tags": ["a"]}
        assert records[7].value == expected
        task.step()
        assert task.step() == []
    with running(FileSource, source(tmp_path), context=at(records[64])) as task:
        assert values(task.take(35)) == values(records[65:])


def test_files_are_shared_among_tasks(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.jsonl").write_text(f"{number}\n")
    settings = source(tmp_path)
    shares = FileSource.tasks(FileSource.settings_model(**settings), 3, TaskContext())  # type: ignore[arg-type]
    found = []
    for share in shares:
        with running(FileSource, settings | dict(share)) as task:
            task.until(lambda seen: len(seen) > 0)
            for _ in range(20):
                task.step()
            found.append(values(task.records))
    assert sorted(number for share in found for number in share) == list(range(20))
    assert all(found)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", "a,b\n1\n", "has a row of 1 values at byte 4, and 2 columns"),
        ("a.csv", "a,b,a\n1,2,3\n", "has two columns called 'a': name them by csv.columns"),
        ("a.csv", "a,b\nx,1\n", "column a has 'x'; look at csv.types"),
        ("a.jsonl", "{\n", "has a line that is no JSON before byte 2"),
        ("a.parquet", "nothing", "is no file of Parquet that is whole"),
        ("a.txt", "x\n", "does not show its format: set format"),
    ],
)
def test_one_sentence_says_what_is_wrong(tmp_path: Path, name: str, content: str, sentence: str) -> None:
    (tmp_path / name).write_text(content)
    with (
        running(FileSource, source(tmp_path, csv_types="a:int64")) as task,
        pytest.raises(ConnectError, match=sentence),
    ):
        task.until(bool)


class Target:
    """Where the sink writes: a directory, or a bucket of an S3 server."""

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self.path = path
        self.options = options

    def sink(self, **more: str) -> Any:
        given = {"path": self.path, "storage_options": json.dumps(self.options), "flush_size": "3"} | more
        made = opened(FileSink, {name.replace("_", "."): value for name, value in given.items()}, ITEMS)
        return made, dict(made.positions([ITEMS]))

    def read(self) -> dict[str, bytes]:
        """Files that readers see: no offsets, no unfinished ones."""
        import fsspec

        files, path = fsspec.core.url_to_fs(
            self.path, skip_instance_cache=True, use_listings_cache=False, **self.options
        )
        found = files.find(path)
        names = [each for each in found if "/_offsets/" not in each and "unfinished" not in each]
        return {each.split("out/", 1)[1]: files.cat_file(each) for each in names}


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    port = free_port()
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{port}"
    credentials = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **credentials).create_bucket(Bucket="bucket")
    yield {"key": "k", "secret": "s", "endpoint_url": endpoint}
    server.stop()


@pytest.fixture(params=["disk", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "disk":
        return Target(f"{tmp_path}/out", {})
    return Target(f"s3://bucket/{abs(hash(request.node.name))}/out", request.getfixturevalue("s3"))


def items(first: int, last: int, **more: Any) -> list[Any]:
    return [sink_record("items", offset, {"n": offset}, **more) for offset in range(first, last)]


def numbers(files: dict[str, bytes]) -> list[int]:
    return sorted(json.loads(line)["n"] for content in files.values() for line in content.splitlines())


def test_full_chunks_become_files(target: Target) -> None:
    into, found = target.sink()
    assert found == {}
    into.write(items(0, 7))
    assert into.flush() == {ITEMS: 6}
    files = target.read()
    assert sorted(files) == ["items/items+0+0000000000.jsonl", "items/items+0+0000000003.jsonl"]
    assert numbers(files) == list(range(6))
    _, found = target.sink()
    assert found == {ITEMS: 6}


def test_a_chunk_that_broke_off_is_written_again_over_what_is_there(target: Target) -> None:
    into, _ = target.sink(partition_field_name="n")
    put = into._put
    names: list[str] = []

    def breaking(name: str, content: bytes) -> None:
        names.append(name)
        if len(names) == 4:
            raise Retriable("the disk is full")
        put(name, content)

    into._put = breaking
    with pytest.raises(Retriable):
        into.write(items(0, 3))
    assert len(target.read()) == 2, "two of three files were written"
    again, found = target.sink(partition_field_name="n", flush_size="100")
    assert found == {ITEMS: 0}
    again.write(items(0, 2))
    assert again.flush() == {ITEMS: 0}
    again.write(items(2, 5))
    assert numbers(target.read()) == [0, 1, 2]
    assert again.flush() == {ITEMS: 3}


def test_a_batch_that_comes_again_to_the_same_sink_is_in_files_once(target: Target) -> None:
    into, _ = target.sink()
    put = into._put
    failures = ["the disk is full"]

    def failing_once(name: str, content: bytes) -> None:
        if name.endswith(".jsonl") and failures:
            raise Retriable(failures.pop())
        put(name, content)

    into._put = failing_once
    with pytest.raises(Retriable):
        into.write(items(0, 5))
    into.write(items(0, 5))
    into.write(items(5, 6))
    assert numbers(target.read()) == list(range(6))
    failures.append("the disk is full again")
    with pytest.raises(Retriable):
        into.write(items(6, 9))
    into.write(items(6, 9))
    assert into.flush() == {}, "a chunk that is complete waits for nothing"
    assert numbers(target.read()) == list(range(9))


def test_directories_by_field_and_by_time(target: Target) -> None:
    into, _ = target.sink(path_format="day=%Y-%m-%d")
    into.write(items(0, 2, timestamp=1_700_000_000_000) + items(2, 3, timestamp=1_700_090_000_000))
    assert sorted(target.read()) == [
        "items/day=2023-11-14/items+0+0000000000.jsonl",
        "items/day=2023-11-15/items+0+0000000002.jsonl",
    ]


def test_parquet_by_schema_compressed_and_rotated_by_time(target: Target) -> None:
    one = connect.struct("v", n=connect.INT32, price=connect.decimal(2, optional=True))
    two = connect.struct("v", n=connect.INT32)
    into, _ = target.sink(format="parquet", compression_type="zstd", flush_size="100", rotate_interval_ms="1")
    into.write([sink_record("items", n, {"n": n, "price": Decimal("1.25")}, value_schema=one) for n in range(2)])
    into.write([sink_record("items", 2, {"n": 2}, value_schema=two)])
    eventually(lambda: into.flush() == {})
    first, second = (pq.read_table(pa.BufferReader(content)) for _, content in sorted(target.read().items()))
    assert first.to_pylist() == [{"n": n, "price": Decimal("1.25")} for n in range(2)]
    assert second.schema.field("n").type == pa.int32()


def test_what_no_file_can_hold_is_rejected(tmp_path: Path) -> None:
    context = TaskContext()
    settings = {"path": str(tmp_path), "format": "parquet", "flush.size": "1"}
    into = opened(FileSink, settings, ITEMS, context=context)
    into.write([sink_record("items", 0, None), sink_record("items", 1, "text"), sink_record("items", 2, {"n": 2})])
    reasons = [reason for _, reason in context.rejected]
    assert "items-0, offset 0, has no value" in reasons[0]
    assert "offset 1, is no struct or object, which Parquet needs" in reasons[1]
    assert into.positions([ITEMS]) == {ITEMS: 3}
    with pytest.raises(ValueError, match="exclude each other"):
        FileSink.settings_model(**{"path": "x", "partition.field.name": "a", "path.format": "%Y"})


def test_offsets_beside_the_files_are_changed_and_forgotten(tmp_path: Path) -> None:
    other = TopicPartition("others", 3)
    target = opened(FileSink, {"path": str(tmp_path), "flush.size": "2"}, ITEMS)
    target.write([sink_record("items", 0, {"n": 0}), sink_record("items", 1, {"n": 1})])
    assert target.positions([ITEMS, other]) == {ITEMS: 2}
    target.alter_offsets({ITEMS: 1, other: 7})
    assert target.positions([ITEMS, other]) == {ITEMS: 1, other: 7}
    target.alter_offsets({other: None})
    assert target.positions([ITEMS, other]) == {ITEMS: 1}
    target.alter_offsets(None)
    target.alter_offsets(None)  # nothing is there any more
    assert target.positions([ITEMS, other]) == {}


@pytest.mark.parametrize("name", [".", "..", "a", "a/b", "../items", "50%"])
def test_whatever_a_connector_is_called_it_forgets_its_own_offsets_alone(tmp_path: Path, name: str) -> None:
    contexts = [TaskContext(), TaskContext(), TaskContext()]
    for context, called in zip(contexts, (name, "a/b/c", "b"), strict=True):
        context.connector = called
    targets = [opened(FileSink, {"path": str(tmp_path), "flush.size": "1"}, ITEMS, context=each) for each in contexts]
    for target in targets:
        target.write([sink_record("items", 0, {"n": 0})])
    targets[0].alter_offsets(None)
    assert [target.positions([ITEMS]) for target in targets] == [{}, {ITEMS: 1}, {ITEMS: 1}]
    assert list((tmp_path / "items").iterdir())


def test_a_record_without_a_time_is_rejected_before_it_is_in_a_chunk(tmp_path: Path) -> None:
    context = TaskContext()
    settings = {"path": str(tmp_path), "path.format": "%Y", "timestamp.field": "at", "flush.size": "2"}
    into = opened(FileSink, settings, ITEMS, context=context)
    times = ["2024-01-01T00:00:00Z", "yesterday", 1e30, None, 1_700_000_000_000]
    into.write([sink_record("items", n, {"at": at}) for n, at in enumerate(times)])
    assert [record.offset for record, _ in context.rejected] == [1, 2, 3]
    assert sorted(str(each.relative_to(tmp_path)) for each in tmp_path.glob("items/*/*")) == [
        "items/2023/items+0+0000000004.jsonl",
        "items/2024/items+0+0000000000.jsonl",
    ]


def test_half_of_a_pair_of_surrogates_is_written_as_json_names_it(target: Target) -> None:
    into, _ = target.sink(flush_size="1")
    into.write([sink_record("items", 0, {"n": "\ud800"})])
    assert [json.loads(content) for content in target.read().values()] == [{"n": "\ud800"}]


def test_an_object_store_that_is_away_is_waited_for() -> None:
    port = free_port()
    options = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{port}"}
    once = {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
    settings = {"path": "s3://bucket/out", "storage.options": json.dumps(options | once)}
    with pytest.raises(Retriable, match=r"reading bucket/out/_offsets/tested/items-0\.json failed: Could not connect"):
        opened(FileSink, settings, ITEMS).positions([ITEMS])


def test_a_bucket_that_is_gone_is_an_error_and_nothing_is_noted(s3: dict[str, Any]) -> None:
    into, _ = Target("s3://nowhere/out", s3).sink()
    with pytest.raises(ConnectError, match="The specified bucket does not exist"):
        into.write(items(0, 3))
    assert into.flush() == {ITEMS: 0}


@pytest.mark.parametrize(("name", "half", "rest"), [("a.jsonl", '{"n": 1', "}\n"), ("a.csv", "n,m\n1", ",2\n")])
def test_the_rest_of_a_last_line_is_waited_for_however_long_it_takes(
    tmp_path: Path, name: str, half: str, rest: str
) -> None:
    context = TaskContext()
    file = tmp_path / name
    file.write_text(half)
    with running(FileSource, source(tmp_path), context=context) as task:
        eventually(lambda: task.step() == [] and context.warning is not None)
        assert f"{name} ends amid a" in str(context.warning)
        with file.open("a") as more:
            more.write(rest)
        assert len(task.until(bool)) == 1


def test_files_that_are_still_written_or_not_to_be_seen_are_left_out(tmp_path: Path) -> None:
    for name in ("_SUCCESS", ".a.jsonl.unfinished", "_offsets.jsonl"):
        (tmp_path / name).write_text("x")
    whole = gzip.compress(b'{"n": 1}\n{"n": 2}\n')
    pq.write_table(pa.table({"n": [3]}), tmp_path / "c.parquet")
    parquet = (tmp_path / "c.parquet").read_bytes()
    (tmp_path / "c.parquet").write_bytes(parquet[:50])
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:15])
    with running(FileSource, source(tmp_path)) as task:
        task.step()
        (tmp_path / "c.parquet").write_bytes(parquet)
        (tmp_path / "a.jsonl.gz").write_bytes(whole)
        assert values(task.take(3)) == [{"n": 1}, {"n": 2}, {"n": 3}]
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:15])
    with running(FileSource, source(tmp_path)) as task, pytest.raises(ConnectError, match=r"a\.jsonl\.gz is cut off"):
        task.until(lambda _: False)


def test_bad_rows_may_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('n,m\n1,2\n3\nx,4\n"5"5,5\n6,6\n')
    (tmp_path / "b.jsonl").write_text('{"n": 7}\n{\n{"n": 8}\n')
    context = TaskContext()
    context.tolerant = True
    with running(FileSource, source(tmp_path, csv_types="n:int64"), context=context) as task:
        assert [each["n"] for each in values(task.take(4))] == [1, 6, 7, 8]
        last = task.records[1]
    reasons = ["a row of 1 values at byte 8", "column n has 'x'", "is no CSV at byte 14", "is no JSON before byte 11"]
    assert [part in said for part, said in zip(reasons, context.skipped, strict=True)] == [True] * 4
    assert last.position is not None
    assert (last.position["bytes"], last.position["names"]) == (25, ["n", "m"])


def test_long_values_and_nanoseconds_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"n\n{'x' * 300_000}\n")
    pq.write_table(pa.table({"at": pa.array([1_700_000_000_000_000_001], pa.timestamp("ns"))}), tmp_path / "b.parquet")
    with running(FileSource, source(tmp_path)) as task:
        first, second = values(task.take(2))
    assert len(first["n"]) == 300_000
    assert second["at"] == dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)


def test_a_file_that_is_taken_away_during_the_look_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.connect.connectors.files import source as module

    (tmp_path / "b.jsonl").write_text('{"n": 1}\n')
    seen = module._files
    gone = {f"{tmp_path}/a.jsonl": 5}
    monkeypatch.setattr(module, "_files", lambda *given: gone | seen(*given))
    with running(FileSource, source(tmp_path)) as task:
        assert values(task.take(1)) == [{"n": 1}]


@pytest.mark.parametrize("kept", [True, False], ids=["after", "before"])
def test_wherever_it_broke_off_each_row_is_in_one_file(tmp_path: Path, kept: bool) -> None:
    settings = {"flush_size": "3", "partition_field_name": "even"}
    records = [sink_record("items", n, {"n": n, "even": n % 2 == 0}) for n in range(8)]

    class Killed(BaseException):
        pass

    for at_step in range(1, 30):
        target = Target(f"{tmp_path}/{at_step}/out", {})
        into, _ = target.sink(**settings)
        put, steps = into._put, iter(range(1, 1000))

        def killed(name: str, content: bytes, put: Any = put, steps: Any = steps, at_step: int = at_step) -> None:
            last = next(steps) == at_step
            if kept or not last:
                put(name, content)
            if last:
                raise Killed

        into._put = killed
        try:
            into.write(records)
        except Killed:
            again, found = target.sink(**settings)
            again.write(records[found.get(ITEMS, 0) :])
            again.write([sink_record("items", 8, {"n": 8, "even": True})])
            assert numbers(target.read()) == list(range(9)), at_step
        else:
            break
    assert at_step == 9, "two chunks: settled, two files, noted"
