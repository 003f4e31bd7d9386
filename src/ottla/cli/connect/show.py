"""`ottla connect list`, `status`, `logs`, `lag`, `plugins`."""

import time
from typing import Any, Final

import click

from ottla.cli.connect.client import Rest, RestRefused, rest_option
from ottla.cli.terminal import exits
from ottla.cli.terminal.output import Column, Row, cell, columns_of, json_option, on_terminal, print_json, print_rows
from ottla.cli.terminal.times import format_instant

_TASKS: Final = (
    *columns_of("task state worker progress~"),
    Column("says", "SAYS", long=True),
    *columns_of("lag last_change idle_since"),
)
_LAG_EVERY_S: Final = 5.0
"""For `status --watch`: each lag is a query to the source, which has other work."""


@click.command("list")
@json_option
@rest_option
def list_connectors(rest: Rest, as_json: bool) -> None:
    """List connectors, with their state and that of their tasks."""
    rows: list[Row] = []
    for name, each in sorted(rest.ask("GET", "/connectors?expand=status&expand=info").items()):
        status = each["status"]
        states = [task["state"] for task in status["tasks"]]
        rows.append(
            {
                "name": name,
                "type": status["type"],
                "class": each["info"]["config"].get("connector.class"),
                "state": status["connector"]["state"],
                "tasks": len(states),
                "failed": states.count("FAILED"),
                "worker": status["connector"]["worker_id"],
            }
        )
    columns = columns_of("name type class state tasks# failed# worker")
    print_rows(rows, columns, as_json=as_json, empty="no connector is there; `ottla connect apply FILE` makes one")


@click.command()
@click.argument("name")
@click.option("--watch", is_flag=True, help="Go on showing it until Ctrl-C.")
@json_option
@rest_option
def status(rest: Rest, name: str, watch: bool, as_json: bool) -> int:
    """Show the state of the connector NAME and of its tasks, why one failed, and how far a snapshot is; for a source
    its lag behind the database's log, when the last change was made that it delivered, and since when it is idle.

    Exit code 1 if the connector or one of its tasks has failed.
    """
    if watch and (as_json or not on_terminal()):
        raise click.UsageError("--watch is for a terminal, without --json")
    while watch:
        _watch(rest, name)
    found, rows = _status(rest, name)
    behind = _lag(rest, name, found)
    _add_lag(rows[0], behind)
    if as_json:
        tasks = [{"task": row["task"], "progress": row["made"], "delivery": row["delivery"]} for row in rows[1:]]
        print_json({**found, "progress": tasks, "lag": behind})
    else:
        print_rows(rows, _TASKS)
    return exits.FAILED if any(row["state"] == "FAILED" for row in rows) else exits.OK


def _watch(rest: Rest, name: str) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    look_at, behind = 0.0, None
    with Live(console=Console(stderr=False), refresh_per_second=4) as live:
        while True:
            found, rows = _status(rest, name)
            if time.monotonic() >= look_at:
                behind, look_at = _lag(rest, name, found), time.monotonic() + _LAG_EVERY_S
            _add_lag(rows[0], behind)
            table = Table(box=None, pad_edge=False)
            for title in ("TASK", "STATE", "WORKER", "", "", "LAG", "LAST CHANGE", "SAYS"):
                table.add_column(title)
            for row in rows:
                made: Any = row["made"] or {None: (None, None)}
                for what, (done, total) in made.items():
                    bar = ProgressBar(total=total, completed=done or 0, width=30) if total else ""
                    count = "" if done is None else f"{what}: {done:,}" + (f" of {total:,}" if total else "")
                    first, last = ("task", "state", "worker"), ("lag", "last_change", "says")
                    table.add_row(*(str(row[each]) for each in first), bar, count, *(cell(row[each]) for each in last))
            live.update(Group(table))
            time.sleep(0.5)


