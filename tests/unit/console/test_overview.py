"""The figures of the overview."""

from ottla.console.cluster import Group
from ottla.console.overview import GROUPS_SHOWN, furthest_behind, rates_of
from ottla.console.plots import Sample


def test_the_groups_that_are_furthest_behind() -> None:
    groups = [Group(f"g{number}", "classic", "Stable") for number in range(10)]
    lags = {f"g{number}": number for number in range(9)}
    found = furthest_behind(groups, lags)
    assert [each.lag for each in found] == [8, 7, 6, 5, 4]
    assert len(found) == GROUPS_SHOWN
    assert furthest_behind(groups, {"g1": 0}) == []


def test_the_rate_is_of_what_was_written_between_two_samples() -> None:
    sums = [Sample(0, 100), Sample(5, 600), Sample(15, 600), Sample(20, 50), Sample(21, 60)]
    assert rates_of(sums) == [Sample(5, 100), Sample(15, 0), Sample(20, 0), Sample(21, 10)]
    assert rates_of(sums[:1]) == []
