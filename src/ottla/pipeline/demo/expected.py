"""The same figures straight from the files, by another engine: DuckDB.

It shares no code with Spark, so that an error in the log, in the source, in the job or in Spark shows as a difference.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from ottla.pipeline.demo import dataset
from ottla.pipeline.demo.plot import HourlyDelay

Rows = dict[str, dict[str, Any]]
"""By key."""

_FIGURES: Final = ("flights", "late", "in_the_wet", "dep_delay_minutes", "arr_delay_minutes", "worst_minutes")

_FLOWN: Final = """
    CREATE VIEW flown AS
    SELECT f.*, strftime(f.time_hour AT TIME ZONE 'UTC' + to_minutes(f.minute) - INTERVAL 5 HOUR, '%Y-%m-%d') AS date,
        w.precip, w.origin IS NOT NULL AS has_weather
    FROM flights f LEFT JOIN weather w USING (origin, time_hour)
    WHERE f.dep_time IS NOT NULL AND NOT f.spoilt {conditions}
"""
_DELAYS: Final = """
    SELECT concat_ws('/', date, carrier, origin) AS key, date, carrier, origin, airlines.name AS airline,
        airports.name AS origin_airport, count(*) AS flights, count(*) FILTER (WHERE arr_delay >= 15) AS late,
        count(*) FILTER (WHERE precip > 0) AS in_the_wet, sum(dep_delay) AS dep_delay_minutes,
        sum(arr_delay) AS arr_delay_minutes,
        max(arr_delay) AS worst_minutes
    FROM flown JOIN airlines USING (carrier) JOIN airports ON faa = origin
    GROUP BY ALL
"""
_HOURS: Final = """
    SELECT hour, coalesce(precip > 0, false) AS wet, count(*) AS flights, sum(dep_delay) AS minutes
    FROM flown GROUP BY ALL
"""
_HISTORY: Final = """
    SELECT count(*) AS flights, sum(distance) AS miles, sum(arr_delay) AS minutes_of_delay,
        count(airlines.name) AS named, count(p.tailnum) AS planes,
        count(a.faa) AS known_destinations, round(sum(precip), 2) AS rain
    FROM flown LEFT JOIN airlines USING (carrier) LEFT JOIN planes p USING (tailnum)
        LEFT JOIN airports a ON dest = a.faa
"""
_WRITTEN: Final = """
    SELECT count(*) AS flights, sum(distance) AS miles, sum(arr_delay) AS minutes_of_delay,
        count(airline) AS named, count(manufacturer) AS planes,
        count(*) FILTER (WHERE dest <> dest_airport) AS known_destinations, round(sum(precip), 2) AS rain
    FROM read_parquet(?)
"""


@dataclass(frozen=True, slots=True)
class Only:
    """Which flights a run is for; None: all."""

    carrier: str | None = None
    dest: str | None = None
    month: int | None = None

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.columns().items()) or "all flights"

    def columns(self) -> dict[str, str]:
        """The selection, by the names of the columns, which are those of the job's parameters."""
        wanted = {"carrier": self.carrier, "dest": self.dest, "month": self.month}
        return {name: str(value) for name, value in wanted.items() if value is not None}

    def arguments(self) -> str:
        """As options of the command line."""
        return " ".join(f"--{name} {value}" for name, value in self.columns().items())


class Expected:
    """What the job must come to for these flights; every method asks DuckDB."""

    def __init__(self, flights: pa.Table, only: Only | None = None) -> None:
        """`flights` as `dataset.read_flights` gives them, before any were spoilt."""
        self._engine = duckdb.connect()
        faults = [dataset.fault(number) for number in range(flights.num_rows)]
        self.rejected = Counter(fault for fault in faults if fault is not None)
        spoilt = pa.array([fault is not None for fault in faults])
        tables = {name: dataset.read_reference(name) for name in ("airlines", "airports", "planes", "weather")}
        for name, table in (tables | {"flights": flights.append_column("spoilt", spoilt)}).items():
            self._engine.register(name, table)
        wanted = (only or Only()).columns().items()
        self._engine.execute(_FLOWN.format(conditions=" ".join(f"AND f.{name} = '{value}'" for name, value in wanted)))

    def totals(self) -> dict[str, int]:
        """Totals of all departed flights: flights, late ones, minutes of delay on arrival, and those with weather
        data."""
        return self._one(
            "SELECT count(*) AS flights, count(*) FILTER (WHERE arr_delay >= 15) AS late, "
            "sum(arr_delay) AS arr_delay_minutes, count(*) FILTER (WHERE has_weather) AS with_weather FROM flown"
        )

    def delays(self) -> Rows:
        """By day, carrier and airport of departure; keys as in the topic: `2013-02-08/UA/EWR`."""
        return {row.pop("key"): row for row in self._all(_DELAYS)}

    def hours(self) -> list[HourlyDelay]:
        return sorted(HourlyDelay(**row) for row in self._all(_HOURS))

    def alerts(self, minutes: int) -> int:
        """Flights that departed so late or later."""
        found: int = self._one("SELECT count(*) AS alerts FROM flown WHERE dep_delay >= ?", minutes)["alerts"]
        return found

    def compare_history(self, directory: Path) -> list[str]:
        """What of the Parquet files, read without Spark, is not as it should be, in words."""
        written = self._one(_WRITTEN, f"{directory}/**/*.parquet")
        wanted = self._one(_HISTORY)
        return [
            f"Parquet: {name} is {written[name]:,}, should be {value:,}"
            for name, value in wanted.items()
            if written[name] != value
        ]

    def _one(self, query: str, *arguments: object) -> dict[str, Any]:
        (row,) = self._all(query, *arguments)
        return row

    def _all(self, query: str, *arguments: object) -> list[dict[str, Any]]:
        found = self._engine.execute(query, arguments)
        names = [column[0] for column in found.description or ()]
        return [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in found.fetchall()]


def compare_delays(expected: Rows, found: Rows) -> list[str]:
    """What differs, in words; empty if nothing does."""
    differences = [f"{key}: missing" for key in sorted(expected.keys() - found.keys())]
    differences += [f"{key}: unexpected" for key in sorted(found.keys() - expected.keys())]
    for key in sorted(expected.keys() & found.keys()):
        differences += [
            f"{key}: {name} is {found[key].get(name)!r}, should be {value!r}"
            for name, value in expected[key].items()
            if found[key].get(name) != value
        ]
    return differences


def compare_counts(what: str, expected: Mapping[Any, int], found: Iterable[Any]) -> list[str]:
    """The same for things that are counted by kind."""
    counted = Counter(found)
    return [
        f"{what}: {counted[kind]:,} of {kind!r}, should be {expected.get(kind, 0):,}"
        for kind in sorted(expected.keys() | counted.keys(), key=repr)
        if counted[kind] != expected.get(kind, 0)
    ]


def totals(rows: Rows) -> dict[str, int]:
    """Sums over all windows."""
    return {name: sum(row[name] or 0 for row in rows.values()) for name in _FIGURES[:-1]}


def _plain(value: Any) -> Any:
    """DuckDB sums whole numbers to decimals where they might grow large."""
    return (
        int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value) else value
    )
