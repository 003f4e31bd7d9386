"""Plots that the server draws."""

from ottla.console.plots import HEIGHT, WIDTH, Sample, plot


def written(value: float) -> str:
    return f"{value:g} records"


def test_one_sample_is_no_plot() -> None:
    assert plot([], written) is None
    assert plot([Sample(0, 1)], written) is None


def test_a_line_from_edge_to_edge_with_a_sentence() -> None:
    drawn = plot([Sample(0, 0), Sample(30, 10), Sample(60, 5)], written)
    assert drawn is not None
    points = [tuple(map(float, each.split(","))) for each in drawn.points.split()]
    assert [x for x, _ in points] == [0, WIDTH / 2, WIDTH]
    assert points[0][1] > points[2][1] > points[1][1] > 0
    assert max(y for _, y in points) < HEIGHT
    assert drawn.sentence == "From 00:00:00Z to 00:01:00Z between 0 records and 10 records, now 5 records."


def test_a_figure_that_stays_at_nothing_lies_at_the_bottom() -> None:
    drawn = plot([Sample(5, 0), Sample(5, 0)], written)
    assert drawn is not None
    assert {each.split(",")[1] for each in drawn.points.split()} == {"86.0"}
