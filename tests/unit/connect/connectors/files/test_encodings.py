"""The source of files: encodings, bytes that are no text, ends of lines, quotes that are never closed."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.connect_tasks import RunningSource, TaskContext, running

from ottla.connect.api import ConnectError
from ottla.connect.connectors.files import lines as lines_module
from ottla.connect.connectors.files.source import FileSource

WORDS = ["zürich", "Ċ and ਊ", "a\n😀", "end"]
"""Ċ and ਊ have the byte of a line's end within them in UTF-16, and in two characters together."""


def settings(path: Path | str, **more: str) -> dict[str, str]:
    given = {"path": str(path), "topic": "t", "poll_interval_ms": "1"} | more
    return {name.replace("_", "."): value for name, value in given.items()}


def tolerant() -> TaskContext:
    context = TaskContext()
    context.tolerant = True
    return context


def words(records: list[Any]) -> list[str]:
    return [record.value["word"] for record in records]


def look(task: RunningSource) -> list[Any]:
    return [record for _ in range(6) for record in task.step()]


def written(form: str, texts: list[str]) -> str:
    if form == "csv":
        return "".join(f'"{text}"\r\n' for text in ["word", *texts])
    return "".join(json.dumps({"word": text}, ensure_ascii=False) + "\n" for text in texts)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-32-le", "gb18030"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_texts_of_every_encoding_are_read_and_gone_on_with(tmp_path: Path, form: str, encoding: str) -> None:
    file = tmp_path / f"a.{form}"
    whole = written(form, WORDS).encode(encoding)
    file.write_bytes(whole[:-5])
    given = settings(tmp_path, encoding=encoding, batch_max_rows="1")
    with running(FileSource, given) as task:
        assert words(task.take(len(WORDS) - 1)) == WORDS[:-1]
        file.write_bytes(whole)
        assert words(task.take(1)) == WORDS[-1:]
        more = written("jsonl", ["more"]) if form == "jsonl" else "more\r\n"
        with file.open("ab") as added:
            added.write(
                more.encode(encoding.removesuffix("-sig") if encoding[-2:] not in ("16", "32") else f"{encoding}-le")
            )
        assert words(task.take(1)) == ["more"]
        assert look(task) == []
    middle = task.records[1].position or {}
    with running(FileSource, given, context=TaskContext({str({"file": str(file)}): middle})) as task:
        assert words(task.take(len(WORDS) - 1)) == [*WORDS[2:], "more"]


def test_an_encoding_of_single_bytes_is_read_also_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress("word\nZürich\n".encode("latin-1")))
    with running(FileSource, settings(tmp_path, encoding="latin-1")) as task:
        assert words(task.take(1)) == ["Zürich"]


@pytest.mark.parametrize("encoding", ["klingon", "utf-7", "iso2022_jp", "base64", "unicode_escape"])
def test_an_encoding_that_is_none_or_has_no_lines_is_refused(encoding: str) -> None:
    with pytest.raises(ValidationError, match=encoding):
        FileSource.settings_model(**settings("x", encoding=encoding))


@pytest.mark.parametrize(
    ("encoding", "content", "sentence"),
    [
        ("utf-16", "word\nx\n".encode("utf-16-le"), "does not begin with a byte order mark: set encoding to utf-16-le"),
        ("utf-8", "word\nZürich\n".encode("latin-1"), "has a line before byte 12 that is no utf-8: "),
        ("utf-8", "word\nx\n".encode("utf-16"), "the file begins as utf-16 does: set encoding=utf-16"),
        ("utf-8", b"word\rx\ry\r", "a.csv has carriage returns and no line feeds before byte 9: lines have to end in"),
        ("utf-8", b"word\rx\ry", "a.csv has carriage returns and no line feeds before byte 8: lines have to end in"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_text_of_lines_is_an_error(
    tmp_path: Path, encoding: str, content: bytes, sentence: str
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with running(FileSource, settings(tmp_path, encoding=encoding)) as task, pytest.raises(ConnectError) as failed:
        look(task)
    assert sentence in str(failed.value)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_wrong_bytes_are_skipped_with_their_rows_alone(tmp_path: Path, form: str) -> None:
    content = written(form, ["a", "b\nbé", "c", "dé", "e"]).encode()
    file, context = tmp_path / f"a.{form}", tolerant()
    file.write_bytes(content.replace("é".encode(), b"\xe9"))
    with running(FileSource, settings(tmp_path), context=context) as task:
        assert words(task.take(3)) == ["a", "c", "e"]
        assert look(task) == []
    assert len(context.skipped) == 2
    assert all("that is no utf-8" in each for each in context.skipped)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_file_of_carriage_returns_is_left_out_and_others_are_read(tmp_path: Path, name: str) -> None:
    context = tolerant()
    (tmp_path / name).write_bytes(b"word\rx\ry\r" if name == "a.csv" else b'{"word": 1}\r{"word": 2}\r')
    (tmp_path / "b.csv").write_bytes(b"word\nx\n")
    with running(FileSource, settings(tmp_path), context=context) as task:
        assert words(task.take(1)) == ["x"]
        assert look(task) == []
    assert ["carriage returns" in each for each in context.skipped] == [True]


def test_a_quote_that_is_not_closed_is_in_the_status_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.connect.connectors.files import reading

    file, context = tmp_path / "a.csv", TaskContext()
    file.write_text("word,n\nx,1\n" + '"y,2\n' + "z,3\n" * 2000)
    with running(FileSource, settings(tmp_path), context=context) as task:
        assert words(task.take(1)) == ["x"]
        assert look(task) == []
        assert "a.csv has a quote in the row at byte 11 that is not closed up to byte 8016" in str(context.warning)
        file.write_text(file.read_text().replace('"y', "y"))
        assert len(task.take(2001)) == 2001
        assert look(task) == []
        assert context.warning is None
    monkeypatch.setattr(reading, "_LONG_QUOTE", 4000)
    file.write_text('word,n\n"y,2\n' + "z,3\n" * 2000)
    with running(FileSource, settings(tmp_path), context=context) as task:
        task.step()
        assert "not closed up to byte" in str(context.warning), "also while the file may still grow"


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_line_that_is_too_long_is_left_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, encoding: str
) -> None:
    monkeypatch.setattr(lines_module, "LONGEST", 1 << 20)
    file, context = tmp_path / f"a.{form}", tolerant()
    file.write_bytes(written(form, ["a", "b" * (3 << 20) + "b", "c", "d"]).encode(encoding))
    given = settings(tmp_path, encoding=encoding, batch_max_rows="1")
    with running(FileSource, given, context=context) as task:
        assert words(task.take(3)) == ["a", "c", "d"]
        assert look(task) == []
    assert ["a line of more than" in each for each in context.skipped] == [True]
    with running(FileSource, given, context=TaskContext({str({"file": str(file)}): task.position or {}})) as task:
        assert look(task) == [], "the fingerprints count what was left out"
