"""`ottla pipeline`: the group of commands about jobs. Each is imported when it is called."""

import importlib
from typing import Final

import click

from ottla.cli.terminal import suggest

VERBS: Final = {
    "run": "Run a job until it is stopped.",
    "list": "List runs.",
    "status": "Show how far the flows of a run are.",
    "stop": "Stop a run after the micro-batch that it is in.",
    "replay": "Run a job once more from an earlier place, side by side.",
    "diff": "Compare the outputs of two runs.",
    "promote": "Have a replay take the place of its run.",
    "test": "Run a job against golden files.",
    "compact": "Rewrite the small files of a run's tables as few large ones.",
    "redrive": "Send dead letters back to where they came from.",
}
"""The verbs with their one line of help; `ottla.cli.pipeline.<verb>` holds each as `command`."""


class PipelineVerbs(click.Group):
    """Knows every verb, imports only the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of `VERBS`."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's module and give its command; None for an unknown one."""
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(f"ottla.cli.pipeline.{cmd_name}").command
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
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=PipelineVerbs)
def command() -> None:
    """Run jobs on Spark; look after them, replay and test them.

    A job is a Python file: see docs/pipeline.md. Needs Ottla's extra `pipeline` and Java 17 or newer.
    """
