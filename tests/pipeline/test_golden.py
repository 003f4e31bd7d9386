"""Golden tests of jobs: what comes out to the end of event time, and `ottla pipeline test` as a process."""

import json
import subprocess
import sys
import uuid
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

from ottla.cli.app import run
from ottla.cli.terminal import exits
from ottla.pipeline.golden import Line
from ottla.pipeline.golden_run import InputRecord, Trial
from ottla.pipeline.job_file import load_job

JOB = """
from pyspark.sql import DataFrame, functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.rows import checked
from ottla.pipeline.sinks import parquet

job = Job("delays-by-hour")


@job.view(flights=topic("flights"))
def clean(flights: DataFrame):
    row = F.from_json(F.col("value").cast("string"), "carrier STRING, at TIMESTAMP, delay INT")
    return checked(flights).with_columns(row=row).select("row.*").check("has carrier", F.col("carrier").isNotNull())


@job.flow(flights=clean, to=topic("delays", key=("carrier", "hour")))
def delays(flights: DataFrame) -> DataFrame:
    window = F.window("at", "1 hour").alias("hour")
    sums = flights.withWatermark("at", "10 minutes").groupBy(window, "carrier").agg(F.sum("delay").alias("delay"))
    hour = F.date_format("hour.start", "HH:mm").alias("hour")
    return sums.select("carrier", hour, "delay", F.col("hour.end").alias("end"))


@job.flow(delays=topic("delays"), to=topic("worst", key="day"))
def worst(delays: DataFrame) -> DataFrame:
    row = F.from_json(F.col("value").cast("string"), "delay INT, end TIMESTAMP")
    rows = delays.select(row.alias("row")).select("row.*").withWatermark("end", "1 hour")
    return rows.groupBy(F.window("end", "1 day").alias("day")).agg(F.max("delay").alias("delay")).select(
        F.date_format("day.start", "yyyy-MM-dd").alias("day"), "delay"
    )


@job.flow(flights=clean, to=topic("totals", key="carrier"), mode="update")
def totals(flights: DataFrame) -> DataFrame:
    return flights.groupBy("carrier").agg(F.sum("delay").alias("delay"))


@job.flow(flights=clean, to=parquet("/nowhere/history"))
def history(flights: DataFrame) -> DataFrame:
    return flights.where("delay > 5").select("carrier", "delay", F.lit(None).cast("string").alias("gate"))
"""

FLIGHTS = [
    {"carrier": "UA", "at": "2026-01-01T08:00:00Z", "delay": 3},
    {"carrier": "UA", "at": "2026-01-01T08:30:00Z", "delay": 30},
    {"carrier": "AA", "at": "2026-01-01T10:30:00Z", "delay": 7},
    {"carrier": None, "at": "2026-01-01T10:40:00Z", "delay": 1},
]


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "delays.py"
    file.write_text(JOB)
    return file


