"""`ottla connect`: the group of commands about connectors. Each is imported when it is called."""

from typing import Final

import click

from ottla.cli.app import LazyVerbs, Place

VERBS: Final = {
    "serve": ("serve", "serve", "Run a worker."),
    "apply": ("apply", "apply", "Create or change connectors from files."),
    "list": ("show", "list_connectors", "List connectors."),
    "status": ("show", "status", "Show how a connector and its tasks do, and how far a snapshot is."),
    "logs": ("show", "logs", "Show what a connector has logged last."),
    "lag": ("show", "lag", "Show how many records a sink has yet to write, or bytes a source has yet to read."),
    "plugins": ("show", "plugins", "List the connectors that workers can run, or the settings of one."),
    "pause": ("change", "pause", "Let a connector rest; its tasks keep their places."),
    "resume": ("change", "resume", "Let a paused or stopped connector go on."),
    "stop": ("change", "stop", "Stop a connector; its offsets may be changed then."),
    "restart": ("change", "restart", "Restart a connector and its tasks."),
    "delete": ("change", "delete", "Delete a connector."),
    "redrive": ("redrive", "redrive", "Send a sink's dead letters back to where they came from."),
    "hash-password": ("hash_password", "hash_password", "Print the hash of a password, for a worker's users."),
    "demo": ("demo", "demo", "Take a database through topics and Spark into another, and kill all of it once."),
}
"""The verbs with the module and the name of their command, and their one line of help."""


@click.group(
    cls=LazyVerbs,
    places={verb: Place(f"ottla.cli.connect.{module}", name, text) for verb, (module, name, text) in VERBS.items()},
)
def command() -> None:
    """Run connectors, databases in and databases out, and look after them.

    Speaks Kafka Connect's REST API: works with its workers too. See docs/connect.md. Needs Ottla's
    extra `connect`.
    """
