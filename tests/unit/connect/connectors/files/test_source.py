"""The source of files: what is not read again."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from tests.support.connect_tasks import TaskContext, running

from ottla.connect.connectors.files.source import FileSource


def test_a_compressed_file_that_was_read_to_its_end_is_not_read_at_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"a": 1}\n'))
    settings = {"path": str(tmp_path), "topic": "t", "poll.interval.ms": "1"}
    reads: list[str] = []
    batches = FileSource._batches

    def counted(source: FileSource, look: Any) -> Any:
        reads.append(look.name)
        return batches(source, look)

    monkeypatch.setattr(FileSource, "_batches", counted)
    with running(FileSource, settings) as task:
        task.take(1)
        for _ in range(20):
            task.step()
        assert len(reads) == 2, "once, and once more when it has not changed between two looks"
        with file.open("ab") as more:
            more.write(gzip.compress(b'{"a": 2}\n'))
        assert [each.value for each in task.take(1)] == [{"a": 2}]
        for _ in range(20):
            task.step()
        position = task.position
    assert position is not None
    assert (position["bytes"], position["size"]) == (18, file.stat().st_size)
    reads.clear()
    with running(FileSource, settings, context=TaskContext({str({"file": str(file)}): position})) as task:
        for _ in range(20):
            assert task.step() == []
    assert reads == []
