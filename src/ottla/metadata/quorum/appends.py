"""Appends of a leader, gathered into batches for a short while, and answered once they are committed and delivered.

    add, add, add --linger, or the next input of the state machine--> drain: one batch --> delivered: futures resolve

Offsets are given out by `add`: nothing else is appended before what waits here has been drained.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ottla.errors import RecordListTooLarge
from ottla.metadata.quorum.batches import MAX_BATCH_BYTES, RECORD_OVERHEAD_BYTES
from ottla.records.batch import HEADER_SIZE


class _Awaited(NamedTuple):
    """An append, and the last of its offsets."""

    last_offset: int
    future: "asyncio.Future[int]"


class Appends:
    """The appends of one leader. On the loop's thread."""

    def __init__(self, linger_ms: int, drain: Callable[[], None]) -> None:
        """`drain` is called when the oldest append has waited for `linger_ms`."""
        self.count = 0
        """Records that wait to be drained."""
        self._linger_s = linger_ms / 1000
        self._drain = drain
        self._gathered: list[tuple[Sequence[bytes], int]] = []
        """Appends with their sizes in bytes."""
        self._awaited: deque[_Awaited] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many appends are not answered yet."""
        return len(self._awaited)

    def add(self, records: Sequence[bytes], next_offset: int) -> "asyncio.Future[int]":
        """Gather records, whose first offset is `next_offset`; the future yields the last one. See `QuorumNode.append`.

        Raises RecordListTooLarge.
        """
        loop = asyncio.get_running_loop()
        size = sum(len(record) for record in records) + RECORD_OVERHEAD_BYTES * len(records)
        if size + HEADER_SIZE > MAX_BATCH_BYTES:
            raise RecordListTooLarge(
                f"{len(records)} metadata records take {size} bytes, and a batch holds {MAX_BATCH_BYTES}: commit them "
                "in several batches, in one transaction"
            )
        future: asyncio.Future[int] = loop.create_future()
        last_offset = next_offset + len(records) - 1
        if not records:
            future.set_result(last_offset)
            return future
        self._gathered.append((records, size))
        self.count += len(records)
        self._awaited.append(_Awaited(last_offset, future))
        if self._timer is None:
            self._timer = loop.call_later(self._linger_s, self._drain)
        return future

    def drain(self) -> Iterator[list[bytes]]:
        """What was gathered, as the contents of batches; each append is in one of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered, self.count = self._gathered, [], 0
        batch: list[bytes] = []
        batch_bytes = HEADER_SIZE
        for records, size in gathered:
            if batch and batch_bytes + size > MAX_BATCH_BYTES:
                yield batch
                batch, batch_bytes = [], HEADER_SIZE
            batch += records
            batch_bytes += size
        if batch:
            yield batch

    def delivered(self, next_offset: int) -> None:
        """Everything below is committed and delivered."""
        while self._awaited and self._awaited[0].last_offset < next_offset:
            last_offset, future = self._awaited.popleft()
            if not future.done():
                future.set_result(last_offset)

    def fail(self, problem: Exception) -> None:
        """Leadership is lost: nothing more is known of what was appended."""
        for _ in self.drain():
            pass
        awaited, self._awaited = self._awaited, deque()
        for each in awaited:
            if not each.future.done():
                each.future.set_exception(problem)
                each.future.exception()  # nobody may be waiting any more, which is no failure to report
