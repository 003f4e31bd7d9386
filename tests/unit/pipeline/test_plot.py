from pathlib import Path
from xml.etree import ElementTree

import pytest

from ottla.pipeline.demo import plot
from ottla.pipeline.demo.plot import HourlyDelay

ROWS = [
    HourlyDelay(17, True, 100, 4_500),
    HourlyDelay(6, False, 400, 800),
    HourlyDelay(17, False, 300, 6_000),
    HourlyDelay(4, False, 3, 900),
]


def test_the_picture_is_svg_and_the_same_for_the_same_figures(tmp_path: Path) -> None:
    plot.draw(ROWS, tmp_path / "one.svg", year=2013)
    plot.draw(list(reversed(ROWS)), tmp_path / "two.svg", year=2013)
    assert ElementTree.parse(tmp_path / "one.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"one.svg", "two.svg"}


def test_a_picture_without_figures_can_be_drawn(tmp_path: Path) -> None:
    plot.draw([], tmp_path / "empty.svg", year=2013)
    assert (tmp_path / "empty.svg").stat().st_size > 0


def test_averages_leave_out_hours_of_few_flights() -> None:
    assert plot.averages(ROWS, wet=False, at_least=50) == {6: 2.0, 17: 20.0}
    assert plot.averages(ROWS, wet=True) == {17: 45.0}
    assert plot.flights_by_hour(ROWS) == {4: 3, 6: 400, 17: 400}


def test_lines_have_a_bar_for_each_kind_of_weather() -> None:
    title, *lines = plot.as_lines(ROWS, width=9)
    assert "dry" in title
    assert lines == ["06:00   2", "17:00  ░░░░ 20", "       █████████ 45"]


@pytest.mark.parametrize("rows", [[], ROWS[:1]])
def test_lines_of_little(rows: list[HourlyDelay]) -> None:
    assert len(plot.as_lines(rows)) == 1 + len(rows)
