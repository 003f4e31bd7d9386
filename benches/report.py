"""The result as a table: colours and frames on a terminal, aligned plain text in a pipe."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from benches.contestants import BASELINE, CONTESTANTS
from benches.model import Figure, Goal
from benches.outcome import Outcome


def show(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print one table per benchmark, then the failures."""
    for outcome in outcomes:
        rounds = len(outcome.rounds)
        console.print(f"\n{outcome.benchmark.title} ({outcome.benchmark.name}, median of {rounds})", style="bold")
        console.print(_table(outcome, fancy=console.is_terminal))
        for failure in outcome.failures:
            console.print(f"failed: {failure}", style="red", markup=False)


def _table(outcome: Outcome, *, fancy: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD if fancy else None, pad_edge=False)
    table.add_column("figure")
    table.add_column("unit")
    names = outcome.contestants()
    for name in names:
        table.add_column(CONTESTANTS[name].title, justify="right")
        if name != BASELINE:
            table.add_column(f"/ {CONTESTANTS[BASELINE].title}", justify="right")
            table.add_column("goal", justify="right")
    for figure in outcome.benchmark.figures:
        cells = [figure.title, figure.unit]
        for name in names:
            cells.append(number(outcome.median(name, figure.name)))
            if name != BASELINE:
                ratio = outcome.ratio(name, figure.name)
                cells.append("" if ratio is None else f"{ratio:.2f} x")
                cells.append(_goal(figure, outcome.reached(name, figure), figure.goals.get(name), fancy=fancy))
        table.add_row(*cells)
    return table


def number(value: float) -> str:
    """A figure with the digits that mean something."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def _goal(figure: Figure, reached: bool | None, goal: Goal | None, *, fancy: bool) -> str:
    if goal is None:
        return ""
    sign = ">=" if figure.better == "higher" else "<="
    text = f"{sign} {goal.limit:g}{' x' if goal.kind == 'ratio' else ''}"
    if reached is None:
        return text
    word = "reached" if reached else "missed"
    return f"{text} [{'green' if reached else 'red'}]{word}[/]" if fancy else f"{text} {word}"