def lines(found: list[Line]) -> list[str]:
    return sorted(json.dumps(line) for line in found)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_everything_comes_out_also_what_waits_for_later_rows(
    spark: SparkSession, bootstrap: str, job_file: Path, tmp_path: Path
) -> None:
    records = [InputRecord(b"k", json.dumps(flight).encode(), partition=n % 2) for n, flight in enumerate(FLIGHTS)]
    trial = Trial(spark, load_job(job_file), tmp_path, bootstrap, tmp_path / "scratch", uuid.uuid4().hex[:8])

    outputs = trial.run({"flights": records})

    hours = [("AA", "10:00", 7, "2026-01-01T11:00:00.000Z"), ("UA", "08:00", 33, "2026-01-01T09:00:00.000Z")]
    assert lines(outputs["delays"]) == lines(
        [
            {
                "key": f"{carrier}/{hour}",
                "value": {"carrier": carrier, "hour": hour, "delay": delay, "end": end},
            }
            for carrier, hour, delay, end in hours
        ]
    )
    # a window over windows: the rows of the last ones are late for nothing
    assert outputs["worst"] == [{"key": "2026-01-01", "value": {"day": "2026-01-01", "delay": 33}}]
    assert lines(outputs["totals"]) == lines(
        [{"key": "AA", "value": {"carrier": "AA", "delay": 7}}, {"key": "UA", "value": {"carrier": "UA", "delay": 33}}]
    )
    assert lines(outputs["history"]) == lines(
        [
            {"value": {"carrier": "UA", "delay": 30, "gate": None}},
            {"value": {"carrier": "AA", "delay": 7, "gate": None}},
        ]
    )
    (letter,) = outputs["delays-by-hour.dead-letters"]
    assert (letter["key"], letter["value"]) == ("k", FLIGHTS[3])
    headers = dict(letter["headers"])
    assert headers["ottla.dead-letter.topic"] == "flights"  # as in the job file, whatever it is called here
    assert headers["ottla.dead-letter.timestamp"] == "1767225600003"


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_cases_pass_and_fail(tmp_path: Path) -> None:
    job = tmp_path / "copy.py"
    job.write_text(
        "from ottla.pipeline import Job, topic\n"
        "job = Job('copy')\n"
        "@job.flow(orders=topic('orders'), to=topic('paid', key='id'))\n"
        "def paid(orders):\n"
        "    from pyspark.sql import functions as F\n"
        "    row = F.from_json(F.col('value').cast('string'), 'id STRING, paid BOOLEAN')\n"
        "    rows = orders.select(row.alias('row')).select('row.*')\n"
        '    return rows.where(\'paid AND IF(id = "fail", raise_error("no such order"), true)\')\n'
    )
    good, bad = tmp_path / "tests" / "copy" / "good", tmp_path / "tests" / "copy" / "wrong"
    for case in (good, bad):
        case.mkdir(parents=True)
        (case / "input.orders.jsonl").write_text(
            '{"key": "1", "value": {"id": "1", "paid": true}}\n{"key": "2", "value": {"id": "2", "paid": false}}\n'
        )
    (good / "expected.paid.jsonl").write_text('{"key": "1", "value": {"paid": true, "id": "1"}}\n')
    (bad / "expected.paid.jsonl").write_text('{"key": "1", "value": {"id": "1", "paid": false}}\n')

    broken = tmp_path / "tests" / "copy" / "broken"
    broken.mkdir()
    (broken / "input.orders.jsonl").write_text('{"key": "3", "value": {"id": "fail", "paid": true}}\n')
    report = tmp_path / "report.xml"

    tested = run_test(job, "--junit", str(report))

    assert tested.returncode == 1
    assert tested.stderr == "2 of 3 cases failed; --update takes what came out as expected\n"
    shown = tested.stdout.splitlines()
    assert [line.split("\t")[:2] for line in shown if "\t" in line] == [
        ["ERROR", "broken"],
        ["ok", "good"],
        ["FAILED", "wrong"],
    ]
    assert "no such order" in shown[1]
    difference = [
        "  paid: 0 as expected, 1 different (~), 0 missing (-), 0 unexpected (+)",
        '    ~ {"key": "1", "value": {"id": "1", "paid": true}}',
        "        paid: true, expected false",
    ]
    assert shown[-3:] == difference
    (suite,) = ElementTree.parse(report).iter("testsuite")
    assert {name: suite.get(name) for name in ("tests", "errors", "failures")} == {
        "tests": "3",
        "errors": "1",
        "failures": "1",
    }
    (failure,) = suite.iter("failure")
    assert str(failure.text).splitlines() == [line.removeprefix("  ") for line in difference]
    assert all(float(str(case.get("time"))) > 0 for case in suite.iter("testcase"))


@pytest.mark.timeout(300)
def test_a_new_job_passes_its_test(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert run(["pipeline", "new", "my-orders", "--directory", str(tmp_path / "jobs")]) == exits.OK

    tested = run_test(tmp_path / "jobs" / "my-orders.py", "--junit", str(report))

    assert tested.stderr == "1 case passed\n", tested.stdout
    assert tested.returncode == 0
    (case,) = ElementTree.parse(report).iter("testcase")
    assert (case.get("classname"), case.get("name"), len(case)) == ("my-orders", "five-orders", 0)


def run_test(job: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "pipeline", "test", str(job), *arguments],
        capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
