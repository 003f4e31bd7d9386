"""Which records of a search are kept for the page: the first, the newest, or the latest of each key. PURE.

What is kept is bounded: shown text of at most `most` records, beside numbers that stand for keys.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ottla.console.expressions import Evaluate, Test
from ottla.console.sight import Record
from ottla.console.values import SHOWN_CHARACTERS, Shown, show, written

MOST_KEYS: Final = 200_000
"""Distinct keys that a search counts; then it stops."""
CELL_CHARACTERS: Final = 500

Columns = Sequence[tuple[str, Evaluate]]


class Found(NamedTuple):
    """A record, as a page shows it. Ordered by time, then place."""

    timestamp: int
    partition: int
    offset: int
    key: Shown
    value: Shown
    headers: tuple[tuple[str, Shown], ...]
    cells: tuple[str, ...] = ()
    """Texts of the chosen columns."""

    @classmethod
    def of(cls, record: Record, columns: Columns = (), most: int = SHOWN_CHARACTERS) -> "Found":
        """At most `most` characters of the key and of the value."""
        cells = tuple(cell(evaluate(record))[:CELL_CHARACTERS] for _, evaluate in columns)
        headers = tuple((name, show(each)) for name, each in record.header_parts())
        key, value = show(record.part("key"), most), show(record.part("value"), most)
        return cls(record.timestamp, record.partition, record.offset, key, value, headers, cells)


def cell(content: Any) -> str:
    """A value of a column as text; what is not there is empty."""
    if content is None:
        return ""
    return content if isinstance(content, str) else written(content)


class Collector(ABC):
    """Keeps what a search offers. `make` makes a record that is kept into what the page shows."""

    def __init__(self, most: int, test: Test | None, make: Callable[[Record], Found]) -> None:
        self.most = most
        self.passes: Test = test or (lambda record: True)
        self.make = make

    @abstractmethod
    def offer(self, record: Record) -> None:
        """A record that was read: those of a partition come in their order, within a window."""

    def end_window(self) -> None:  # noqa: B027 - most collectors need no end
        """All records of a window were offered. A window that follows lies before it where a search goes back."""

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether no further window can change what is kept."""

    @property
    def is_full(self) -> bool:
        """Whether no further record can."""
        return False

    @property
    def keys(self) -> int | None:
        """How many keys were seen, where they are counted."""
        return None

    @property
    def problem(self) -> str:
        """Why not all is known."""
        return ""

    @abstractmethod
    def records(self) -> list[Found]:
        """What is kept, in the order in which it is shown."""


class First(Collector):
    """The first records that pass."""

    def __init__(self, most: int, test: Test | None, make: Callable[[Record], Found]) -> None:
        super().__init__(most, test, make)
        self._found: list[Found] = []

    def offer(self, record: Record) -> None:
        """Keep it if there is room."""
        if len(self._found) < self.most and self.passes(record):
            self._found.append(self.make(record))

    @property
    def is_complete(self) -> bool:
        """When all room is used."""
        return self.is_full

    @property
    def is_full(self) -> bool:
        """When all room is used."""
        return len(self._found) >= self.most

    def records(self) -> list[Found]:
        """In the order in which they were read."""
        return list(self._found)


class Newest(Collector):
    """The newest records that pass."""

    def __init__(self, most: int, test: Test | None, make: Callable[[Record], Found]) -> None:
        super().__init__(most, test, make)
        self._heap: list[Found] = []

    def offer(self, record: Record) -> None:
        """Keep it if it is newer than the oldest one that is kept."""
        if self.is_complete:
            if (record.timestamp, record.partition, record.offset) > self._heap[0][:3] and self.passes(record):
                heapq.heapreplace(self._heap, self.make(record))
        elif self.passes(record):
            heapq.heappush(self._heap, self.make(record))

    @property
    def is_complete(self) -> bool:
        """When a whole window has been read, and gave enough."""
        return len(self._heap) >= self.most

    def records(self) -> list[Found]:
        """The newest first."""
        return sorted(self._heap, reverse=True)


class LatestPerKey(Collector):
    """The latest record of each key in its partition, if it passes; of these, the newest. Records without a key have
    none after them, and are left out.

    Going back, the first window with a key has its latest record; within a window, a later one replaces it.
    """

    def __init__(
        self, most: int, test: Test | None, make: Callable[[Record], Found], most_keys: int = MOST_KEYS
    ) -> None:
        super().__init__(most, test, make)
        self._most_keys = most_keys
        self._seen: set[int] = set()
        self._window: dict[int, Found | None] = {}
        self._heap: list[Found] = []

    def offer(self, record: Record) -> None:
        """Keep it if no later window had its key."""
        key = record.raw_key
        if key is None:
            return
        number = hash((record.partition, key))
        if number not in self._seen:
            self._window[number] = self.make(record) if self.passes(record) else None

    def end_window(self) -> None:
        """Their keys are known now."""
        for found in self._window.values():
            if found is None:
                continue
            if len(self._heap) < self.most:
                heapq.heappush(self._heap, found)
            else:
                heapq.heappushpop(self._heap, found)
        self._seen.update(self._window)
        self._window = {}

    @property
    def is_complete(self) -> bool:
        """Never before all was read, since all keys are counted; or when there are too many."""
        return len(self._seen) >= self._most_keys

    @property
    def keys(self) -> int:
        """Keys with a record, whether it passes or not."""
        return len(self._seen)

    @property
    def problem(self) -> str:
        """Why not all is known."""
        return f"stopped at {self.keys:,} keys, the newest ones" if self.is_complete else ""

    def records(self) -> list[Found]:
        """The newest first."""
        return sorted(self._heap, reverse=True)
