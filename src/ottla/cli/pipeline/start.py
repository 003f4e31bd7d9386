"""`ottla pipeline start`: have a run start one of its flows again."""

from pathlib import Path

import click

from ottla.cli.pipeline.options import home_option
from ottla.cli.pipeline.single_flows import ask, flow_option, within_option
from ottla.pipeline.flow_requests import Request
from ottla.pipeline.run_store import find_run


@click.command("start")
@click.argument("name")
@flow_option
@within_option
@home_option
def command(name: str, flows: tuple[str, ...], within: float, home: Path) -> None:
    """Start a flow of a run that goes on: one that has failed or was stopped.

    It goes on where it was, with the job as it was when the run began; to have it run a job file that has changed,
    stop the run, and run it again.
    """
    ask(find_run(home, name), Request.START, flows, within_s=within)
