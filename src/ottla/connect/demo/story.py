"""The order of events in the demo."""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.connect.demo import postgres, shop
from ottla.connect.demo.errors import DemoError
from ottla.connect.demo.load import Load
from ottla.connect.demo.shop import Comparison
from ottla.connect.demo.stage import JOB_FILE, Stage
from ottla.pipeline.demo.show import Bar, Screen
from ottla.pipeline.java import find_java
from ottla.waiting import tries

_WITHIN_S: Final = 240.0
"""For each of the waits: far longer than any takes."""
_LOOK_S: Final = 0.25
_COMPARE_S: Final = 1.0
_SETTLED_S: Final = 3.0
"""So long the table has to stay as it should be: what came twice would be written by then."""
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Options:
    """changes: rows changed in the shop, at `rate` a second. directory: where everything is kept; None: nowhere."""

    changes: int = 16_000
    rate: float = 400.0
    directory: Path | None = None


def play(options: Options, out: Screen) -> None:
    """All of it. Raises DemoError, JavaNotFoundError, or KeyboardInterrupt when nothing is left running."""
    find_java()
    programs = postgres.find_programs()
    with _directory(options.directory) as directory:
        stage = Stage(directory, programs)
        finished = False
        try:
            _Story(stage, options, out).play()
            finished = True
        finally:
            with _undisturbed():
                stage.close(quickly=not finished)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C does not interrupt the end of what runs."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _Story:
    def __init__(self, stage: Stage, options: Options, out: Screen) -> None:
        self._stage, self._options, self._out = stage, options, out
        self._steps: list[tuple[str, float]] = []
        self._compared_at = 0.0
        self._comparison = Comparison(0, 0, ())
        self._equal_since = 0.0
        self._read_before, self._killed_at = 0, float("inf")

    def play(self) -> None:
        began = time.monotonic()
        with self._step("start, and the first rows through all of it"):
            self._begin()
        options = self._options
        with (
            Load(self._stage.database, options.changes, options.rate) as load,
            self._out.progress(
                ("changes in the shop", options.changes), ("read by Spark", 0), ("rows that are right", shop.CUSTOMERS)
            ) as bars,
        ):
            with self._step("changes, until half of them are made"):
                self._until(
                    lambda: load.is_over or load.done >= options.changes // 2, "half of the changes", load, bars
                )
            with self._step("all killed and started again, until Spark has read on"):
                self._kill(load, bars)
            with self._step("the other changes"):
                self._until(lambda: load.is_over, "end of the changes", load, bars)
            with self._step("until the table equals the query"):
                self._equal_since = time.monotonic()
                self._until(self._is_settled, "table that equals the query", load, bars)
        self._conclude(load, time.monotonic() - began)

    def _begin(self) -> None:
        out = self._out
        out.say("Starting PostgreSQL, a broker, a worker of connectors and Spark.")
        self._stage.open()
        out.say(
            f"shop: {shop.CUSTOMERS:,} customers, {shop.ORDERS:,} orders -> topics -> {JOB_FILE.name} on Spark -> "
            "topic -> the table sales in the database reports."
        )
        with out.progress(("rows that are right", shop.CUSTOMERS)) as (bar,):
            self._until(lambda: self._compare().is_equal, "first rows in the table", None, [bar])

    def _kill(self, load: Load, bars: list[Bar]) -> None:
        pids = ", ".join(f"{child.name} ({child.pid})" for child in self._stage.children)
        self._out.say(f"After {load.done:,} changes: SIGKILL to {pids}.")
        figures = self._stage.read_by_spark()
        self._read_before = figures.records if figures is not None else 0
        self._stage.kill()
        self._killed_at = time.time()
        self._stage.come_back()
        self._until(self._reads_again, "reading on", load, bars)

    def _reads_again(self) -> bool:
        figures = self._stage.read_by_spark()
        return figures is not None and figures.at > self._killed_at and figures.records > 0

    # -- watching ------------------------------------------------------------------------------------------------------

    def _until(self, holds: Callable[[], bool], what: str, load: Load | None, bars: list[Bar]) -> None:
        for _ in tries(_WITHIN_S, every_s=_LOOK_S):
            is_over = holds()
            self._show(load, bars)
            if is_over:
                return
            self._stage.check()
        raise DemoError(f"no {what} within {_WITHIN_S:.0f} s: {_differences(self._compare(again=True))}")

    def _show(self, load: Load | None, bars: list[Bar]) -> None:
        compared = self._compare()
        bars[-1].reach(compared.equal, total=compared.wanted or shop.CUSTOMERS)
        if load is None:
            return
        bars[0].reach(min(load.done, load.total))
        figures = self._stage.read_by_spark()
        if figures is not None:
            records = figures.records + (self._read_before if figures.at > self._killed_at else 0)
            note = f"{figures.rate:,.0f}/s" if figures.rate else ""
            bars[1].reach(records, note, total=records + (figures.lag_records or 0))

    def _compare(self, *, again: bool = False) -> Comparison:
        """The two databases, looked at once a second; as they were last while the server is away."""
        import psycopg2

        if again or time.monotonic() - self._compared_at >= _COMPARE_S:
            database = self._stage.database
            with contextlib.suppress(psycopg2.OperationalError):
                wanted, found = database.rows(shop.SHOP, shop.WANTED), database.rows(shop.REPORTS, shop.FOUND)
                self._comparison = shop.compare(wanted, found)
            self._compared_at = time.monotonic()
        return self._comparison

    def _is_settled(self) -> bool:
        """Whether the table equals the query, Spark has read everything, and neither has changed for a while."""
        figures = self._stage.read_by_spark()
        if not self._compare().is_equal or figures is None or figures.lag_records:
            self._equal_since = time.monotonic()
        return time.monotonic() - self._equal_since >= _SETTLED_S

    @contextlib.contextmanager
    def _step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._steps.append((what, time.monotonic() - began))

    # -- the end -------------------------------------------------------------------------------------------------------

    def _conclude(self, load: Load, seconds: float) -> None:
        out, database = self._out, self._stage.database
        made = load.made
        out.say(f"{made['insert']:,} rows inserted, {made['update']:,} updated, {made['delete']:,} deleted.")
        out.table(
            "What took how long", ("", "seconds"), [(what, f"{took:.1f}") for what, took in self._steps], numbers=(1,)
        )
        regions = [
            (region, f"{customers:,}", f"{orders:,}", f"{open_orders:,}", f"{spent:,.2f}")
            for region, customers, orders, open_orders, spent in database.rows(shop.REPORTS, shop.BY_REGION)
        ]
        titles = ("region", "customers", "orders", "open", "spent")
        out.table("The table sales, by region", titles, regions, numbers=(1, 2, 3, 4))
        out.say(
            f"\nAll of it took {seconds:.0f} s. Each of the {self._comparison.wanted:,} rows of the table sales equals "
            "that of the query over the shop, and there are no others."
        )
        out.say(f"The job is a file of functions: {JOB_FILE}")


def _differences(compared: Comparison) -> str:
    shown = "; ".join(compared.differences[:_SHOWN])
    return f"{len(compared.differences):,} of {compared.wanted:,} rows differ: {shown}"


@contextlib.contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    """A new directory; one that was not asked for goes away unless the demo has failed."""
    if given is not None:
        if given.exists() and any(given.iterdir()):
            raise DemoError(f"{given} is not empty: name another directory")
        given.mkdir(parents=True, exist_ok=True)
        yield given.absolute()
        return
    made = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    if os.getuid() == 0:
        made.chmod(0o711)  # PostgreSQL is another user's then
    try:
        yield made
    except DemoError as failure:
        raise DemoError(f"{failure}\nAll logs are in {made}") from None
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    shutil.rmtree(made, ignore_errors=True)
