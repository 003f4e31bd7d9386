"""The reference of all commands, from the command line's own declarations."""

from collections.abc import Iterator
from inspect import cleandoc

import click

from ottla.cli import serve
from ottla.cli.app import NOUNS, application

INTRODUCTION = """\
# All commands

This page is printed from the command line itself; `ottla COMMAND --help` prints the same.
[The command line](cli.md) explains the purpose of the commands. Every command that connects to a broker also takes
[the options common to all commands](cli.md#common-to-all-commands).
"""


def commands_page() -> str:
    """The whole page as Markdown."""
    parts = [INTRODUCTION]
    for noun in NOUNS:
        if noun == "serve":
            parts.append(f"## ottla serve\n\n```text\n{serve.HELP.rstrip()}\n```\n")
            continue
        command = application.get_command(click.Context(application), noun)
        assert command is not None
        parts += _sections(f"ottla {noun}", command, click.Context(application, info_name="ottla"), level=2)
    return "\n".join(parts)


def _sections(path: str, command: click.Command, parent: click.Context, *, level: int) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=path.rpartition(" ")[2])
    yield f"{'#' * level} {path}\n"
    if command.help:
        yield _text(command.help)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _sections(f"{path} {name}", found, context, level=level + 1)
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{path} {usage}\n```\n"
    rows = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)) is not None
    ]
    if rows:
        yield "| option | |\n|---|---|\n" + "".join(
            f"| `{_cell(name)}` | {_cell(_plain(text))} |\n" for name, text in rows
        )


def _text(text: str) -> str:
    """Help as Markdown: what click keeps as it is, after a line with a backspace, becomes a block."""
    paragraphs = cleandoc(text.partition("\f")[0]).split("\n\n")
    return (
        "\n\n".join(
            f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```"
            if paragraph.startswith("\b")
            else _plain(paragraph)
            for paragraph in paragraphs
        )
        + "\n"
    )


def _plain(text: str) -> str:
    """Text in which nothing is markup, except code that is marked as such."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[").replace("_", "\\_")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
