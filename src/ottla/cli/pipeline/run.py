"""`ottla pipeline run`: a job from its start to its end, with live figures for a person and lines for a program."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.pipeline.options import (
    home_option,
    job_parameters,
    load_job_for,
    needs_spark,
    newest_tables_option,
    param_option,
)
from ottla.cli.pipeline.profiles import Profile, read_profile
from ottla.cli.pipeline.tables import columns_that_fit
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.metrics import metrics_option
from ottla.cli.terminal.output import note, on_terminal
from ottla.cli.terminal.times import parse_instant_ms
from ottla.pipeline.run_rows import flow_rows
from ottla.pipeline.run_store import earlier_run
from ottla.pipeline.windows import END_OF_TIME_MS

if TYPE_CHECKING:
    from rich.live import Live

    from ottla.pipeline.job import Job
    from ottla.pipeline.progress import Figures
    from ottla.pipeline.run_store import RunRecord
    from ottla.pipeline.watch import Screen

_DRAW_EVERY_S: Final = 0.5
_LINE_EVERY_S: Final = 10.0


@click.command("run")
@click.argument("job", type=click.Path(path_type=Path), metavar="JOB.PY")
@click.option("--name", metavar="NAME", help="The run's name, if not the job's: a run beside another has its own.")
@click.option(
    "--master",
    metavar="URL",
    envvar="OTTLA_SPARK_MASTER",
    help="Spark's master: local[4], spark://host:7077, yarn, k8s://..., sc://host:15002 (Connect). "
    "[env: OTTLA_SPARK_MASTER; default: all cores of this machine]",
)
@click.option(
    "--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark, which wins over the job's. May be repeated."
)
@param_option
@click.option(
    "--profile", metavar="NAME", help="Brokers, parameters and settings: [profile.NAME] of ottla.toml beside JOB.PY."
)
@click.option("--once", is_flag=True, help="Process the available records, and end.")
@click.option(
    "--close-windows",
    is_flag=True,
    help="With --once: the input has ended, so close all windows and sessions. Records that come later are late, "
    "in all later runs, too; see --until.",
)
@click.option(
    "--until",
    metavar="TIME",
    help="With --close-windows: only those that end by this time, such as 2026-01-31T08:00:00Z, 2h (ago) or now.",
)
@click.option("--only", metavar="FLOW", multiple=True, help="Run this flow alone. May be repeated.")
@click.option("--except", "excluded", metavar="FLOW", multiple=True, help="Leave this flow out. May be repeated.")
@click.option(
    "--from-savepoint",
    "savepoint",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Go on from a savepoint of this job (`ottla pipeline savepoint`), unless an output has more than it.",
)
@click.option("--replace", is_flag=True, help="With --from-savepoint: give up the checkpoints that the run has.")
@click.option(
    "--set-back",
    metavar="FLOW",
    multiple=True,
    help="With --from-savepoint: the output of this flow cannot be asked what it has, and has nothing newer than the "
    "savepoint. May be repeated.",
)
@click.option(
    "--regroup",
    metavar="FLOW",
    multiple=True,
    help="The grouping key or the values of this flow have changed: compute its open windows anew from the input; "
    "closed ones stay. May be repeated.",
)
@newest_tables_option
@metrics_option
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per flow and second.")
@home_option
@connection_options
def command(
    connection: Connection,
    job: Path,
    name: str | None,
    master: str | None,
    conf: tuple[str, ...],
    params: tuple[str, ...],
    profile: str | None,
    once: bool,
    close_windows: bool,
    until: str | None,
    only: tuple[str, ...],
    excluded: tuple[str, ...],
    savepoint: Path | None,
    replace: bool,
    set_back: tuple[str, ...],
    regroup: tuple[str, ...],
    newest_tables: bool,
    metrics_listeners: str,
    as_json: bool,
    home: Path,
) -> None:
    """Run a job until it is stopped: by Ctrl-C, SIGTERM or `ottla pipeline stop`.

    The micro-batches that run are finished first; started again, the job goes on where it was, with the parameters
    that it had. Topics that it writes are created if they are not there.
    """
    needs_spark()
    chosen = Profile() if profile is None else read_profile(job.parent, profile)
    settings = {**chosen.conf, **spark_settings(conf)}
    if chosen.command_config is not None:
        connection.add_properties(chosen.command_config)
    windows_until_ms = _end_of_windows(until, close_windows=close_windows, once=once)
    named = job_parameters(params)
    given = {**chosen.params, **named}
    load = partial(load_job_for, connection, job, given, bootstrap=chosen.bootstrap)
    if savepoint is None:
        if replace or set_back:
            raise click.UsageError("--replace and --set-back go with --from-savepoint")
        loaded, remembered = _with_remembered(load, home, job, name)
    else:
        from ottla.pipeline.savepoint import read_manifest

        savepoint = savepoint.absolute()
        manifest = read_manifest(savepoint)
        name, remembered = name or manifest.run, manifest.parameters
        loaded = load(remembered)
    if regroup and savepoint is not None:
        raise click.UsageError("--regroup goes without --from-savepoint: take the savepoint up first")
    kept = loaded.parameters.keys() - (chosen.secret - named.keys())

    from ottla.pipeline.running import RunRequest, run

    request = RunRequest(
        job=loaded,
        file=job,
        home=home,
        bootstrap=connection.bootstrap,
        name=name,
        properties=connection.properties,
        settings=settings,
        master=master,
        once=once,
        parameters={key: value for key, value in {**remembered, **given}.items() if key in kept},
        flows=loaded.select(only, excluded),
        windows_until_ms=windows_until_ms,
        savepoint=savepoint,
        replace=replace,
        set_back=frozenset(set_back),
        newest_tables=newest_tables,
        regroup=loaded.select(regroup, ()) if regroup else frozenset(),
        metrics_listeners=metrics_listeners,
    )
    with screen(as_json=as_json) as shown:
        is_done = run(request, shown)
    if once and not is_done:
        raise CommandFailed(f"{name or loaded.name} was stopped before its end; the next start goes on from there")


def _with_remembered(
    load: "Callable[[Mapping[str, str]], Job]", home: Path, file: Path, name: str | None
) -> "tuple[Job, Mapping[str, str]]":
    """The job, loaded with the parameters of an earlier start of its run, and these."""
    earlier = earlier_run(home, file, name)
    if earlier is not None:
        return load(earlier.parameters), earlier.parameters
    loaded = load({})
    # the file was elsewhere then, as behind a link that each deployment moves, or the run is a promoted replay
    earlier = earlier_run(home, file, name or loaded.name)
    if earlier is None or earlier.job != loaded.name or not earlier.parameters:
        return loaded, {}
    return load(earlier.parameters), earlier.parameters


def _end_of_windows(until: str | None, *, close_windows: bool, once: bool) -> int | None:
    """The time until which windows are closed, in milliseconds; None: they stay open. Raises click.UsageError."""
    if not close_windows:
        if until is not None:
            raise click.UsageError("--until goes with --close-windows")
        return None
    if not once:
        raise click.UsageError("--close-windows goes with --once: without it, the input does not end")
    if until is None:
        return END_OF_TIME_MS
    try:
        return parse_instant_ms(until, now_ms=time.time_ns() // 1_000_000)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--until") from None


def spark_settings(conf: Sequence[str]) -> dict[str, str]:
    """The options --conf as settings. Raises click.BadParameter."""
    found = {}
    for each in conf:
        key, equals, value = each.partition("=")
        if not equals or not key.startswith("spark."):
            raise click.BadParameter(f"{each!r} is no setting such as spark.driver.memory=2g", param_hint="--conf")
        found[key] = value
    return found


@contextmanager
def screen(*, as_json: bool) -> "Iterator[Screen]":
    """The screen that fits standard output, until the block ends."""
    if as_json:
        yield JsonLines()
    elif not on_terminal():
        yield PlainLines()
    else:
        table = LiveTable()
        try:
            yield table
        finally:
            table.close()


class JsonLines:
    """Figures as JSON on standard output, everything else on standard error."""

    def say(self, text: str) -> None:
        note(text)

    def figures(self, record: "RunRecord", figures: "Mapping[str, Figures]") -> None:
        """Nothing: they come by `line`."""

    def line(self, figures: "Figures") -> None:
        click.echo(json.dumps(asdict(figures)))


class PlainLines:
    """A line per flow every ten seconds, for a log."""

    def __init__(self) -> None:
        self._printed_at = time.monotonic()

    def say(self, text: str) -> None:
        click.echo(text)

    def figures(self, record: "RunRecord", figures: "Mapping[str, Figures]") -> None:
        """A line per flow, unless there were some a moment ago."""
        if time.monotonic() - self._printed_at < _LINE_EVERY_S:
            return
        self._printed_at = time.monotonic()
        for row in flow_rows(record, figures):
            facts = [f"{row['records']:,} records"]
            if row["rate"] is not None:
                facts.append(f"{row['rate']:,}/s")
            if row["lag_records"] is not None:
                facts.append(f"lag {row['lag_records']:,} ({row['lag']})")
            if row["late"]:
                facts.append(f"{row['late']:,} late")
            click.echo(f"{row['flow']}: {row['state']}, {', '.join(facts)}")

    def line(self, figures: "Figures") -> None:
        """Nothing: a line a second is too much to read."""


class LiveTable:
    """A table that changes in place, with what there is to say above it."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._drawn_at = 0.0

    def say(self, text: str) -> None:
        if self._live is None:
            click.echo(text)
        else:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def figures(self, record: "RunRecord", figures: "Mapping[str, Figures]") -> None:
        """Draw the table anew, unless that was done a moment ago."""
        if time.monotonic() - self._drawn_at < _DRAW_EVERY_S:
            return
        self._drawn_at = time.monotonic()

        from rich import box
        from rich.console import Console
        from rich.live import Live
        from rich.table import Table

        from ottla.cli.terminal.output import cell

        console = Console() if self._live is None else self._live.console
        rows = flow_rows(record, figures)
        columns = columns_that_fit(rows, console.width)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(column.title, justify="right" if column.figures else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(cell(row.get(column.key), separate_thousands=column.figures) for column in columns))
        if self._live is None:
            self._live = Live(table, console=console, auto_refresh=False)
            self._live.start()
        self._live.update(table, refresh=True)

    def line(self, figures: "Figures") -> None:
        """Nothing: the table has them."""

    def close(self) -> None:
        """Leave the last table standing."""
        if self._live is not None:
            self._live.stop()
            self._live = None
