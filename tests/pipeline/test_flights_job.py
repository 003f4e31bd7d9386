from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone names it

from ottla.pipeline.demo import dataset, expected, flights_job, topics
from ottla.pipeline.demo.expected import Only
from ottla.pipeline.demo.flights_job import Job


def fill(bootstrap: str, names: flights_job.Topics, flights: pa.Table) -> None:
    topics.recreate(bootstrap, names)
    for name in ("airlines", "airports", "planes"):
        table = dataset.read_reference(name)
        records = dataset.as_json_records(table, table.column_names[0])
        topics.produce(bootstrap, getattr(names, name), records)
    topics.produce(bootstrap, names.flights, dataset.as_json_records(flights, "carrier"))


def run(spark: SparkSession, job: Job) -> None:
    for query in flights_job.start(spark, job):
        query.awaitTermination()


def test_two_runs_and_a_replay_give_the_figures_of_the_files(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    flights = dataset.read_flights(0.02)
    first, second = flights.slice(0, 4000), flights.slice(4000)
    names = topics.named("two-runs-")
    job = Job(bootstrap, names, tmp_path / "job", max_offsets_per_trigger=3000)

    fill(bootstrap, names, first)
    run(spark, job)
    topics.produce(bootstrap, names.flights, dataset.as_json_records(second, "carrier"))
    run(spark, job)

    flown = expected.flown(flights)
    found, updates = topics.newest_by_key(bootstrap, names.delays)
    assert expected.compare_delays(expected.delays(flown), found) == []
    assert expected.compare_history(flown, tmp_path / "job" / "history") == []
    assert 0 < flown.num_rows < flights.num_rows
    assert updates > len(found)  # windows that both runs touched

    again = Job(bootstrap, replace(names, delays="replayed-delays"), tmp_path / "replay")
    topics.recreate(bootstrap, again.topics, only=[again.topics.delays])
    for query in flights_job.replay(spark, again, F.col("dest") == "ORD"):
        query.awaitTermination()
    only = expected.flown(flights, Only(dest="ORD"))
    found, _ = topics.newest_by_key(bootstrap, again.topics.delays)
    assert expected.compare_delays(expected.delays(only), found) == []
    assert 0 < only.num_rows < flown.num_rows


def test_what_no_table_knows_keeps_its_code(spark: SparkSession) -> None:
    table = spark.createDataFrame
    flights = table(
        [("XX", "JFK", "SJU", "N1"), ("UA", "JFK", "ORD", None), ("UA", "JFK", "ORD", "N2")],
        "carrier STRING, origin STRING, dest STRING, tailnum STRING",
    )
    airlines = table([("UA", "United")], "carrier STRING, name STRING")
    airports = table([("JFK", "Kennedy"), ("ORD", "O'Hare")], "faa STRING, name STRING")
    planes = table([("N2", "BOEING", "737", 149)], "tailnum STRING, manufacturer STRING, model STRING, seats INT")

    rows = flights_job.enrich(flights, airlines, airports, planes).orderBy("airline", "seats").collect()

    assert [(row.airline, row.origin_airport, row.dest_airport, row.seats) for row in rows] == [
        ("United", "Kennedy", "O'Hare", None),
        ("United", "Kennedy", "O'Hare", 149),
        ("XX", "Kennedy", "SJU", None),
    ]


def test_days_begin_at_midnight_in_new_york(spark: SparkSession) -> None:
    flights = spark.createDataFrame(
        [
            ("2013-02-09T04:59:00Z", 14, 20),  # 23:59 on the 8th
            ("2013-02-09T05:00:00Z", 15, 30),
            ("2013-02-10T04:59:00Z", None, 0),  # diverted: never arrived at its airport
        ],
        "at STRING, arr_delay INT, dep_delay INT",
    ).select(
        F.to_timestamp("at").alias("scheduled"),
        "arr_delay",
        "dep_delay",
        *(F.lit("x").alias(name) for name in ("carrier", "airline", "origin", "origin_airport")),
    )

    rows = flights_job.delays(flights).orderBy("day").collect()

    figures = [(row.day, row.flights, row.late, row.dep_delay_minutes, row.arr_delay_minutes) for row in rows]
    assert figures == [("2013-02-08", 1, 0, 20, 14), ("2013-02-09", 2, 1, 30, 15)]
