"""Lines as they arrive through a pipe."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.produce.lines import CHUNK_BYTES, read_lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, BinaryIO]]:
    reading, writing = os.pipe()
    # A file closes its descriptor once: another thread may have opened the same number since the test closed it.
    with os.fdopen(reading, "rb", buffering=0) as _, os.fdopen(writing, "wb", buffering=0) as writer:
        yield reading, writer


def test_silence_yields_empty_lists_and_parts_are_joined(pipe: tuple[int, BinaryIO]) -> None:
    reading, writing = pipe
    lines = read_lines(reading, idle_s=0.01)
    assert next(lines) == []
    writing.write(b"one\ntw")
    assert next(lines) == [b"one"]
    assert next(lines) == []
    writing.write(b"o\n\nthree")
    assert next(lines) == [b"two", b""]
    writing.close()
    assert list(lines) == [[b"three"]]


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20), st.booleans())
def test_any_lines_come_out_as_they_went_in(lines: list[bytes], ends_with_newline: bool) -> None:
    reading, writing = os.pipe()
    content = b"".join(line + b"\n" for line in lines)
    if not ends_with_newline and lines and lines[-1]:
        content = content[:-1]
    os.write(writing, content)
    os.close(writing)
    try:
        assert [line for batch in read_lines(reading) for line in batch] == lines
    finally:
        os.close(reading)


def test_a_line_longer_than_a_chunk(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * (CHUNK_BYTES * 3 + 5) + b"\nshort\n")
    with path.open("rb") as file:
        lines = [line for batch in read_lines(file.fileno()) for line in batch]
    assert [len(line) for line in lines] == [CHUNK_BYTES * 3 + 5, 5]
