"""The source of files when a name has another file than before: nothing lost, nothing twice, no wrong columns."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.connect_tasks import RunningSource, TaskContext, running

from ottla.connect.api import ConnectError
from ottla.connect.connectors.files.source import FileSource

Write = Callable[[Path, str], None]


def rename_over(file: Path, text: str) -> None:
    new = file.with_name(f".{file.name}")
    new.write_text(text)
    new.rename(file)


def write_in_place(file: Path, text: str) -> None:
    file.write_text(text)
    os.utime(file, (1, 1))  # whatever the resolution of the disk's times


def rows(first: int, last: int, mark: str = "old") -> str:
    return "".join(f"{n:06},{mark}\n" for n in range(first, last))


def settings(path: Path | str, **more: str) -> dict[str, str]:
    given = {"path": str(path), "topic": "t", "poll_interval_ms": "1", "batch_max_rows": "7"} | more
    return {name.replace("_", "."): value for name, value in given.items()}


def ids(records: list[Any]) -> list[str]:
    return [record.value["id"] for record in records]


def nothing_more(task: RunningSource) -> None:
    for _ in range(10):
        assert task.step() == []


HEADER = "id,v\n"
OLD = HEADER + rows(0, 100)
NEW: dict[str, str] = {
    "same size": HEADER + rows(100, 200, "new"),
    "longer": HEADER + rows(100, 250, "new"),
    "shorter": HEADER + rows(100, 150, "new"),
    "other columns": "v,id\n" + "".join(f"new,{n:06}\n" for n in range(100, 250)),
    "a row in the middle": OLD.replace("000070,old", "000170,new"),
}


def columns_of(text: str) -> list[dict[str, str]]:
    names, *lines = (line.split(",") for line in text.splitlines())
    return [dict(zip(names, line, strict=True)) for line in lines]


@pytest.mark.parametrize("stopped", [True, False], ids=["while stopped", "while it runs"])
@pytest.mark.parametrize("write", [rename_over, write_in_place])
@pytest.mark.parametrize("new", NEW)
def test_every_row_of_a_file_that_was_replaced_is_read(tmp_path: Path, new: str, write: Write, stopped: bool) -> None:
    file, context = tmp_path / "a.csv", TaskContext()
    file.write_text(OLD)
    with running(FileSource, settings(tmp_path), context=context) as task:
        task.take(100)
        nothing_more(task)
        write(file, NEW[new])
        if not stopped:
            expected = columns_of(NEW[new])
            assert [record.value for record in task.take(len(expected))] == expected
        position = task.position
    if stopped:
        context = TaskContext({str({"file": str(file)}): position or {}})
        with running(FileSource, settings(tmp_path), context=context) as task:
            expected = columns_of(NEW[new])
            assert [record.value for record in task.take(len(expected))] == expected
            nothing_more(task)
    assert "a.csv has" in str(context.warning)
    assert "it was replaced or cut off; it is read from its beginning" in str(context.warning)


def test_a_log_that_was_cut_off_and_has_grown_beyond_its_position_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(OLD)
    with running(FileSource, settings(tmp_path, csv_columns="id,v")) as task:
        task.take(101)
        with file.open("r+") as same:
            same.truncate(0)
            same.write(rows(100, 300, "new"))
        assert ids(task.take(200)) == [f"{n:06}" for n in range(100, 300)]
        with file.open("r+") as same:
            same.truncate(0)
        nothing_more(task)
        with file.open("a") as same:
            same.write(rows(300, 302, "new"))
        assert ids(task.take(2)) == ["000300", "000301"]


@pytest.mark.parametrize("change", ["renamed over by itself and more", "touched", "copied back"])
def test_a_file_with_the_bytes_that_were_read_goes_on(tmp_path: Path, change: str) -> None:
    file, context = tmp_path / "a.csv", TaskContext()
    file.write_text(OLD)
    with running(FileSource, settings(tmp_path), context=context) as task:
        task.take(100)
        nothing_more(task)
        if change == "touched":
            os.utime(file, (1, 1))
        elif change == "copied back":
            rename_over(file, OLD)
        else:
            rename_over(file, OLD + rows(100, 103))
            assert ids(task.take(3)) == ["000100", "000101", "000102"]
        nothing_more(task)
    assert context.warning is None


@pytest.mark.parametrize("rotate", ["rename", "copytruncate", "rename and nothing new"])
@pytest.mark.parametrize("names", [("app.csv", "app.csv.1"), ("z.csv", "a.csv")])
def test_a_log_that_is_rotated_within_the_pattern_is_read_once(
    tmp_path: Path, rotate: str, names: tuple[str, str]
) -> None:
    file, old = tmp_path / names[0], tmp_path / names[1]
    file.write_text(rows(0, 100))
    given = settings(tmp_path / "*.csv*", csv_columns="id,v", format="csv")
    with running(FileSource, given) as task:
        task.take(100)
        with file.open("a") as more:
            more.write(rows(100, 105))
        if rotate == "copytruncate":
            shutil.copy(file, old)
            with file.open("r+") as same:
                same.truncate(0)
                same.write(rows(105, 110))
        else:
            file.rename(old)
            if rotate == "rename":
                file.write_text(rows(105, 110))
        expected = [f"{n:06}" for n in range(100, 105 if "nothing" in rotate else 110)]
        assert sorted(ids(task.take(len(expected)))) == expected
        nothing_more(task)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [("fail", "set on.replaced=read to read it from its beginning, or on.replaced=leave"), ("leave", "is left alone")],
)
def test_a_replaced_file_fails_the_task_or_is_left_alone_by_setting(tmp_path: Path, choice: str, sentence: str) -> None:
    file, other, context = tmp_path / "a.csv", tmp_path / "b.csv", TaskContext()
    file.write_text(OLD)
    with running(FileSource, settings(tmp_path, on_replaced=choice), context=context) as task:
        task.take(100)
        rename_over(file, NEW["longer"])
        if choice == "fail":
            with pytest.raises(ConnectError, match=sentence):
                nothing_more(task)
            return
        other.write_text(HEADER + rows(0, 1, "other"))
        assert ids(task.take(1)) == ["000000"]
        nothing_more(task)
        assert sentence in str(context.warning)
        rename_over(file, OLD + rows(100, 101))
        assert ids(task.take(1)) == ["000100"], "the file is back, and has more"
        nothing_more(task)
        assert context.warning is None


def test_a_file_that_comes_back_after_another_one_of_its_name_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(OLD)
    with running(FileSource, settings(tmp_path)) as task:
        for text in (OLD, NEW["longer"], OLD, NEW["longer"]):
            rename_over(file, text)
            expected = columns_of(text)
            assert [record.value for record in task.take(len(expected))] == expected
            nothing_more(task)


def test_a_log_that_is_compressed_after_its_rotation_is_not_read_again(tmp_path: Path) -> None:
    log, first = tmp_path / "app.log", tmp_path / "app.log.1"
    log.write_text(OLD)
    with running(FileSource, settings(f"{log}*", format="csv")) as task:
        task.take(100)
        log.rename(first)
        log.write_text(NEW["longer"])
        assert ids(task.take(150)) == [f"{n:06}" for n in range(100, 250)]
        with gzip.open(tmp_path / ".being_made", "wb") as copy:
            copy.write(first.read_bytes())
        (tmp_path / ".being_made").rename(tmp_path / "app.log.1.gz")
        first.unlink()
        nothing_more(task)


def test_a_position_without_fingerprints_goes_on_and_gains_them(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(OLD)
    old = {"bytes": len(HEADER + rows(0, 50)), "names": ["id", "v"]}
    context = TaskContext({str({"file": str(file)}): old})
    with running(FileSource, settings(tmp_path), context=context) as task:
        assert ids(task.take(50)) == [f"{n:06}" for n in range(50, 100)]
        assert {"head", "tail", "crc", "file"} <= set(task.position or {})
    done = {"bytes": len(OLD), "names": ["id", "v"]}
    context = TaskContext({str({"file": str(file)}): done})
    with running(FileSource, settings(tmp_path), context=context) as task:
        nothing_more(task)
        assert {"head", "tail", "crc", "file"} <= set(task.position or {}), "also when there is nothing more to read"
        rename_over(file, NEW["same size"])
        task.take(100)


@pytest.mark.parametrize("stopped", [True, False], ids=["while stopped", "while it runs"])
def test_a_file_of_parquet_that_was_replaced_is_read_anew(tmp_path: Path, stopped: bool) -> None:
    file = tmp_path / "a.parquet"

    def write(first: int) -> None:
        new = tmp_path / ".new"
        ids_of_rows = [0, *range(first, first + 48), 1000]  # the statistics in the footer are the same
        pq.write_table(pa.table({"id": ids_of_rows}), new, compression="none", use_dictionary=False)
        new.rename(file)

    write(100)
    with running(FileSource, settings(tmp_path)) as task:
        task.take(50)
        nothing_more(task)
        size = file.stat().st_size
        write(200)
        assert file.stat().st_size == size
        position = task.position or {}
        if not stopped:
            assert [record.value["id"] for record in task.take(50)][1] == 200
            nothing_more(task)
    if stopped:
        with running(FileSource, settings(tmp_path), context=TaskContext({str({"file": str(file)}): position})) as task:
            assert [record.value["id"] for record in task.take(50)][1] == 200
        write(200)
        context = TaskContext({str({"file": str(file)}): task.position or {}})
        with running(FileSource, settings(tmp_path), context=context) as task:
            nothing_more(task)


def test_a_compressed_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"

    def write(first: int, last: int) -> None:
        new = tmp_path / ".new"
        new.write_bytes(
            gzip.compress("".join(json.dumps({"id": f"{n:06}"}) + "\n" for n in range(first, last)).encode())
        )
        new.rename(file)

    write(0, 300)
    with running(FileSource, settings(tmp_path)) as task:
        task.take(300)
        write(0, 305)
        assert ids(task.take(5)) == [f"{n:06}" for n in range(300, 305)]
        write(1000, 1400)
        assert ids(task.take(400)) == [f"{n:06}" for n in range(1000, 1400)]
        nothing_more(task)
