"""`ottla pipeline status`: how far the flows of a run are."""

from dataclasses import asdict
from pathlib import Path

import click

from ottla.cli.pipeline.options import home_option
from ottla.cli.pipeline.tables import FLOW_COLUMNS, ago, columns_with_content, flow_rows, last_error, utc
from ottla.cli.terminal.output import json_option, on_terminal, print_facts, print_json, print_rows
from ottla.pipeline import progress
from ottla.pipeline.run_store import find_run, state_of


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
        print_json({**asdict(record), "state": state_of(record), "pid": process, "flows": flows})
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
        for given, since in figures[flow].idle_inputs().items() if flow in figures else ():
            when = "yet" if since is None else f"since {utc(since)}"
            click.echo(f"{flow}: nothing from {given} {when}; a watermark on it holds back that of the flow")
    rows = flow_rows(record, figures)
    print_rows(rows, columns_with_content(rows) if on_terminal() else FLOW_COLUMNS)
