"""`ottla pipeline`: the group of commands about jobs. Each is imported when it is called."""

from typing import Final

import click

from ottla.cli.app import LazyVerbs, Place

VERBS: Final = {
    "new": "Write a job that works, with a test, to begin with.",
    "run": "Run a job until it is stopped.",
    "list": "List runs.",
    "status": "Show how far the flows of a run are.",
    "logs": "Show what a run, Spark and its processes have logged.",
    "stop": "Stop a run, or one of its flows, after its micro-batch.",
    "savepoint": "Copy the checkpoints of a stopped run, to go on from them later.",
    "start": "Start a flow of a run that has failed or was stopped.",
    "restart": "Stop and start a flow of a run.",
    "replay": "Run a job once more from an earlier place, side by side.",
    "diff": "Compare the outputs of two runs.",
    "promote": "Have a replay take the place of its run.",
    "test": "Run a job against golden files.",
    "graph": "Show what a job reads and writes, and by which views and flows.",
    "compact": "Rewrite the small files of a run's tables as few large ones.",
    "redrive": "Send dead letters back to where they came from.",
}
"""The verbs with their one line of help; `ottla.cli.pipeline.<verb>` holds each as `command`."""


@click.group(
    cls=LazyVerbs,
    places={verb: Place(f"ottla.cli.pipeline.{verb}", "command", text) for verb, text in VERBS.items()},
)
def command() -> None:
    """Run jobs on Spark; look after them, replay and test them.

    A job is a Python file: see docs/pipeline.md. Needs Ottla's extra `pipeline` and Java 17 or newer.
    """
