"""`ottla pipeline logs`: what a run, Spark and its processes have logged."""

from pathlib import Path

import click

from ottla.cli.pipeline.options import home_option
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import json_option, note, plural, print_json
from ottla.pipeline.logs import about, entries
from ottla.pipeline.names import did_you_mean
from ottla.pipeline.run_store import find_run


@click.command("logs")
@click.argument("name")
@click.option("--flow", metavar="FLOW", help="Only what names this flow.")
@click.option("--last", "-n", metavar="N", type=click.IntRange(min=1), default=100, help="The newest. [default: 100]")
@home_option
@json_option
def command(name: str, flow: str | None, last: int, home: Path, as_json: bool) -> None:
    """Show what a run, Spark and its processes have logged, in the order in which it happened.

    An entry is a line with what belongs to it, such as a traceback. It begins with where it comes from: job, spark, or
    processes, whose lines have no times and are shown at the last one's.
    """
    directory = find_run(home, name)
    found = entries(directory.path)
    if flow is not None:
        flows = directory.read().flows
        if flow not in flows:
            raise CommandFailed(f"{name!r} has no flow {flow!r}{did_you_mean(flow, flows)}")
        found = list(about(found, name, flow))
    shown = found[-last:]
    if as_json:
        print_json([{"at": each.at.isoformat(), "source": each.source, "text": each.text} for each in shown])
        return
    for each in shown:
        click.echo(f"{each.source}: {each.text}")
    if len(shown) < len(found):
        note(f"{plural(len(found) - len(shown), 'older entry', 'older entries')} not shown (--last)")
    elif not found:
        note(f"nothing was logged{'' if flow is None else f' that names {flow!r}'}; the files are in {directory.path}")
