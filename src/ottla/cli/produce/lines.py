"""Lines from a pipe, a file or a terminal, without ever waiting so long that other work stands still."""

import os
import select
from collections.abc import Iterator
from typing import Final

CHUNK_BYTES: Final = 1 << 18


def read_lines(descriptor: int, *, idle_s: float = 0.1) -> Iterator[list[bytes]]:
    """Yield the lines (without newlines) of a file descriptor as they arrive, in lists.

    An empty list means that nothing came for `idle_s`. A last line without a newline counts as a line.
    """
    unfinished: list[bytes] = []
    while True:
        ready, _, _ = select.select([descriptor], [], [], idle_s)
        if not ready:
            yield []
            continue
        chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            break
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            unfinished.append(tail)
            continue
        unfinished.append(head)
        yield b"".join(unfinished).split(b"\n")
        unfinished = [tail] if tail else []
    if unfinished:
        yield [b"".join(unfinished)]
