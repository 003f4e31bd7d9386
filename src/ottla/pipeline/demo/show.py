"""What a person sees: live progress and boxes on a terminal, plain lines where the output is piped."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_PLAIN_LINE_EVERY_S: Final = 2.0

Row = Sequence[str]


class Bar(ABC):
    """One line of progress."""

    @abstractmethod
    def reach(self, done: int, note: str = "", *, total: int | None = None) -> None:
        """So many are done by now; of so many, if that has changed."""


class Screen(ABC):
    """Shows lines, progress and tables to a person."""

    @abstractmethod
    def say(self, text: str) -> None:
        """One line."""

    @abstractmethod
    def progress(self, *labels_and_totals: tuple[str, int]) -> AbstractContextManager[list[Bar]]:
        """A bar for each, for as long as the block lasts."""

    @abstractmethod
    def table(self, title: str, columns: Row, rows: Sequence[Row], *, numbers: Sequence[int] = ()) -> None:
        """A table; `numbers` are the columns to align on the right."""


def screen() -> Screen:
    """The one that fits standard output."""
    console = Console(highlight=False)
    return Terminal(console) if console.is_terminal else Plain()


class Terminal(Screen):
    """Bars that move, and boxed tables."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)  # commands are to be copied whole

    @contextmanager
    def progress(self, *labels_and_totals: tuple[str, int]) -> Iterator[list[Bar]]:
        columns = (
            TextColumn("  {task.description:<19}"),
            BarColumn(bar_width=14),
            TextColumn("{task.completed:>7,} of {task.total:,}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self._console) as live:
            yield [_LiveBar(live, label, total) for label, total in labels_and_totals]

    def table(self, title: str, columns: Row, rows: Sequence[Row], *, numbers: Sequence[int] = ()) -> None:
        drawn = Table(title=title, title_justify="left", title_style="bold")
        for number, column in enumerate(columns):
            drawn.add_column(column, justify="right" if number in numbers else "left", overflow="fold")
        for row in rows:
            drawn.add_row(*row)
        self._console.print()
        self._console.print(drawn)


class _LiveBar(Bar):
    def __init__(self, live: Progress, label: str, total: int) -> None:
        self._live = live
        self._task = live.add_task(label, total=total, note="")

    def reach(self, done: int, note: str = "", *, total: int | None = None) -> None:
        self._live.update(self._task, completed=done, note=note, total=total)


class Plain(Screen):
    """Plain lines, for output that is piped."""

    def say(self, text: str) -> None:
        print(text, flush=True)

    @contextmanager
    def progress(self, *labels_and_totals: tuple[str, int]) -> Iterator[list[Bar]]:
        bars = [_PlainBar(label, total) for label, total in labels_and_totals]
        yield list(bars)
        for bar in bars:
            bar.last_word()

    def table(self, title: str, columns: Row, rows: Sequence[Row], *, numbers: Sequence[int] = ()) -> None:
        lines = [columns, *rows]
        widths = [max(len(line[number]) for line in lines) for number in range(len(columns))]
        print(f"\n{title}")
        for line in lines:
            cells = (
                cell.rjust(width) if number in numbers else cell.ljust(width)
                for number, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            print("  " + "  ".join(cells).rstrip(), flush=True)


class _PlainBar(Bar):
    """A line every few seconds, and one at the end."""

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._line = ""
        self._printed_line = ""
        self._printed_at = time.monotonic()

    def reach(self, done: int, note: str = "", *, total: int | None = None) -> None:
        self._total = self._total if total is None else total
        self._line = f"  {self._label}: {done:,} of {self._total:,}" + (f" ({note})" if note else "")
        if time.monotonic() - self._printed_at >= _PLAIN_LINE_EVERY_S:
            self.last_word()

    def last_word(self) -> None:
        if self._line != self._printed_line:
            print(self._line, flush=True)
        self._printed_line = self._line
        self._printed_at = time.monotonic()
