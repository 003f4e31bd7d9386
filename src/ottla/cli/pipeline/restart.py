"""`ottla pipeline restart`: have a run stop one of its flows, and start it again."""

from pathlib import Path

import click

from ottla.cli.pipeline.options import home_option
from ottla.cli.pipeline.single_flows import ask, flow_option, within_option
from ottla.pipeline.flow_requests import Request
from ottla.pipeline.run_store import find_run


@click.command("restart")
@click.argument("name")
@flow_option
@within_option
@home_option
def command(name: str, flows: tuple[str, ...], within: float, home: Path) -> None:
    """Stop a flow of a run after its micro-batch, and start it again where it was.

    The job is as it was when the run began; to have a flow run a job file that has changed, stop the run, and run it
    again.
    """
    ask(find_run(home, name), Request.RESTART, flows, within_s=within)
