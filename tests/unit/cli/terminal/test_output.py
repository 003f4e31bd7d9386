"""Tables for a person, lines for a program, JSON when asked for."""

import json
import sys
from typing import Any

import click
import pytest

from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import (
    Column,
    cell,
    columns_of,
    confirm,
    plural,
    print_described,
    print_facts,
    print_json,
    print_rows,
)

COLUMNS = (Column("name", "NAME"), Column("port", "PORT"), Column("count", "COUNT", figures=True))
ROWS: list[dict[str, Any]] = [{"name": "a", "port": 9092, "count": 12345}, {"name": None, "port": [1, 2], "count": 0}]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.terminal.output.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize(
    ("value", "plain", "separated"),
    [
        (None, "-", "-"),
        ("", "-", "-"),
        (0, "0", "0"),
        (1234567, "1234567", "1,234,567"),
        (1234.5, "1234.5", "1,234.50"),
        (True, "yes", "yes"),
        ([], "-", "-"),
        ([1, 2000], "1,2000", "1,2000"),
        ("text", "text", "text"),
    ],
)
def test_cells(value: object, plain: str, separated: str) -> None:
    assert cell(value) == plain
    assert cell(value, separate_thousands=True) == separated


def test_piped_rows_are_tab_separated_without_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, COLUMNS)
    assert capsys.readouterr().out == "a\t9092\t12345\n-\t1,2\t0\n"


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_a_table_with_thousands_only_in_figures(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, COLUMNS)
    shown = capsys.readouterr().out
    assert "NAME" in shown
    assert "9092" in shown
    assert "12,345" in shown


@pytest.mark.usefixtures("terminal")
def test_a_person_is_told_that_there_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], COLUMNS, empty="nothing here")
    assert capsys.readouterr() == ("", "nothing here\n")


@pytest.mark.usefixtures("terminal")
def test_markup_in_names_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "[red]a[/red]"}], COLUMNS[:1])
    assert "[red]a[/red]" in capsys.readouterr().out


def test_json_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, COLUMNS, as_json=True)
    assert json.loads(capsys.readouterr().out) == ROWS
    print_json({"name": "ä"})
    assert capsys.readouterr().out == '{"name": "ä"}\n'


def test_facts_piped(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts([("cluster_id", "x"), ("topics", 3)])
    assert capsys.readouterr().out == "cluster_id\tx\ntopics\t3\n"


@pytest.mark.usefixtures("terminal")
def test_facts_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts([("cluster_id", "x"), ("topics", 3000)])
    assert capsys.readouterr().out == "cluster id  x\ntopics      3,000\n"


def test_yes_answers_the_question() -> None:
    confirm("Delete all?", yes=True)


def test_without_a_terminal_nobody_is_asked() -> None:
    with pytest.raises(click.UsageError, match="add --yes"):
        confirm("Delete all?", yes=False)


def test_no_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: False)
    with pytest.raises(CommandFailed, match="nothing was changed"):
        confirm("Delete all?", yes=False)


def test_plural() -> None:
    assert [plural(n, "record") for n in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]


def test_columns_from_text() -> None:
    assert columns_of("name port", "count#") == COLUMNS
    assert columns_of("why~ in_sync key=SET_BY end=END#") == (
        Column("why", "WHY", long=True),
        Column("in_sync", "IN SYNC"),
        Column("key", "SET BY"),
        Column("end", "END", figures=True),
    )


def test_what_is_described_begins_with_its_name_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("x", "y"):
        print_described("host", {"host": name}, [("host", name)], ROWS, COLUMNS, empty="none")
    print_described("host", {"host": "z"}, [("host", "z")], [], COLUMNS, empty="none")
    shown = capsys.readouterr()
    assert shown.out == "x\ta\t9092\t12345\nx\t-\t1,2\t0\ny\ta\t9092\t12345\ny\t-\t1,2\t0\n"
    assert shown.err == ""


@pytest.mark.usefixtures("terminal")
def test_what_is_described_has_its_facts_first_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_described("host", {"host": "z"}, [("host", "z"), ("rows", 0)], [], COLUMNS, empty="it has no rows")
    shown = capsys.readouterr()
    assert shown.out == "host  z\nrows  0\n"
    assert shown.err == "it has no rows\n"