def _status(rest: Rest, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    found = rest.connector(name, "/status")
    try:
        told = {each["id"]: each for each in rest.connector(name, "/progress")}
    except RestRefused:  # a worker of Kafka's own
        told = {}
    rows = [_row("connector", found["connector"], {})]
    rows += [_row(each["id"], each, told.get(each["id"], {})) for each in found["tasks"]]
    return found, rows


def _lag(rest: Rest, name: str, found: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Where a source's parts are in the source's log; None for a sink, which has `ottla connect lag`."""
    if found["type"] != "source":
        return None
    try:
        rows: list[dict[str, Any]] = rest.connector(name, "/lag")
        return rows
    except RestRefused:  # a worker of Kafka's own, or one that cannot read the positions now
        return None


def _add_lag(row: dict[str, Any], behind: list[dict[str, Any]] | None) -> None:
    """Add the lag of all parts together, and why it is not known, to the connector's row."""
    known = [each["lag"] for each in behind or () if each["lag"] is not None]
    wrong = [each["error"] for each in behind or () if each["error"] is not None]
    row["lag"] = "unknown" if wrong else f"{sum(known):,} bytes" if known else None
    row["says"] = row["says"] or next(iter(wrong), None)


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else format_instant(at_ms)


def _row(task: object, state: dict[str, Any], reported: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = reported.get("progress") or {}
    delivery: dict[str, Any] = reported.get("delivery") or {}
    counts = [f"{what} {done:,}" + (f" of {total:,}" if total else "") for what, (done, total) in made.items()]
    says = str(state.get("trace") or "").splitlines()
    return {
        "task": task,
        "state": state["state"],
        "worker": state["worker_id"],
        "progress": "; ".join(counts),
        "says": says[0] if says else None,
        "lag": None,
        "last_change": _time(delivery.get("changed_at")),
        "idle_since": _time(delivery.get("idle_since")),
        "made": made,
        "delivery": delivery or None,
    }


@click.command()
@click.argument("name")
@click.option(
    "--lines", "-n", metavar="N", type=click.IntRange(min=1, max=1000), default=100, show_default=True, help="How many."
)
@rest_option
def logs(rest: Rest, name: str, lines: int) -> None:
    """Show what the connector NAME has logged last, on every worker that runs a part of it."""
    found = rest.connector(name, "/status")
    workers = {found["connector"]["worker_id"], *(each["worker_id"] for each in found["tasks"])}
    told: list[str] = []
    for worker in sorted(workers):
        told += rest.at(worker).connector(name, f"/logs?lines={lines}")
    for line in sorted(told)[-lines:]:
        click.echo(line)


@click.command()
@click.argument("name")
@json_option
@rest_option
def lag(rest: Rest, name: str, as_json: bool) -> None:
    """Show how many records of each partition the sink NAME has yet to write, or where the source NAME is in what it
    reads, and how many bytes of the database's log it is behind."""
    is_sink = rest.connector(name)["type"] == "sink"
    rows = rest.connector(name, "/lag")
    if is_sink or as_json:
        columns = columns_of("topic partition offset# end# lag#")
        print_rows(rows, columns, as_json=as_json, empty=f"{name} has committed nothing yet")
        return
    parts = [{**row, "part": ", ".join(map(str, row["partition"].values()))} for row in rows]
    empty = f"{name} has no position whose lag is known: `ottla connect status {name}` shows its last change"
    print_rows(parts, columns_of("part position end lag=LAG_BYTES# error=PROBLEM~"), empty=empty)


@click.command()
@click.argument("name", required=False)
@json_option
@rest_option
def plugins(rest: Rest, name: str | None, as_json: bool) -> None:
    """List the connectors that the worker can run; with NAME, the settings of that one."""
    if name is None:
        columns = columns_of("class type version")
        print_rows(rest.ask("GET", "/connector-plugins"), columns, as_json=as_json, empty="none")
        return
    rows = rest.ask("GET", f"/connector-plugins/{name}/config")
    settings = columns_of("name=SETTING type required default_value=DEFAULT documentation=WHAT~")
    print_rows(rows, settings, as_json=as_json)
