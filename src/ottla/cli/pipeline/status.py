"""`ottla pipeline status`: how far the flows of a run are."""

from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from ottla.cli.pipeline.options import home_option
from ottla.cli.pipeline.tables import FLOW_COLUMNS, ago, columns_with_content, flow_rows, last_error, utc
from ottla.cli.terminal.output import json_option, on_terminal, print_facts, print_json, print_rows
from ottla.pipeline import progress
from ottla.pipeline.progress import WAITED_ROWS
from ottla.pipeline.run_store import find_run, state_of

_LOOKUPS: Final = {
    "absent": "found no row",
    "too old": "came before the history begins",
    "ahead": "were ahead of the clock",
    "no time": "had no time",
    WAITED_ROWS: "waited until their time was known",
}
"""What may become of a row that is joined as of its time, but for a row that is found."""


@click.command("status")
@click.argument("name")
@home_option
@json_option
def command(name: str, home: Path, as_json: bool) -> None:
    """Show a run: rate, lag in records and in time, state, watermark and late rows of each flow, and the last error.

    Lag in time is how long ago the ends of the flow's topics were where the flow is now.
    """
    directory = find_run(home, name)
    record = directory.read()
    figures = progress.latest(directory.progress, record.flows)
    process = directory.process_id()
    if as_json:
        flows = {
            flow: {**asdict(about), "figures": asdict(figures[flow]) if flow in figures else None}
            for flow, about in record.flows.items()
        }
        late = directory.late_changes()
        print_json({**asdict(record), "late_changes": late, "state": state_of(record), "pid": process, "flows": flows})
        return
    moment = record.started_at if record.stopped_at is None else record.stopped_at
    print_facts(
        (
            ("run", record.name),
            ("state", f"{state_of(record)}, {ago(moment)}" if on_terminal() else state_of(record)),
            ("process", process),
            ("job", record.job_file),
            ("brokers", record.bootstrap),
            ("master", record.master),
            ("last error", last_error(record)),
            ("log", directory.spark_log),
        )
    )
    for flow, about in record.flows.items():
        if about.error:
            click.echo(f"{flow}: {about.error}")
        for view, expectations in figures[flow].expectations.items() if flow in figures else ():
            for name, found in expectations.items():
                if found["rows"]:
                    click.echo(f"{flow}: {found['rows']:,} rows of {view} break {name!r} ({found['otherwise']})")
        for history, counts in figures[flow].lookups.items() if flow in figures else ():
            said = [f"{counts[status]:,} {what}" for status, what in _LOOKUPS.items() if counts.get(status)]
            if said:
                click.echo(f"{flow}: of the rows joined with {history}, {', '.join(said)}")
        for given, since in figures[flow].idle_inputs().items() if flow in figures else ():
            when = "yet" if since is None else f"since {utc(since)}"
            click.echo(f"{flow}: nothing from {given} {when}; a watermark on it holds back that of the flow")
        for upstream in figures[flow].held_back_by if flow in figures else ():
            click.echo(f"{flow}: its watermark waits for that of flow {upstream}")
    for topic, changes in directory.late_changes().items():
        click.echo(
            f"history {topic}: {changes:,} changes came too late; rows of their time may have the version before"
        )
    rows = flow_rows(record, figures)
    print_rows(rows, columns_with_content(rows) if on_terminal() else FLOW_COLUMNS)
