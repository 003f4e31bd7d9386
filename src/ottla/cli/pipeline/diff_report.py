"""What `ottla pipeline diff` has found: for a terminal, as JSON, and as a page of HTML."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.terminal.output import Column, Row, note, plural, print_rows

if TYPE_CHECKING:
    from ottla.pipeline.diff import Difference, Example

_SHOWN_WIDTH: Final = 200
_ROWS_OF_A_KEY: Final = 3

_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }}
table {{ border-collapse: collapse; margin: .5rem 0 1.5rem }}
th, td {{ border-bottom: 1px solid #ddd; padding: .25rem .75rem; text-align: left; vertical-align: top }}
td {{ overflow-wrap: anywhere }}
.a {{ background: #fff1f0 }} .b {{ background: #f0fff4 }}
</style>
<h1>{title}</h1>
{body}
</html>
"""


@dataclass(frozen=True, slots=True)
class DiffReport:
    """The outputs of the runs `a` and `b`, by flow."""

    a: str
    b: str
    found: "Mapping[str, Difference]"

    def json(self) -> dict[str, Any]:
        """Everything, with the examples as they are."""
        return {"a": self.a, "b": self.b, "flows": {flow: asdict(each) for flow, each in self.found.items()}}

    def show(self) -> None:
        """Print counts, and of each output that differs the columns in which it does, and examples."""
        rows: list[Row] = [self._counts(flow, each) for flow, each in self.found.items()]
        print_rows(rows, [Column(key, key.upper() if key == "flow" else key, figures=key != "flow") for key in rows[0]])
        for flow, each in self.found.items():
            if each.is_equal:
                continue
            click.echo(f"\n{flow}, - {self.a}, + {self.b}:")
            for column, count in each.columns.items():
                click.echo(f"  {column}: differs in {plural(count, 'row')}")
            for example in each.examples:
                for line in _lines(example):
                    click.echo(line if len(line) <= _SHOWN_WIDTH else line[: _SHOWN_WIDTH - 3] + "...")
        different = sum(not each.is_equal for each in self.found.values())
        note("everything is equal" if not different else f"{different} of {plural(len(self.found), 'output')} differ")

    def html(self) -> str:
        """A page with the same, rows side by side."""
        title = f"{self.a} and {self.b}"
        counts = [self._counts(flow, each) for flow, each in self.found.items()]
        body = [_table(list(counts[0]), [[str(value) for value in row.values()] for row in counts])]
        for flow, each in self.found.items():
            if each.is_equal:
                continue
            body.append(f"<h2>{escape(flow)}</h2>")
            if each.columns:
                body.append(
                    _table(["column", "rows that differ"], [[name, f"{n:,}"] for name, n in each.columns.items()])
                )
            sides = [_side_by_side(example) for example in each.examples]
            body.append(_table(["key", "column", self.a, self.b], [row for rows in sides for row in rows], sides=True))
        return _PAGE.format(title=escape(title), body="\n".join(body))

    def _counts(self, flow: str, each: "Difference") -> dict[str, object]:
        return {
            "flow": flow,
            "equal rows": each.equal,
            f"only in {self.a}": each.only_in_a,
            f"only in {self.b}": each.only_in_b,
            "keys": sum(asdict(each.keys).values()),
            "different keys": each.differing,
        }


def _lines(example: "Example") -> Iterator[str]:
    """An example for a terminal: the columns that differ side by side, else the rows."""
    if example.columns:
        yield example.key
        for column, in_a, in_b in _differing(example):
            yield f"  {column}: {in_a} | {in_b}"
        return
    for sign, rows in (("-", example.in_a), ("+", example.in_b)):
        yield from (f"{sign} {row}" for row in rows[:_ROWS_OF_A_KEY])
        if len(rows) > _ROWS_OF_A_KEY:
            yield f"{sign} and {len(rows) - _ROWS_OF_A_KEY:,} more"


def _side_by_side(example: "Example") -> list[list[str]]:
    if example.columns:
        return [[example.key, column, in_a, in_b] for column, in_a, in_b in _differing(example)]
    return [[example.key, "", "\n".join(example.in_a), "\n".join(example.in_b)]]


def _differing(example: "Example") -> Iterator[tuple[str, str, str]]:
    for in_a, in_b in list(zip(example.in_a, example.in_b, strict=False))[:_ROWS_OF_A_KEY]:
        left, right = _fields(in_a), _fields(in_b)
        for column in example.columns:
            here, there = (_shown(side, column) for side in (left, right))
            if here != there:
                yield column, here, there


def _shown(columns: Mapping[str, Any], name: str) -> str:
    return json.dumps(columns[name], ensure_ascii=False) if name in columns else "(missing)"


def _fields(row: str) -> dict[str, Any]:
    """The columns of a row; of a record whose value is a JSON object, its fields."""
    found: dict[str, Any] = json.loads(row)
    if found.keys() == {"key", "value"} and isinstance(found["value"], str):
        try:
            value = json.loads(found["value"])
        except ValueError:
            return found
        if isinstance(value, dict):
            return value
    return found


def _table(titles: list[str], rows: list[list[str]], *, sides: bool = False) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    classes = ["", "", ' class="a"', ' class="b"'] if sides else [""] * len(titles)
    body = "".join(
        "<tr>" + "".join(f"<td{mark}>{escape(cell)}</td>" for mark, cell in zip(classes, row, strict=True)) + "</tr>\n"
        for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}</table>"
