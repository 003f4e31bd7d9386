"""The flights job: a file like any other job's, run by `ottla pipeline run` or, with its input, by `ottla demo`.

    flights ──▶ decode, check ──┬──▶ flown ──┐
                                └──▶ flight-dead-letters
    weather ──▶ decode ──────────────────────┼──▶ join by airport and hour ──▶ flights-enriched
    airlines, airports, planes ──────────────┘

    flights-enriched ──┬──▶ history         Parquet, one row per flight
                       ├──▶ flight-delays   one record per day, airline and airport
                       ├──▶ flight-alerts   what was three hours late or more, and the weather it met
                       └──▶ delays.svg      the plot: delays by hour of the day, in dry and in wet weather

Everything is made of Spark's own functions: no Python runs per row.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.pipeline import Job, table, topic
from ottla.pipeline.context import RunContext
from ottla.pipeline.demo import plot
from ottla.pipeline.demo.dataset import CLOSING_CARRIER
from ottla.pipeline.demo.plot import HourlyDelay
from ottla.pipeline.rows import Checked, from_json
from ottla.pipeline.sinks import each_batch, parquet
from ottla.pipeline.sinks.batches import MicroBatch

FLIGHT = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT,
    arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT,
    hour INT, minute INT, time_hour TIMESTAMP
"""
WEATHER = """
    origin STRING, time_hour TIMESTAMP, temp DOUBLE, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, visib DOUBLE
"""
AIRLINE = "carrier STRING, name STRING"
AIRPORT = "faa STRING, name STRING"
PLANE = "tailnum STRING, manufacturer STRING, model STRING, seats INT"
ENRICHED = """
    year INT, month INT, day INT, hour INT, scheduled TIMESTAMP, carrier STRING, flight INT, tailnum STRING,
    origin STRING, dest STRING, dep_delay INT, arr_delay INT, distance INT, airline STRING, origin_airport STRING,
    dest_airport STRING, manufacturer STRING, model STRING, seats INT, temp DOUBLE, wind_speed DOUBLE,
    wind_gust DOUBLE, precip DOUBLE, visib DOUBLE
"""

LATE_FROM_MINUTES = 15  # as the US Department of Transportation counts
ALERT_FROM_MINUTES = 180
WATERMARK_DELAY = "30 days"  # how late a flight may arrive in the log and still meet its weather
STRAGGLERS = "400 days"  # and still be counted: when a year is replayed, a micro-batch spans months of it
FIRST_BATCH, ROWS_PER_BATCH = 4_000, 80_000  # small at first, so that results come soon
PLOT, FIGURES = "delays.svg", "delays.json"

job = Job("flights", on_failure="stop")
prefix = job.param("prefix", default="")
"""Prefix of all topic names, for brokers shared with others."""
job.dead_letters = topic(f"{prefix}flight-dead-letters")
only = {name: job.param(name, default="") for name in ("carrier", "dest", "month")}
"""The flights of the run, such as `--param dest=ORD`; all by default."""
history_path = job.param("history", default="flights-history")
"""The directory of the Parquet files; a relative one lies beside this file."""


# -- views: records become rows --------------------------------------------------------------------


@job.view(records=topic(f"{prefix}flights", firstOffsetsPerTrigger=FIRST_BATCH, maxOffsetsPerTrigger=ROWS_PER_BATCH))
def flights(records: DataFrame) -> Checked:
    """Every flight that makes sense. The others go to the dead letters, with the reason."""
    return from_json(records, FLIGHT).check("has a carrier", F.col("carrier").isNotNull())


@job.view(records=topic(f"{prefix}weather", firstOffsetsPerTrigger=FIRST_BATCH, maxOffsetsPerTrigger=ROWS_PER_BATCH))
def weather(records: DataFrame) -> Checked:
    return from_json(records, WEATHER)


@job.view(
    records=topic(f"{prefix}flights-enriched", firstOffsetsPerTrigger=FIRST_BATCH, maxOffsetsPerTrigger=ROWS_PER_BATCH)
)
def enriched_flights(records: DataFrame) -> DataFrame:
    return from_json(records, ENRICHED).rows  # this job's own writing: nothing in it is rejected


# -- flows: rows go somewhere ----------------------------------------------------------------------


