"""`ottla connect pause`, `resume`, `stop`, `restart`, `delete`."""

import click

from ottla.cli.connect.client import Rest, rest_option
from ottla.cli.terminal.output import confirm, note, yes_option


def _change(path: str, done: str, help_text: str) -> click.Command:
    """A command that changes the state of a connector by one request."""

    @click.command(path, help=help_text)
    @click.argument("name")
    @rest_option
    def change(rest: Rest, name: str) -> None:
        rest.connector(name, f"/{path}", method="PUT")
        note(f"{name} {done}")

    return change


pause = _change("pause", "pauses", "Let the tasks of the connector NAME rest; they go on from where they are.")
resume = _change("resume", "goes on", "Let the connector NAME go on after a pause or a stop.")
stop = _change(
    "stop", "stops", "Stop the connector NAME: it keeps its configuration and its offsets, and has no tasks."
)


@click.command()
@click.argument("name")
@click.option("--task", metavar="N", type=click.IntRange(min=0), help="Only this task.")
@click.option("--failed", is_flag=True, help="Only failed tasks and connectors.")
@rest_option
def restart(rest: Rest, name: str, task: int | None, failed: bool) -> None:
    """Restart the connector NAME and its tasks."""
    if task is not None and failed:
        raise click.UsageError("--task and --failed exclude each other")
    if task is not None:
        rest.connector(name, f"/tasks/{task}/restart", method="POST")
        note(f"task {task} of {name} restarts")
        return
    rest.connector(name, f"/restart?includeTasks=true&onlyFailed={str(failed).lower()}", method="POST")
    note(f"{name} restarts")


@click.command()
@click.argument("name")
@yes_option
@rest_option
def delete(rest: Rest, name: str, yes: bool) -> None:
    """Delete the connector NAME. Its positions stay, for one of the same name; topics and targets are left alone."""
    rest.connector(name)
    confirm(f"Delete connector {name}?", yes=yes)
    rest.connector(name, method="DELETE")
    note(f"deleted {name}")
