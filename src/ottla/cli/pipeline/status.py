"""`ottla pipeline status`: how far the flows of a run are."""

from dataclasses import asdict
from pathlib import Path

import click

from ottla.cli.pipeline.options import home_option
from ottla.cli.pipeline.tables import FLOW_COLUMNS, ago, columns_with_content
from ottla.cli.terminal.output import json_option, on_terminal, print_facts, print_json, print_rows
from ottla.pipeline import progress
from ottla.pipeline.run_rows import flow_rows, last_error, remarks
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
    for remark in remarks(record, figures, directory.late_changes()):
        click.echo(remark)
    rows = flow_rows(record, figures)
    print_rows(rows, columns_with_content(rows) if on_terminal() else FLOW_COLUMNS)