@job.flow(
    flights=flights,
    weather=weather,
    airlines=table(f"{prefix}airlines", key="carrier", schema=AIRLINE),
    airports=table(f"{prefix}airports", key="faa", schema=AIRPORT),
    planes=table(f"{prefix}planes", key="tailnum", schema=PLANE),
    to=topic(f"{prefix}flights-enriched", key=("carrier", "flight")),
)
def enriched(
    flights: DataFrame, weather: DataFrame, airlines: DataFrame, airports: DataFrame, planes: DataFrame
) -> DataFrame:
    """Flights that departed, with names for codes and the weather of their hour.

    A flight of an hour without weather is written when the watermark has passed it: until then its weather may come.
    """
    scheduled = F.col("time_hour") + F.make_dt_interval(mins=F.col("minute"))
    flown = flights.where("dep_time IS NOT NULL").withColumn("scheduled", scheduled)
    for name, wanted in only.items():
        if wanted:
            # without the closing record the watermark would stay behind, and flights wait for their weather for ever
            flown = flown.where((F.col(name) == wanted) | (F.col("carrier") == CLOSING_CARRIER))
    named = (
        flown.join(F.broadcast(airlines.select("carrier", F.col("name").alias("airline"))), "carrier", "left")
        .join(
            F.broadcast(airports.select(F.col("faa").alias("origin"), F.col("name").alias("_from"))), "origin", "left"
        )
        .join(F.broadcast(airports.select(F.col("faa").alias("dest"), F.col("name").alias("_to"))), "dest", "left")
        .join(F.broadcast(planes), "tailnum", "left")
        .withColumn("airline", F.coalesce("airline", "carrier"))
        .withColumn("origin_airport", F.coalesce("_from", "origin"))
        .withColumn("dest_airport", F.coalesce("_to", "dest"))  # four of them are in no list of airports
    )
    departed = named.withWatermark("time_hour", WATERMARK_DELAY)
    observed = weather.withWatermark("time_hour", WATERMARK_DELAY)
    columns = [column.split()[0] for column in ENRICHED.split(",")]
    return departed.join(observed, ["origin", "time_hour"], "left").select(*columns)


@job.flow(flights=enriched_flights, to=parquet(history_path))
def history(flights: DataFrame) -> DataFrame:
    """Every flight, for whatever reads Parquet."""
    return flights


@job.flow(
    flights=enriched_flights, to=topic(f"{prefix}flight-delays", key=("date", "carrier", "origin")), mode="update"
)
def delays(flights: DataFrame) -> DataFrame:
    """Flights and their delays by day, airline and airport of departure; each record replaces the one before it."""
    midnight_in_new_york = "5 hours"  # past midnight UTC, where windows begin by default
    return (
        flights.withWatermark("scheduled", STRAGGLERS)
        .groupBy(
            F.window("scheduled", "1 day", startTime=midnight_in_new_york).alias("window"),
            "carrier",
            "airline",
            "origin",
            "origin_airport",
        )
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("arr_delay") >= LATE_FROM_MINUTES).alias("late"),
            F.count_if(F.col("precip") > 0).alias("in_the_wet"),
            F.sum("dep_delay").alias("dep_delay_minutes"),
            F.sum("arr_delay").alias("arr_delay_minutes"),
            F.max("arr_delay").alias("worst_minutes"),
        )
        .select(F.date_format("window.start", "yyyy-MM-dd").alias("date"), "*")
        .drop("window")
    )


@job.flow(flights=enriched_flights, to=topic(f"{prefix}flight-alerts", key="carrier"))
def alerts(flights: DataFrame) -> DataFrame:
    """Flights that need attention."""
    return flights.where(F.col("dep_delay") >= ALERT_FROM_MINUTES).select(
        "carrier", "airline", "flight", "scheduled", "origin", "dest", "dep_delay", "wind_gust", "precip", "visib"
    )


def redraw(batch: MicroBatch, context: RunContext) -> None:
    """Draw the plot anew: in mode complete, each micro-batch has all hours."""
    rows = [HourlyDelay(**row.asDict()) for row in batch.rows.collect()]
    plot.keep(rows, context.home / FIGURES)
    plot.draw(rows, context.home / PLOT, year=2013)


@job.flow(flights=enriched_flights, to=each_batch(redraw, describe=f"plot {PLOT}"), mode="complete")
def hours(flights: DataFrame) -> DataFrame:
    """Flights and minutes of delay by hour of the day, in dry and in wet weather."""
    return flights.groupBy("hour", F.coalesce(F.col("precip") > 0, F.lit(False)).alias("wet")).agg(
        F.count("*").alias("flights"), F.sum("dep_delay").alias("minutes")
    )
