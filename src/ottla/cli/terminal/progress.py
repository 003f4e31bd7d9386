"""A line of progress on standard error, for a person, once the work has lasted long enough to need one."""

import time
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

DELAY_S: Final = 0.8
INTERVAL_S: Final = 0.1


class Progress:
    """Shows a count, its rate and, where the total is known, a bar. Used as a context manager.

    `total` is in the unit of `done` given to `show`, which may differ from that of the count (bytes read against
    records acknowledged, say). Nothing is drawn, and rich never imported, unless `wanted`.
    """

    def __init__(self, verb: str, noun: str, *, total: int | None, wanted: bool) -> None:
        self._verb = verb
        self._noun = noun
        self._total = total
        self._wanted = wanted
        self._started_s = time.monotonic()
        self._shown_s = self._started_s
        self._drawn: RichProgress | None = None
        self._task: TaskID | None = None

    def show(self, count: int, done: int | None = None) -> None:
        """Say how far the work is; cheap enough to be called for every batch."""
        if not self._wanted:
            return
        now_s = time.monotonic()
        if now_s - self._shown_s < INTERVAL_S or now_s - self._started_s < DELAY_S:
            return
        self._shown_s = now_s
        rate = count / (now_s - self._started_s)
        text = f"{self._verb} {count:,} {self._noun}  {rate:,.0f}/s"
        if self._drawn is None:
            self._begin()
        if self._drawn is not None and self._task is not None:
            self._drawn.update(self._task, description=text, completed=done)

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = [SpinnerColumn(), TextColumn("{task.description}")]
        if self._total:
            columns += [BarColumn(), TimeRemainingColumn()]
        self._drawn = RichProgress(*columns, console=Console(stderr=True, highlight=False), transient=True)
        self._task = self._drawn.add_task("", total=self._total)
        self._drawn.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn is not None:
            self._drawn.stop()
