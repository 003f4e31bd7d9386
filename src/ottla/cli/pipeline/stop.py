"""`ottla pipeline stop`: have a run, or some of its flows, finish their micro-batches and end."""

from pathlib import Path

import click

from ottla.cli.pipeline.options import home_option
from ottla.cli.pipeline.single_flows import ask, within_option
from ottla.cli.terminal.output import note
from ottla.pipeline.errors import NotRunningError
from ottla.pipeline.flow_requests import Request
from ottla.pipeline.run_store import find_run, state_of
from ottla.pipeline.stopping import stop


@click.command("stop")
@click.argument("name")
@click.option(
    "--flow", "flows", metavar="FLOW", multiple=True, help="Only this flow; the run goes on. May be repeated."
)
@within_option
@click.option("--now", is_flag=True, help="Do not wait for micro-batches; they are done again at the next start.")
@home_option
def command(name: str, flows: tuple[str, ...], within: float, now: bool, home: Path) -> None:
    """Stop a run, or single flows of it, when their micro-batches are done. Started again, they go on where they were.

    A run ends when its last flow has stopped.
    """
    directory = find_run(home, name)
    if flows:
        if now:
            raise click.UsageError("--now is for a whole run: a flow finishes its micro-batch")
        ask(directory, Request.STOP, flows, within_s=within)
        return
    if directory.process_id() is None:
        raise NotRunningError(f"{name!r} is not running: it is {state_of(directory.read())}")
    stop(directory, within_s=within, now=now)
    record = directory.read()
    note(f"{name!r} has stopped" + (f": {record.error}" if record.error else ""))
