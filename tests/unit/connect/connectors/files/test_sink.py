"""The sink of files: records that come again, and what readers find in the files."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.connect_tasks import TaskContext, opened, running, sink_record

from ottla.connect.api import Retriable, TopicPartition
from ottla.connect.connectors.files.sink import FileSink
from ottla.connect.connectors.files.source import FileSource

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_record_is_rejected_once_however_often_its_batch_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = TaskContext()
    sink = opened(FileSink, {"path": str(tmp_path), "flush.size": "1"}, FIRST, SECOND, context=context)
    write = sink._put

    def away(name: str, content: Any) -> None:
        if name.startswith("t/"):
            raise Retriable("the store is away")
        write(name, content)

    batch = [
        sink_record("t", 0, {"a": 1}),
        sink_record("t", 1, None),
        *(sink_record("t", offset, {"b": offset}, partition=1) for offset in range(2)),
    ]
    sink.write(batch[:1])
    monkeypatch.setattr(sink, "_put", away)
    for _ in range(3):
        with pytest.raises(Retriable):
            sink.write(batch[1:])
    monkeypatch.setattr(sink, "_put", write)
    sink.write(batch[1:])
    assert [(record.origin, record.offset) for record, _ in context.rejected] == [(FIRST, 1)]
    assert [file.read_text() for file in sorted(tmp_path.glob("t/*"))] == [
        '{"a": 1}\n', '{"b": 0}\n', '{"b": 1}\n',
    ]  # fmt: skip


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_files_of_every_format_and_codec_have_what_was_written(tmp_path: Path, form: str, codec: str) -> None:
    rows = [{"n": n, "name": f"row {n} ж" * 50} for n in range(1000)]
    for attempt in ("first", "again"):
        path = tmp_path / attempt
        settings = {"path": str(path), "format": form, "compression.type": codec, "flush.size": "500"}
        sink = opened(FileSink, settings, FIRST)
        sink.write([sink_record("t", offset, row) for offset, row in enumerate(rows)])
        sink.close()
    suffix = {"none": ".jsonl", "gzip": ".jsonl.gz", "zstd": ".jsonl.zst"}[codec] if form == "jsonl" else ".parquet"
    files = sorted(path.glob("t/*"))
    assert [file.name for file in files] == [f"t+0+{offset:010}{suffix}" for offset in (0, 500)]
    found: list[Any] = []
    for file in files:
        if form == "parquet":
            chunk = pq.ParquetFile(file).metadata.row_group(0).column(0).compression
            assert chunk == {"none": "UNCOMPRESSED", "gzip": "GZIP", "zstd": "ZSTD"}[codec]
            found += pq.read_table(file).to_pylist()
        else:
            with pa.input_stream(str(file), compression=None if codec == "none" else codec) as stream:
                found += map(json.loads, stream.read().splitlines())
    assert found == rows
    assert [(tmp_path / "first" / "t" / file.name).read_bytes() for file in files] == [
        file.read_bytes() for file in files
    ], "after a crash the same records make the same files"
    with running(FileSource, {"path": f"{path}/t", "topic": "rows", "poll.interval.ms": "10"}) as source:
        assert [record.value for record in source.take(len(rows))] == rows, "the source reads what the sink writes"
