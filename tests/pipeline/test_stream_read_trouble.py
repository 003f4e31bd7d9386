"""What befalls a query that runs: nothing is skipped in silence, and it goes on by itself where it can."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.pipeline.conftest import TopicFactory
from tests.pipeline.test_stream_read import run, values
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually


@contextmanager
def running(stream: DataFrame, directory: Path) -> Iterator[StreamingQuery]:
    """A query that writes every value into Parquet until it is stopped, or fails."""
    query = (
        stream.selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


def rows_read(query: StreamingQuery) -> int:
    error = query.exception()
    assert error is None, error
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def wait_for_rows(query: StreamingQuery, count: int) -> None:
    eventually(lambda: rows_read(query) == count, timeout_s=90)


def failure(query: StreamingQuery) -> str:
    eventually(query.exception, timeout_s=90)
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    return str(failed.value)


def test_brokers_that_are_away_are_waited_for(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    with type(broker)() as own:
        topic = TopicFactory(own.bootstrap)(2)
        topic.send(map(str, range(100)))
        with running(topic.stream(spark), tmp_path) as query:
            wait_for_rows(query, 100)
            for stop in (own.kill, own.stop):
                stop()
                time.sleep(3)
                assert query.isActive, query.exception()
                own.start()
                count = rows_read(query)
                topic.send(map(str, range(count, count + 50)), partition=1)
                wait_for_rows(query, count + 50)
    assert values(spark, tmp_path) == list(range(200))


@pytest.mark.parametrize("count", [3, 30])
def test_a_topic_made_again_while_the_query_runs_is_noticed(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path, count: int
) -> None:
    topic = new_topic()
    topic.send(map(str, range(10)))
    with running(topic.stream(spark), tmp_path) as query:
        wait_for_rows(query, 10)
        topic.delete()
        new_topic(name=topic.name).send(map(str, range(10, 10 + count)))
        message = failure(query)
    # it may have looked between the two
    assert "deleted and made again" in message or f"topic '{topic.name}' does not exist" in message

    # the second part: of a micro-batch that was planned between the two
    said = "deleted and made again(, and the query has read up to offset 10| before offsets 10 to)"
    with pytest.raises(StreamingQueryException, match=said):
        run(topic.stream(spark), tmp_path)
    assert sum(run(topic.stream(spark, failOnDataLoss="false"), tmp_path)) == count
    assert values(spark, tmp_path) == list(range(10 + count))


def test_a_topic_made_again_between_plan_and_read_is_noticed(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic()
    topic.send(map(str, range(10)))
    planned = topic.table(spark)
    assert planned.rdd.getNumPartitions() == 1
    planned._jdf.queryExecution().executedPlan()
    topic.delete()
    new_topic(name=topic.name).send(map(str, range(100, 120)))
    with pytest.raises(Exception, match="the topic was deleted and made again before offsets 0 to 9 were read"):
        planned.collect()


def test_partitions_added_while_the_query_runs_are_read_from_their_beginning(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic()
    topic.send(map(str, range(10)))
    with running(topic.stream(spark, startingOffsets="latest"), tmp_path) as query:
        eventually(lambda: (tmp_path / "checkpoint" / "sources").exists() or query.lastProgress, timeout_s=60)
        topic.send(map(str, range(10, 20)))
        wait_for_rows(query, 10)
        topic.grow(3)
        topic.send(map(str, range(20, 30)), partition=2)
        wait_for_rows(query, 20)
    assert values(spark, tmp_path) == list(range(10, 30))


def test_an_unfinished_batch_is_cut_as_it_was(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> None:
    topic = new_topic()
    topic.send(map(str, range(1_000)))

    def tasks(**options: str) -> int:
        query = (
            topic.stream(spark, **options)
            .selectExpr("CAST(value AS STRING) AS value", "spark_partition_id() AS task")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return spark.read.parquet(str(tmp_path / "out")).select("task").distinct().count()

    assert tasks(minPartitions="4") == 4
    (tmp_path / "checkpoint" / "commits" / "0").unlink()  # as if killed before the end of the micro-batch
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    for file in (tmp_path / "out").rglob("*"):
        if file.is_file():
            file.unlink()
    assert tasks(minPartitions="2") == 4


def test_offsets_beyond_the_end_are_not_a_place_to_start_from(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic()
    topic.send(map(str, range(10)))
    beyond = json.dumps({topic.name: {"0": 15}})
    with pytest.raises(StreamingQueryException, match=rf"{topic.name}-0 ends at offset 10"):
        run(topic.stream(spark, startingOffsets=beyond), tmp_path)


def test_wrong_options_show_when_the_stream_is_loaded(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic()
    for options, said in (
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"maxOffsetsPerTrigger": "five"}, "must be a whole number above 0, it is 'five'"),
        ({"startingOffsets": "first"}, "must be earliest, latest or JSON"),
        ({"assign": "{}"}, "there are subscribe and assign"),
        ({"kafka.key.deserializer": "x"}, "keys are always bytes"),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
    ):
        with pytest.raises(AnalysisException, match=said):
            topic.stream(spark, **options)


@contextmanager
def full_when_asked(directory: Path) -> Iterator[Callable[[bool], None]]:
    """A small disk at `directory` that can be filled and emptied; for those who may not mount one, a directory that can
    be closed for new files and opened again."""
    directory.mkdir()
    may_mount = os.geteuid() == 0
    if may_mount:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)], check=True)

    def fill(full: bool) -> None:
        if not may_mount:
            for each in (directory, *(path for path in directory.rglob("*") if path.is_dir())):
                each.chmod(0o500 if full else 0o700)
        elif full:
            with (directory / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
                while True:
                    ballast.write(bytes(4096))
        else:
            (directory / "ballast").unlink()

    try:
        yield fill
    finally:
        if may_mount:
            subprocess.run(["umount", "-l", str(directory)], check=True)


def test_a_full_disk_under_the_checkpoint_ends_the_query_and_loses_nothing(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic()
    topic.send(map(str, range(10)))
    checkpoint = tmp_path / "checkpoint"
    with full_when_asked(checkpoint) as fill:
        with running(topic.stream(spark), tmp_path) as query:
            wait_for_rows(query, 10)
            fill(True)
            topic.send(map(str, range(10, 20)))
            message = failure(query)
        assert "No space left on device" in message or "Permission denied" in message
        fill(False)
        run(topic.stream(spark), tmp_path)
    assert values(spark, tmp_path) == list(range(20))
