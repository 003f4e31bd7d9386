"""The job: from flights in a topic to delays by day, airline and airport. A streaming query reads as a table does.

    flights ──▶ decode ──▶ flown ──▶ enrich ──┬──▶ history ──▶ Parquet, one row per flight
                                     ▲        └──▶ delays ───▶ topic, one record per day, airline and airport
      airlines, airports, planes ────┘

Everything is made of Spark's own functions: no Python runs per row.
"""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it
from pyspark.sql.streaming.query import StreamingQuery

FLIGHT = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT,
    arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT,
    hour INT, minute INT, time_hour TIMESTAMP
"""
AIRLINE = "carrier STRING, name STRING"
AIRPORT = "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING"
PLANE = """
    tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, speed INT,
    engine STRING
"""

LATE_FROM_MINUTES = 15  # as the US Department of Transportation counts
MIDNIGHT_IN_NEW_YORK = "5 hours"  # past midnight UTC, where windows begin unless told otherwise
STRAGGLERS = "30 days"  # how far behind the newest departure a flight may arrive in the log and still be counted


@dataclass(frozen=True, slots=True)
class Topics:
    flights: str = "flights"
    airlines: str = "airlines"
    airports: str = "airports"
    planes: str = "planes"
    delays: str = "flight-delays"


@dataclass(frozen=True, slots=True)
class Job:
    """Where the job reads and writes. `directory` holds its checkpoints and, for `history`, its Parquet files."""

    bootstrap: str
    topics: Topics
    directory: Path
    max_offsets_per_trigger: int = 40_000


def start(spark: SparkSession, job: Job) -> list[StreamingQuery]:
    """Start the whole job: it takes in what the topic holds now, in several micro-batches, and stops."""
    flights = enriched_flights(spark, job)
    return [start_history(flights, job), start_delays(flights, job)]


def replay(spark: SparkSession, job: Job, only: Column) -> list[StreamingQuery]:
    """Start it again from the beginning of the log, for some of the flights."""
    return [start_delays(enriched_flights(spark, job).where(only), job)]


# -- steps: DataFrame in, DataFrame out ------------------------------------------------------------


def decode(records: DataFrame, schema: str) -> DataFrame:
    """The JSON of `value` as columns."""
    return records.select(F.from_json(F.col("value").cast("string"), schema).alias("row")).select("row.*")


def flown(flights: DataFrame) -> DataFrame:
    """Without the cancelled: those never departed. Adds `scheduled`, the event time."""
    scheduled = F.col("time_hour") + F.make_dt_interval(mins=F.col("minute"))
    return flights.where(F.col("dep_time").isNotNull()).withColumn("scheduled", scheduled)


def enrich(flights: DataFrame, airlines: DataFrame, airports: DataFrame, planes: DataFrame) -> DataFrame:
    """With names for codes. What a reference table does not know keeps its code (four airports) or stays null."""
    airline = airlines.select("carrier", F.col("name").alias("airline"))
    origin = airports.select(F.col("faa").alias("origin"), F.col("name").alias("origin_airport"))
    destination = airports.select(F.col("faa").alias("dest"), F.col("name").alias("dest_airport"))
    plane = planes.select("tailnum", "manufacturer", "model", "seats")
    return (
        flights.join(F.broadcast(airline), "carrier", "left")
        .join(F.broadcast(origin), "origin", "left")
        .join(F.broadcast(destination), "dest", "left")
        .join(F.broadcast(plane), "tailnum", "left")
        .withColumn("airline", F.coalesce("airline", "carrier"))
        .withColumn("origin_airport", F.coalesce("origin_airport", "origin"))
        .withColumn("dest_airport", F.coalesce("dest_airport", "dest"))
    )


def delays(flights: DataFrame) -> DataFrame:
    """Flights and their delays by day of scheduled departure, airline and airport of departure."""
    is_late = F.col("arr_delay") >= LATE_FROM_MINUTES
    return (
        flights.withWatermark("scheduled", STRAGGLERS)
        .groupBy(
            F.window("scheduled", "1 day", startTime=MIDNIGHT_IN_NEW_YORK).alias("window"),
            "carrier",
            "airline",
            "origin",
            "origin_airport",
        )
        .agg(
            F.count("*").alias("flights"),
            F.count_if(is_late).alias("late"),
            F.sum("dep_delay").alias("dep_delay_minutes"),
            F.sum("arr_delay").alias("arr_delay_minutes"),
            F.max("arr_delay").alias("worst_minutes"),
        )
        .select(F.date_format("window.start", "yyyy-MM-dd").alias("day"), "*")
        .drop("window")
    )


def as_records(results: DataFrame, *key: str) -> DataFrame:
    """Rows as records: the key says which row this is, so that a newer one replaces it in a compacted topic."""
    return results.select(
        F.concat_ws("/", *key).alias("key"),
        F.to_json(F.struct(*results.columns), {"ignoreNullFields": "false"}).alias("value"),
    )


# -- edges: topics and files -----------------------------------------------------------------------


def enriched_flights(spark: SparkSession, job: Job) -> DataFrame:
    """The stream of flown flights with names, from the beginning of the log."""
    records = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.topics.flights)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.max_offsets_per_trigger)
        .load()
    )
    return enrich(
        flown(decode(records, FLIGHT)),
        reference(spark, job, job.topics.airlines, AIRLINE),
        reference(spark, job, job.topics.airports, AIRPORT),
        reference(spark, job, job.topics.planes, PLANE),
    )


def reference(spark: SparkSession, job: Job, topic: str, schema: str) -> DataFrame:
    """A small table that lives in a topic, read once and kept in memory."""
    records = (
        spark.read.format("ottla").option("kafka.bootstrap.servers", job.bootstrap).option("subscribe", topic).load()
    )
    return decode(records, schema).cache()


def start_history(flights: DataFrame, job: Job) -> StreamingQuery:
    """Every flight as a row of Parquet, once: Spark's file sink keeps a list of the files that count."""
    return (
        flights.writeStream.queryName("history")
        .format("parquet")
        .option("path", str(job.directory / "history"))
        .option("checkpointLocation", str(job.directory / "checkpoints" / "history"))
        .trigger(availableNow=True)
        .start()
    )


def start_delays(flights: DataFrame, job: Job) -> StreamingQuery:
    """The windows that changed in a micro-batch go to the topic, keyed, so that the newest of each key is true.

    A batch that Spark repeats after a crash writes the same records again, which changes nothing for who reads by key.
    `foreachBatch`, because Spark lets a Python sink append only, not update.
    """

    def publish(changed: DataFrame, _batch_id: int) -> None:
        (
            as_records(changed, "day", "carrier", "origin")
            .write.format("ottla")
            .option("kafka.bootstrap.servers", job.bootstrap)
            .option("topic", job.topics.delays)
            .mode("append")
            .save()
        )

    return (
        delays(flights)
        .writeStream.queryName("delays")
        .outputMode("update")
        .foreachBatch(publish)
        .option("checkpointLocation", str(job.directory / "checkpoints" / "delays"))
        .trigger(availableNow=True)
        .start()
    )
