"""The click application: the list of nouns, loaded one at a time, and the translation of failures to exit codes."""

import errno
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import click

from ottla.cli.terminal import exits, interruption, suggest
from ottla.cli.terminal.output import complain

NOUNS: Final = {
    "serve": "Start a broker.",
    "topic": "Create, list, describe, alter, delete and trim topics.",
    "produce": "Write records to a topic.",
    "consume": "Read records from topics.",
    "group": "Look at consumer groups, move and delete them.",
    "share": "Look at share groups, move and delete them.",
    "streams": "Look at streams groups and their tasks, delete them.",
    "txn": "List, describe and abort transactions.",
    "config": "Read and change settings of topics, brokers and groups.",
    "acl": "List access rules, grant and revoke roles, explain decisions.",
    "user": "List users that log in by SCRAM, set and remove their passwords.",
    "quota": "List and set quotas of users, clients and addresses, show their use.",
    "telemetry": "Ask clients for their metrics, and show what they send.",
    "cluster": "Look at the cluster, or start one on this machine.",
    "quorum": "Look at the quorum of Kafka's controllers, add and remove voters.",
    "storage": "Format the directories of a node of a quorum.",
    "console": "Show a cluster in the browser.",
    "cert": "Make certificates for development.",
    "doctor": "Check a cluster, and the machine of a broker.",
    "top": "Watch a broker at work.",
    "zookeeper": "Run a ZooKeeper server for development.",
    "pipeline": "Run jobs on Spark; look after them, replay and test them.",
    "connect": "Run connectors: databases in, databases out.",
    "log": "Look into log files and check them.",
    "perf": "Measure throughput and latency.",
    "demo": "Run real flights through a topic and Spark.",
}
"""The command's nouns with their one line of help; each is `ottla.cli.<noun>.commands`, imported only when called."""

EPILOG: Final = """\
Exit codes: 0 done, 1 the operation failed (wholly or in part), 2 wrong usage, 130 stopped by Ctrl-C.

Results are tables on a terminal and tab-separated lines when piped; --json prints JSON.
"""


EXTRAS: Final = {
    "pyspark": "pipeline",
    "pyarrow": "pipeline",
    "pandas": "pipeline",
    "starlette": "console",
    "uvicorn": "console",
    "jinja2": "console",
}
"""Packages that some commands import at once, with the extra that brings each."""

_WHOLE: Final = 300
"""Characters of a line of help: more than any has, so that none is cut off."""
_OUTPUT_TROUBLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_COMPLETE: Final = "_OTTLA_COMPLETE"
"""Set by the completion script that `_OTTLA_COMPLETE=bash_source ottla` prints (zsh_source, fish_source)."""


class Verbs(click.Group):
    """The commands of one noun, with the nearest one named for one that does not exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest command named for an unknown one."""
        known = list(self.commands or self.list_commands(ctx))
        if args and args[0] not in known and not args[0].startswith("-"):
            self.refuse(ctx, args[0], known)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with its whole sentence."""
        with formatter.section("Commands"):
            formatter.write_dl(self.sentences(ctx))

    def sentences(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Each command with its line of help."""
        return [(name, self.commands[name].get_short_help_str(_WHOLE)) for name in self.list_commands(ctx)]

    def refuse(self, ctx: click.Context, unknown: str, known: list[str]) -> None:
        """Fail over a command that does not exist."""
        ctx.fail(f"no such command: {ctx.command_path} {unknown}{suggest.did_you_mean_or_list(unknown, known)}")


class Place(NamedTuple):
    """Where a command is, and its one line of help."""

    module: str
    name: str
    help: str


class LazyVerbs(Verbs):
    """Knows every command, imports only the one that is used."""

    def __init__(self, *, places: Mapping[str, Place], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order in which they are given."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and give the command; None for an unknown one.

        Raises CommandFailed where a package of an extra is missing.
        """
        if cmd_name not in self._places:
            return None
        place = self._places[cmd_name]
        try:
            command = getattr(importlib.import_module(place.module), place.name)
        except ModuleNotFoundError as missing:
            extra = EXTRAS.get((missing.name or "").partition(".")[0])
            if extra is None:
                raise
            raise exits.CommandFailed(
                f"`{ctx.command_path} {cmd_name}` needs {missing.name}: install Ottla with its extra `{extra}`"
            ) from missing
        assert isinstance(command, click.Command)
        return command

    def sentences(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Each command with its line of help; none is imported."""
        return [(name, place.help) for name, place in self._places.items()]


class Nouns(LazyVerbs):
    """The top-level group. `serve` is listed, but is no part of this application."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """As the others; None for `serve`."""
        return None if cmd_name == "serve" else super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As the others, with a hint for `serve`."""
        if args and args[0] == "serve":
            ctx.fail("`serve` comes first: ottla serve [SERVER.PROPERTIES] [--override KEY=VALUE]...")
        return super().resolve_command(ctx, args)

    def refuse(self, ctx: click.Context, unknown: str, known: list[str]) -> None:
        """Fail over a noun that does not exist."""
        ctx.fail(f"no such command: {unknown!r}{suggest.did_you_mean(unknown, known)}")


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"ottla {version('ottla')}")
        context.exit()


