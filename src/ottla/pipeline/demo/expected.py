"""The same figures straight from the files, by another engine: Arrow's own compute kernels (C++).

Arrow is there anyway, as the format in which Spark and Python exchange rows; it shares no code with Spark's engine, so
that an error in the log, in the source, in the job or in Spark shows as a difference.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset

from ottla.pipeline.demo.dataset import read_reference

LATE_FROM_MINUTES: Final = 15
_NEW_YORK: Final = timedelta(hours=5)
_FIGURES: Final = ("flights", "late", "dep_delay_minutes", "arr_delay_minutes", "worst_minutes")


@dataclass(frozen=True, slots=True)
class Only:
    """Which flights a replay is for; None: all."""

    carrier: str | None = None
    dest: str | None = None
    month: int | None = None

    def __str__(self) -> str:
        parts = [f"{name} {value}" for name, value in self.columns().items()]
        return ", ".join(parts) or "all flights"

    def columns(self) -> dict[str, str | int]:
        wanted = {"carrier": self.carrier, "dest": self.dest, "month": self.month}
        return {name: value for name, value in wanted.items() if value is not None}

    def arguments(self) -> str:
        """As options of the command line."""
        return " ".join(f"--{name} {value}" for name, value in self.columns().items())


def flown(flights: pa.Table, only: Only | None = None) -> pa.Table:
    """Flights that departed."""
    keep = pc.is_valid(flights["dep_time"])
    for column, value in (only or Only()).columns().items():
        keep = pc.and_(keep, pc.equal(flights[column], value))
    return flights.filter(keep)


def delays(flights: pa.Table) -> dict[str, dict[str, Any]]:
    """Delays by day, carrier and airport of departure; keys as in the topic: `2013-02-08/UA/EWR`."""
    minutes = pc.cast(pc.multiply(flights["minute"], 60), pa.duration("s"))
    local = pc.subtract(pc.add(flights["time_hour"], minutes), pa.scalar(_NEW_YORK, pa.duration("s")))
    late = pc.fill_null(pc.greater_equal(flights["arr_delay"], LATE_FROM_MINUTES), False)
    grouped = (
        flights.append_column("day_", pc.strftime(local, format="%Y-%m-%d"))
        .append_column("late", pc.cast(late, pa.int64()))
        .group_by(["day_", "carrier", "origin"])
        .aggregate(
            [([], "count_all"), ("late", "sum"), ("dep_delay", "sum"), ("arr_delay", "sum"), ("arr_delay", "max")]
        )
    )
    columns = ("count_all", "late_sum", "dep_delay_sum", "arr_delay_sum", "arr_delay_max")
    return {
        f"{row['day_']}/{row['carrier']}/{row['origin']}": dict(
            zip(_FIGURES, (row[column] for column in columns), strict=True)
        )
        for row in grouped.to_pylist()
    }


def compare_delays(expected: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]]) -> list[str]:
    """What differs, in words; empty if nothing does. Names are checked against the reference files too."""
    airlines = dict(zip(*(read_reference("airlines")[name].to_pylist() for name in ("carrier", "name")), strict=True))
    airports = dict(zip(*(read_reference("airports")[name].to_pylist() for name in ("faa", "name")), strict=True))
    differences = [f"{key}: missing" for key in sorted(expected.keys() - found.keys())]
    differences += [f"{key}: unexpected" for key in sorted(found.keys() - expected.keys())]
    for key in sorted(expected.keys() & found.keys()):
        day, carrier, origin = key.split("/")
        wanted = expected[key] | {
            "day": day,
            "carrier": carrier,
            "origin": origin,
            "airline": airlines[carrier],
            "origin_airport": airports[origin],
        }
        differences += [
            f"{key}: {name} is {found[key].get(name)!r}, should be {value!r}"
            for name, value in wanted.items()
            if found[key].get(name) != value
        ]
    return differences


def compare_history(flights: pa.Table, directory: Path) -> list[str]:
    """Compare the Parquet files, read without Spark, with the flights that should be in them."""
    written = dataset.dataset(directory, format="parquet").to_table()
    planes = pa.compute.is_in(flights["tailnum"], value_set=read_reference("planes")["tailnum"])
    airports = pa.compute.is_in(flights["dest"], value_set=read_reference("airports")["faa"])
    pairs = {
        "flights": (flights.num_rows, written.num_rows),
        "miles": (pc.sum(flights["distance"]).as_py(), pc.sum(written["distance"]).as_py()),
        "minutes of delay on arrival": (pc.sum(flights["arr_delay"]).as_py(), pc.sum(written["arr_delay"]).as_py()),
        "flights of a known plane": (pc.sum(planes).as_py(), pc.count(written["manufacturer"]).as_py()),
        "flights to a known airport": (
            pc.sum(airports).as_py(),
            pc.sum(pc.not_equal(written["dest"], written["dest_airport"])).as_py(),
        ),
        "flights of a known airline": (flights.num_rows, pc.count(written["airline"]).as_py()),
    }
    return [f"Parquet: {what} {is_:,}, should be {should:,}" for what, (should, is_) in pairs.items() if should != is_]


def totals(rows: dict[str, dict[str, Any]]) -> dict[str, int]:
    """Sums over all windows."""
    return {name: sum(row[name] or 0 for row in rows.values()) for name in _FIGURES[:-1]}
