"""Figures over time: bounded, and sampled only for what was looked at lately."""

import asyncio

from ottla.client.partition import Partition
from ottla.console.trends import FOLLOWED_S, Series, Trend, Trends

ONE, TWO = Partition("t", 0), Partition("t", 1)


def test_older_samples_become_rarer_and_the_first_stays() -> None:
    series = Series(most=10)
    for at in range(1000):
        series.add(at, at)
    assert len(series.samples) <= 10
    assert series.samples[0].at == 0
    assert series.samples[-1].at == 999


def test_a_clock_that_went_back_adds_nothing() -> None:
    series = Series()
    series.add(2, 1)
    series.add(1, 1)
    assert len(series.samples) == 1


def test_lag_in_seconds_is_since_the_end_was_where_the_group_is() -> None:
    trend = Trend()
    trend.add({ONE: 100, TWO: 5}, {ONE: 100, TWO: 5}, 10)
    trend.add({ONE: 100, TWO: 5}, {ONE: 130, TWO: 5}, 20)
    trend.add({ONE: 100}, {ONE: 160, TWO: 5}, 30)
    assert trend.lag == (60, 20, False)
    assert [each.value for each in trend.records.samples] == [0, 30, 60]
    assert [each.value for each in trend.seconds.samples] == [0, 10, 20]


def test_what_waited_before_is_older_than_is_known() -> None:
    trend = Trend()
    trend.add({ONE: 50}, {ONE: 100}, 10)
    assert trend.lag is not None
    assert trend.lag.at_least


def test_a_group_of_very_many_partitions_has_its_lag_in_records_only() -> None:
    trend = Trend()
    partitions = [Partition("t", number) for number in range(3_000)]
    trend.add(dict.fromkeys(partitions, 1), dict.fromkeys(partitions, 3), 10)
    assert trend.records.samples[-1].value == 6_000
    assert trend.lag is None


def test_what_nobody_has_looked_at_is_not_kept() -> None:
    trends = Trends()
    trends.of("a").records.add(1, 1)
    assert trends.of("a").records.samples == []


def test_what_was_looked_at_is_sampled_for_an_hour_and_only_the_latest_few() -> None:
    asyncio.run(_follow())


async def _follow() -> None:
    now = 0.0
    asked: list[str] = []
    enough = asyncio.Event()
    trends = Trends(clock=lambda: now, every_s=0.001, most=2)

    async def ask(name: str) -> None:
        asked.append(name)
        if asked.count("c") == 3:
            enough.set()
        if name == "b":
            raise OSError("it does not answer")

    for name in ("a", "b", "c"):
        trends.follow(name, lambda name=name: ask(name))  # type: ignore[misc]
    trends.of("c").records.add(1, 1)
    await asyncio.wait_for(enough.wait(), 10)
    assert set(asked) == {"b", "c"}
    assert trends.of("c").records.samples
    now = FOLLOWED_S
    assert trends._task is not None
    await asyncio.wait_for(trends._task, 10)
    assert trends.of("c").records.samples == []
    trends.follow("d", lambda: ask("d"))
    trends.close()
