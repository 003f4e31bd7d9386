"""What commands print: tables on a terminal, tab-separated lines without a header when piped, JSON when asked for.

Results go to standard output, everything else (notes, questions, errors) to standard error.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from ottla.cli.terminal import exits

Row = Mapping[str, object]

_SHORTEST_LONG_TEXT = 24
"""To how many characters long text may be squeezed, on as many lines as that takes."""
_CELL_PADDING = 3


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: the key in each row, the title on a terminal, whether it holds figures or long text."""

    key: str
    title: str
    figures: bool = False
    long: bool = False


def columns_of(*named: str) -> tuple[Column, ...]:
    """Columns from text, such as `topic partition# reason~ key=SETTING`: `#` marks figures, `~` long text.

    A title is the key in capitals, unless one follows `=`; underscores become spaces.
    """
    return tuple(_column(each) for text in named for each in text.split())


def _column(text: str) -> Column:
    key, _, title = text.rstrip("#~").partition("=")
    return Column(key, (title or key.upper()).replace("_", " "), text.endswith("#"), text.endswith("~"))


def on_terminal() -> bool:
    """Whether results go to a person rather than to a pipe or a file."""
    return sys.stdout.isatty()


def progress_wanted() -> bool:
    """Whether standard error goes to a terminal in the foreground."""
    if not sys.stderr.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # a terminal that controls no session knows no foreground
        return True


def cell(value: object, *, separate_thousands: bool = False) -> str:
    """One value as text: `-` for nothing, commas within lists."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if separate_thousands else str(value)
    if isinstance(value, float):
        return f"{value:,.2f}" if separate_thousands else repr(round(value, 6))
    if isinstance(value, list | tuple):
        return ",".join(cell(item) for item in value) or "-"
    return str(value)


def print_json(value: object) -> None:
    """Print a value as JSON: indented for a person, on one line for a program."""
    click.echo(json.dumps(value, indent=2 if on_terminal() else None, ensure_ascii=False))


def print_rows(
    rows: Sequence[Row], columns: Sequence[Column], *, as_json: bool = False, title: str | None = None, empty: str = ""
) -> None:
    """Print rows as a table, as tab-separated lines, or as a JSON list.

    `empty` is the note a person gets instead of a table without rows.
    """
    if as_json:
        print_json(list(rows))
    elif not on_terminal():
        for row in rows:
            click.echo("\t".join(cell(row.get(column.key)) for column in columns))
    elif not rows:
        note(empty)
    else:
        _print_rich_table(rows, columns, title)


def _print_rich_table(rows: Sequence[Row], columns: Sequence[Column], title: str | None) -> None:
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, title_style="bold")
    needed = 0
    texts = [[cell(row.get(column.key), separate_thousands=column.figures) for column in columns] for row in rows]
    for number, column in enumerate(columns):
        longest = max(cell_len(column.title), *(cell_len(row[number]) for row in texts))
        width = min(longest, _SHORTEST_LONG_TEXT) if column.long else longest
        needed += width + _CELL_PADDING
        table.add_column(
            column.title,
            justify="right" if column.figures else "left",
            overflow="fold",
            no_wrap=not column.long,
            min_width=width,
        )
    for row in texts:
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    # Nothing is ever cut off: a table that cannot be as narrow as the terminal is wrapped by the terminal.
    console.print(table, width=max(console.width, needed), crop=False, soft_wrap=needed > console.width)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print named facts, one a line: aligned for a person (underscores as spaces), tab-separated otherwise."""
    person = on_terminal()
    pairs = [(name.replace("_", " ") if person else name, value) for name, value in facts]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        text = cell(value, separate_thousands=person)
        click.echo(f"{name:<{width}}  {text}" if person else f"{name}\t{text}")


def print_described(
    key: str,
    entry: Row,
    facts: Iterable[tuple[str, object]],
    rows: Iterable[Row],
    columns: Sequence[Column],
    *,
    empty: str = "",
) -> None:
    """Print one of the things that were asked for: on a terminal facts and a table of rows; piped, the rows alone.

    Each piped row begins with the thing's name, `entry[key]`: a shape that survives `cut` and `awk` for many things.
    """
    if on_terminal():
        print_facts(facts)
        print_rows(list(rows), columns, empty=empty)
    else:
        named = [{key: entry[key], **row} for row in rows]
        print_rows(named, (Column(key, key.upper()), *columns))


def note(text: str) -> None:
    """Print a message to the user that is not part of the result."""
    if text:
        click.echo(text, err=True)


def complain(text: str) -> None:
    """Report a failure on standard error, in the program's name."""
    click.echo(f"ottla: {text}", err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone; `yes` answers beforehand.

    Raises `click.UsageError` when there is no terminal to ask at, `CommandFailed` when the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"add --yes: there is no terminal on which to ask {question!r}")
    if not click.confirm(question, default=False, err=True):
        raise exits.CommandFailed("nothing was changed")


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {noun if count == 1 else (plural_noun or noun + 's')}"


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