@click.group(
    cls=Nouns,
    places={noun: Place(f"ottla.cli.{noun}.commands", "command", text) for noun, text in NOUNS.items()},
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def application() -> None:
    """A durable, partitioned log for Python that speaks Apache Kafka's protocol.

    Every command works against Apache Kafka as well; --bootstrap or OTTLA_BOOTSTRAP names the brokers.
    """


def run_program(arguments: list[str]) -> int:
    """Run one command as the whole process: SIGTERM then cleans up as Ctrl-C does. Returns the exit code."""
    interruption.install()
    return run(arguments)


def run(arguments: list[str]) -> int:
    """Run one command and report its failure, if any, in a sentence. Returns the exit code."""
    if _COMPLETE in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(application, {}, "ottla", _COMPLETE, os.environ[_COMPLETE])
    try:
        return _run(arguments)
    except BrokenPipeError:
        return _leave_broken_pipe()
    except interruption.Terminated:
        return exits.TERMINATED
    except KeyboardInterrupt:
        return exits.INTERRUPTED


def _run(arguments: list[str]) -> int:
    try:
        # Not through click's own main(), which turns Ctrl-C, SIGTERM and a closed pipe into one exit code.
        with application.make_context("ottla", list(arguments)) as context:
            outcome: object = application.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as nothing:
        click.echo(nothing.format_message())
        return exits.USAGE
    except click.UsageError as problem:
        path = problem.ctx.command_path if problem.ctx else "ottla"
        misplaced = isinstance(problem, click.NoSuchOption) and path == "ottla"
        hint = "; options follow the command, as in `ottla topic list --json`" if misplaced else ""
        complain(f"{_sentence(problem.format_message())}{hint}\nTry '{path} --help'.")
        return exits.USAGE
    except click.Abort:  # Ctrl-C or end of input at a question
        return exits.INTERRUPTED
    except click.ClickException as problem:
        complain(_sentence(problem.format_message()))
        return exits.FAILED
    except exits.CommandFailed as failure:
        complain(str(failure))
        return exits.FAILED
    except BrokenPipeError:
        raise
    except OSError as failure:
        reason = (failure.strerror or str(failure)).lower()
        if failure.filename is not None:
            complain(f"{failure.filename}: {reason}")
        elif failure.errno in _OUTPUT_TROUBLE:
            complain(f"the output cannot be written: {reason}")
            _abandon_output()
        else:
            raise
        return exits.FAILED
    except Exception as failure:
        sentence = _broker_failure(failure) or _job_failure(failure) or _client_failure(failure)
        if sentence is None:
            raise
        complain(sentence)
        return exits.FAILED
    return outcome if isinstance(outcome, int) else exits.OK


def _broker_failure(failure: Exception) -> str | None:
    """The sentence about a broker that refuses or does not answer; None if the failure is something else."""
    errors = sys.modules.get("ottla.client.errors")
    return str(failure) if errors is not None and isinstance(failure, errors.ClientError) else None


def _job_failure(failure: Exception) -> str | None:
    """The sentence about a job or a run of one; None if the failure is something else."""
    errors = sys.modules.get("ottla.pipeline.errors")
    return str(failure) if errors is not None and isinstance(failure, errors.PipelineError) else None


def _client_failure(failure: Exception) -> str | None:
    """The sentence about an error of the client library; None if the failure is something else."""
    if "confluent_kafka" not in sys.modules:
        return None
    from confluent_kafka import KafkaException

    from ottla.cli.brokers.client import client_log
    from ottla.cli.brokers.failures import explain

    if not isinstance(failure, KafkaException):
        return None
    return explain(failure.args[0] if failure.args else failure, client_log.last_reason())


def _sentence(message: str) -> str:
    return message[:1].lower() + message[1:].rstrip(".") if message[1:2].islower() else message.rstrip(".")


def _leave_broken_pipe() -> int:
    _abandon_output()  # the reader (`head`, say) has what it wanted
    return exits.OK


def _abandon_output() -> None:
    # Nothing may be left for the interpreter to fail on when it flushes at its exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
