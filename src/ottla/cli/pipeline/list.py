"""`ottla pipeline list`: every run that the home knows."""

from pathlib import Path
from typing import Final

import click

from ottla.cli.pipeline.options import home_option
from ottla.cli.pipeline.tables import ago
from ottla.cli.terminal.output import Row, columns_of, json_option, on_terminal, print_rows
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.run_rows import last_error, utc
from ottla.pipeline.run_store import run_directories, state_of

_COLUMNS: Final = columns_of("name state job flows# since pid=PROCESS error=LAST_ERROR~")


@click.command("list")
@home_option
@json_option
def command(home: Path, as_json: bool) -> None:
    """List runs: those that go on, and those that have ended."""
    rows: list[Row] = []
    for name, directory in run_directories(home).items():
        try:
            record = directory.read()
        except PipelineError as problem:
            rows.append({"name": name, "state": "unreadable", "error": str(problem)})
            continue
        moment = record.started_at if record.stopped_at is None else record.stopped_at
        rows.append(
            {
                "name": name,
                "state": state_of(record),
                "job": record.job,
                "flows": len(record.flows),
                "since": moment if as_json else ago(moment) if on_terminal() else utc(moment),
                "pid": directory.process_id(),
                "error": last_error(record),
            }
        )
    print_rows(rows, _COLUMNS, as_json=as_json, empty=f"nothing has run yet with the home {home}")
