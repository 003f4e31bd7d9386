"""A new job that works: the text of its file and of a golden test, to be changed into a job of one's own. PURE.

<name>.py
tests/<name>/five-orders/input.orders.jsonl
tests/<name>/five-orders/expected.<name>-hourly.jsonl
tests/<name>/five-orders/expected.<name>.dead-letters.jsonl
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from string import Template
from typing import Final

from ottla.pipeline import names
from ottla.pipeline.errors import JobError

TOPIC: Final = "orders"
"""The topic that the job reads."""

_JOB: Final = Template('''\
"""Orders and their sum by country and hour, from the topic `orders`."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.rows import Checked, from_json

job = Job("$name")
ORDER = "id STRING NOT NULL, at TIMESTAMP NOT NULL, country STRING NOT NULL, cents BIGINT NOT NULL"


@job.view(orders=topic("orders"))
def valid(orders: DataFrame) -> Checked:
    """Orders with all fields and a positive amount. All others go to the topic $name.dead-letters, with the reason.

    One order from the year 2126 would close all windows: those that are ahead of their record are rejected, too.
    """
    rows = from_json(orders, ORDER, keep=("timestamp",)).check("amount is positive", F.col("cents") > 0)
    latest = F.col("timestamp") + F.expr("INTERVAL 1 DAY")
    return rows.check("is not from the future", F.col("at") < latest)


@job.flow(orders=valid, to=topic("$name-hourly", key=("country", "hour")))
def hourly(orders: DataFrame) -> DataFrame:
    """A row for each hour and country, written when the watermark has passed the end of the hour."""
    hours = orders.withWatermark("at", "10 minutes").groupBy(F.window("at", "1 hour").alias("hour"), "country")
    sums = hours.agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
    return sums.withColumn("hour", F.date_format("hour.start", "yyyy-MM-dd'T'HH:mm"))
''')

_INPUT: Final = """\
{"key": "1", "value": {"id": "1", "at": "2026-01-01T08:10:00Z", "country": "NL", "cents": 1250}}
{"key": "2", "value": {"id": "2", "at": "2026-01-01T08:50:00Z", "country": "NL", "cents": 750}}
{"key": "3", "value": {"id": "3", "at": "2026-01-01T09:05:00Z", "country": "BE", "cents": 300}}
{"key": "4", "value": {"id": "4", "at": "2026-01-01T09:06:00Z", "country": "BE", "cents": -300}}
{"key": "5", "value": {"id": "5", "at": "2026-01-01T09:07:00Z", "cents": 100}}
"""

_HOURLY: Final = """\
{"key": "BE/2026-01-01T09:00", "value": {"hour": "2026-01-01T09:00", "country": "BE", "orders": 1, "cents": 300}}
{"key": "NL/2026-01-01T08:00", "value": {"hour": "2026-01-01T08:00", "country": "NL", "orders": 2, "cents": 2000}}
"""

_DEAD_LETTERS: Final = """\
{"key": "4", "value": {"id": "4", "at": "2026-01-01T09:06:00Z", "country": "BE", "cents": -300}}
{"key": "5", "value": {"id": "5", "at": "2026-01-01T09:07:00Z", "cents": 100}}
"""


def job_files(name: str) -> Mapping[PurePosixPath, str]:
    """The files of a new job by their paths: its own first, then the input and the expected output of its test.

    Raises JobError for a name that no job can have.
    """
    if not names.is_run_name(name):
        raise JobError(f"{name!r} cannot name a job: a job's name is {names.RUN_NAME_RULE}")
    case = PurePosixPath("tests", name, "five-orders")
    return {
        PurePosixPath(f"{name}.py"): _JOB.substitute(name=name),
        case / f"input.{TOPIC}.jsonl": _INPUT,
        case / f"expected.{name}-hourly.jsonl": _HOURLY,
        case / f"expected.{name}.dead-letters.jsonl": _DEAD_LETTERS,
    }
