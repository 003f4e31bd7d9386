"""To which consumer groups the queries of a job commit: each to one of its own, dead letters to none."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.context import RunContext
from ottla.pipeline.inputs import Topic as Input
from ottla.pipeline.queries import plan
from ottla.pipeline.rows import Checked, checked
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.flow import context_of
from tests.pipeline.rows import run_job


def numbers_of(name: str, *flows: str, **options: str) -> Job:
    """A job whose flows all read one view, which rejects what is no number."""
    job = Job(name)

    @job.view(given=topic(name, **options))
    def numbers(given: DataFrame) -> Checked:
        read = given.select("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
        return checked(read).check("is a number", F.col("value").cast("string").rlike("^[0-9]+$"))

    for flow in flows:

        def copies(rows: DataFrame) -> DataFrame:
            return rows.select("value")

        copies.__name__ = flow
        job.flow(rows=numbers, to=topic(f"{name}-{flow}"))(copies)
    return job


@pytest.mark.parametrize(("flows", "suffixes"), [(("a",), {"", None}), (("a", "b"), {"a", "b", None})])
def test_each_query_commits_for_itself(
    flows: tuple[str, ...],
    suffixes: set[str | None],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: set[str | None] = set()
    load = Input.load

    def noted(self: Input, context: RunContext) -> DataFrame:
        found.add(context.group_suffix)
        return load(self, context)

    monkeypatch.setattr(Input, "load", noted)
    context = context_of(spark, tmp_path, "127.0.0.1:1")
    names = [each.name for each in plan(numbers_of("numbers", *flows, **{"kafka.group.id": "g"}), context)]
    assert names == [flows[0], "numbers.dead-letters", *flows[1:]]
    assert found == suffixes
    found.clear()
    plan(numbers_of("numbers", *flows), context)
    assert found == {""}


def test_the_lag_of_each_flow_is_that_of_its_group(
    new_topic: TopicFactory, bootstrap: str, spark: SparkSession, tmp_path: Path
) -> None:
    given = new_topic(1)
    given.send(["1", "two", "3"])
    group = f"of-{given.name}"
    job = numbers_of(given.name, "a", "b", **{"kafka.group.id": group})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(written, 1, 1) for written in job.writes()]).values():
        made.result(10)
    run_job(job, context_of(spark, tmp_path, bootstrap), tmp_path / "checkpoints")
    groups = {each.group_id for each in admin.list_consumer_groups(request_timeout=10).result().valid}
    assert {each for each in groups if each.startswith(group)} == {f"{group}-a", f"{group}-b"}
