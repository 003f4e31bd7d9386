"""The functions of the flights job, over a few rows; the job as a whole is what `test_demo.py` runs and checks."""

from collections.abc import Mapping
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla.pipeline.demo import flights as flights_job
from ottla.pipeline.queries import Planned


def rows(spark: SparkSession, schema: str, *given: Mapping[str, Any]) -> DataFrame:
    """Rows of a schema, null where nothing is given; times as text."""
    types = cast(StructType, StructType.fromDDL(schema))
    names = types.fieldNames()
    text = cast(StructType, StructType.fromDDL(", ".join(f"{name} STRING" for name in names)))
    values = [[None if row.get(name) is None else str(row[name]) for name in names] for row in given]
    frame = spark.createDataFrame(values, text)
    return frame.select(*(F.col(each.name).cast(each.dataType) for each in types))


def enriched(spark: SparkSession, *flights: Mapping[str, Any], weather: list[Mapping[str, Any]]) -> list[Any]:
    made = flights_job.enriched(
        rows(spark, flights_job.FLIGHT, *flights),
        rows(spark, flights_job.WEATHER, *weather),
        rows(spark, flights_job.AIRLINE, {"carrier": "UA", "name": "United"}),
        rows(spark, flights_job.AIRPORT, {"faa": "JFK", "name": "Kennedy"}, {"faa": "ORD", "name": "O'Hare"}),
        rows(spark, flights_job.PLANE, {"tailnum": "N2", "manufacturer": "BOEING", "model": "737", "seats": 149}),
    )
    assert isinstance(made, DataFrame)
    return made.orderBy("flight").collect()


def test_what_no_table_knows_keeps_its_code_and_what_met_no_weather_stays(spark: SparkSession) -> None:
    at = {"time_hour": "2013-02-08T14:00:00Z", "minute": 35, "origin": "JFK", "dep_time": 940}
    found = enriched(
        spark,
        {**at, "flight": 1, "carrier": "XX", "dest": "SJU", "tailnum": "N1"},
        {**at, "flight": 2, "carrier": "UA", "dest": "ORD", "tailnum": "N2"},
        {**at, "flight": 3, "carrier": "UA", "dest": "ORD", "tailnum": None, "time_hour": "2013-02-08T15:00:00Z"},
        {**at, "flight": 4, "carrier": "UA", "dest": "ORD", "dep_time": None},  # cancelled
        weather=[
            {"origin": "JFK", "time_hour": "2013-02-08T14:00:00Z", "precip": 0.2},
            {"origin": "LGA", "time_hour": "2013-02-08T15:00:00Z", "precip": 0.4},
        ],
    )
    assert [(row.flight, row.airline, row.dest_airport, row.seats, row.precip) for row in found] == [
        (1, "XX", "SJU", None, 0.2),
        (2, "United", "O'Hare", 149, 0.2),
        (3, "United", "O'Hare", None, None),
    ]
    assert {f"{row.scheduled:%H:%M}" for row in found} == {"14:35", "15:35"}


def test_days_begin_at_midnight_in_new_york(spark: SparkSession) -> None:
    flight = {"carrier": "UA", "airline": "United", "origin": "JFK", "origin_airport": "Kennedy"}
    flights = rows(
        spark,
        flights_job.ENRICHED,
        {**flight, "scheduled": "2013-02-09T04:59:00Z", "arr_delay": 14, "dep_delay": 20},  # 23:59 on the 8th
        {**flight, "scheduled": "2013-02-09T05:00:00Z", "arr_delay": 15, "dep_delay": 30, "precip": 0.1},
        {**flight, "scheduled": "2013-02-10T04:59:00Z", "dep_delay": 0, "precip": 0},  # diverted: never arrived
    )
    made = flights_job.delays(flights)
    assert isinstance(made, DataFrame)
    figures = [
        (row.date, row.flights, row.late, row.in_the_wet, row.dep_delay_minutes, row.arr_delay_minutes)
        for row in made.orderBy("date").collect()
    ]
    assert figures == [("2013-02-08", 1, 0, 0, 20, 14), ("2013-02-09", 2, 1, 1, 30, 15)]


def test_hours_are_told_apart_by_their_weather(spark: SparkSession) -> None:
    flights = rows(
        spark,
        flights_job.ENRICHED,
        {"hour": 6, "precip": 0.1, "dep_delay": 30},
        {"hour": 6, "precip": 0, "dep_delay": -2},
        {"hour": 6, "dep_delay": 5},  # nobody knows
    )
    made = flights_job.hours(flights)
    assert isinstance(made, DataFrame)
    assert {(row.hour, row.wet, row.flights, row.minutes) for row in made.collect()} == {
        (6, True, 1, 30),
        (6, False, 2, 3),
    }
    alerts = flights_job.alerts(rows(spark, flights_job.ENRICHED, {"dep_delay": 179}, {"dep_delay": 180}))
    assert isinstance(alerts, DataFrame)
    assert alerts.count() == 1


def test_what_has_a_watermark_does_not_follow_what_is_still_being_written(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load()
    nowhere: Any = None

    def may_follow(rows: DataFrame) -> bool:
        return Planned("flow", rows, nowhere, "append", "1 second", ()).may_follow

    counted = rows.groupBy("value").count()
    late = rows.withWatermark("timestamp", "1 day").groupBy("timestamp").count().where("count > 0")
    assert (may_follow(rows), may_follow(counted), may_follow(late)) == (True, True, False)
