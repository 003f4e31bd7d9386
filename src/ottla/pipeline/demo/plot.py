"""Delays by hour of the day, as a picture and as lines of text."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_DRY: Final = "#e08e0b"
_WET: Final = "#1f6fb2"


class HourlyDelay(NamedTuple):
    """What departed in one hour of the day (local time, as scheduled), in one kind of weather.

    `minutes` of delay at departure, summed up; early departures count below zero.
    """

    hour: int
    wet: bool
    flights: int
    minutes: int


def draw(rows: Sequence[HourlyDelay], path: Path, *, year: int) -> None:
    """Write the picture as SVG, atomically: readers of the file see the old one or the new one.

    Hours with fewer than 50 flights are left out: their average means little.
    """
    import matplotlib as mpl

    mpl.use("svg")  # needs no display
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    with plt.rc_context(
        {"font.size": 10, "svg.hashsalt": "ottla", "axes.spines.top": False, "axes.spines.right": False}
    ):
        figure, (delays, flights) = plt.subplots(
            2, 1, figsize=(9, 6), sharex=True, gridspec_kw={"height_ratios": (3, 1)}, layout="constrained"
        )
        for wet, colour, label in ((False, _DRY, "dry"), (True, _WET, "rain or snow")):
            line = averages(rows, wet=wet, at_least=50)
            delays.plot(
                list(line), list(line.values()), color=colour, marker="o", markersize=4, linewidth=2, label=label
            )
        delays.axhline(0, color="0.7", linewidth=0.8)
        delays.set_ylabel("average delay, minutes")
        delays.legend(frameon=False, loc="upper left")
        delays.set_title(f"Departures from New York, {year}: delays by hour", loc="left", fontweight="bold")
        totals = flights_by_hour(rows)
        flights.bar(list(totals), list(totals.values()), color="0.75")
        flights.set_ylabel("flights")
        flights.set_xlabel("scheduled hour, local time")
        flights.xaxis.set_major_locator(MaxNLocator(integer=True))
        beside = path.with_suffix(".part")
        figure.savefig(beside, format="svg", metadata={"Date": None})
        plt.close(figure)
    os.replace(beside, path)


def keep(rows: Sequence[HourlyDelay], path: Path) -> None:
    """Write the figures behind the picture as JSON, in one step."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps([row._asdict() for row in sorted(rows)], indent=1))
    os.replace(beside, path)


def kept(path: Path) -> list[HourlyDelay]:
    """What `keep` has written, by hour."""
    return [HourlyDelay(**row) for row in json.loads(path.read_text())]


def averages(rows: Iterable[HourlyDelay], *, wet: bool, at_least: int = 1) -> dict[int, float]:
    """Minutes of delay per flight, by hour, where there were so many flights."""
    chosen = sorted(row for row in rows if row.wet is wet and row.flights >= at_least)
    return {row.hour: row.minutes / row.flights for row in chosen}


def flights_by_hour(rows: Iterable[HourlyDelay]) -> dict[int, int]:
    """Flights in any weather, by hour."""
    totals: dict[int, int] = {}
    for row in sorted(rows):
        totals[row.hour] = totals.get(row.hour, 0) + row.flights
    return totals


def as_lines(rows: Sequence[HourlyDelay], *, width: int = 40) -> list[str]:
    """The same for a terminal: a bar per hour in dry (░) and in wet (█) weather, `width` characters at most."""
    dry, wet = (averages(rows, wet=weather, at_least=50) for weather in (False, True))
    longest = max([*dry.values(), *wet.values(), 1.0])
    lines = [f"{'hour':>5}  average delay at departure, minutes:  ░ dry  █ rain or snow"]
    for hour in sorted(dry.keys() | wet.keys()):
        for name, bar, line in ((f"{hour:02}:00", "░", dry), ("", "█", wet)):
            if hour in line:
                length = round(max(line[hour], 0.0) / longest * width)
                lines.append(f"{name:>5}  {bar * length} {line[hour]:.0f}")
    return lines
