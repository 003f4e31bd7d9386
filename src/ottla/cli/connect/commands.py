"""`ottla connect`: the group of commands about connectors. Each is imported when it is called."""

import importlib
from typing import Final

import click

from ottla.cli.terminal import suggest

VERBS: Final = {
    "serve": ("serve", "serve", "Run a worker."),
    "apply": ("apply", "apply", "Create or change connectors from files."),
    "list": ("show", "list_connectors", "List connectors."),
    "status": ("show", "status", "Show how a connector and its tasks do, and how far a snapshot is."),
    "logs": ("show", "logs", "Show what a connector has logged last."),
    "lag": ("show", "lag", "Show how many records a sink has yet to write."),
    "plugins": ("show", "plugins", "List the connectors that workers can run, or the settings of one."),
    "pause": ("change", "pause", "Let a connector rest; its tasks keep their places."),
    "resume": ("change", "resume", "Let a paused or stopped connector go on."),
    "stop": ("change", "stop", "Stop a connector; its offsets may be changed then."),
    "restart": ("change", "restart", "Restart a connector and its tasks."),
    "delete": ("change", "delete", "Delete a connector."),
    "redrive": ("redrive", "redrive", "Send a sink's dead letters back to where they came from."),
    "demo": ("demo", "demo", "Take a database through topics and Spark into another, and kill all of it once."),
}
"""The verbs with the module and the name of their command, and their one line of help."""


class ConnectVerbs(click.Group):
    """Knows every verb, imports only the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of `VERBS`."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's module and give its command; None for an unknown one."""
        if cmd_name not in VERBS:
            return None
        module, name, _ = VERBS[cmd_name]
        command = getattr(importlib.import_module(f"ottla.cli.connect.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest command named for an unknown one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            ctx.fail(f"no such command: {ctx.command_path} {args[0]}{suggest.did_you_mean_or_list(args[0], VERBS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, _, text) in VERBS.items()])


@click.group(cls=ConnectVerbs)
def command() -> None:
    """Run connectors, databases in and databases out, and look after them.

    Speaks Kafka Connect's REST API: works with its workers too. See docs/connect.md. Needs Ottla's
    extra `connect`.
    """
