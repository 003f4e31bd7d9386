"""The sink of files: records that come again."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.connect_tasks import TaskContext, opened, sink_record

from ottla.connect.api import Retriable, TopicPartition
from ottla.connect.connectors.files.sink import FileSink

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
