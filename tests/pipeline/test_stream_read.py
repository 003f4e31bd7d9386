import functools
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.conftest import TopicFactory
from tests.support.eventually import eventually


def run(stream: DataFrame, directory: Path) -> list[int]:
    """Run a query into Parquet over what is there now; gives the rows of each micro-batch."""
    query = (
        stream.selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def values(spark: SparkSession, directory: Path) -> list[int]:
    return sorted(int(row.value) for row in spark.read.parquet(str(directory / "out")).collect())


def has_rows(spark: SparkSession, table: str, count: int) -> bool:
    return sorted(row.value for row in spark.table(table).collect()) == [str(each) for each in range(count)]


def test_a_restart_reads_what_is_new_and_nothing_twice(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        topic.send(map(str, range(partition * 1000, partition * 1000 + 1000)), partition=partition)

    assert run(topic.stream(spark), tmp_path) == [3000]
    assert run(topic.stream(spark), tmp_path) == []
    topic.send(map(str, range(3000, 3500)), partition=2)
    topic.grow(4)
    topic.send(map(str, range(3500, 4000)), partition=3)
    assert run(topic.stream(spark), tmp_path) == [500, 500]  # what is new is noted down first

    assert values(spark, tmp_path) == list(range(4000))


def test_batches_are_limited_and_shared_out_by_lag(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic(2)
    topic.send(map(str, range(900)), partition=0)
    topic.send(map(str, range(900, 1000)), partition=1)

    assert run(topic.stream(spark, maxOffsetsPerTrigger="400"), tmp_path) == [400, 400, 200]

    assert values(spark, tmp_path) == list(range(1000))
    first = (tmp_path / "checkpoint" / "offsets" / "0").read_text()
    assert f'{{"{topic.name}": {{"0": 360, "1": 40}}, ' in first


def test_a_running_query_follows_the_topic(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> None:
    topic = new_topic(2)
    topic.send(["before"])
    query = (
        topic.stream(spark, startingOffsets="latest")
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("memory")
        .queryName("following")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        eventually(lambda: query.lastProgress or (tmp_path / "sources").exists(), timeout_s=60)
        for number in range(3):
            topic.send([str(number)], partition=number % 2)
            eventually(functools.partial(has_rows, spark, "following", number + 1))
    finally:
        query.stop()


def test_a_topic_deleted_and_recreated_is_not_taken_for_the_old_one(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic()
    topic.send(map(str, range(100)))
    assert run(topic.stream(spark), tmp_path) == [100]
    topic.delete()
    again = new_topic(name=topic.name)
    again.send(map(str, range(10)))

    lost = rf"{topic.name}-0 is of a topic that was deleted and made again, .* up to offset 100"
    with pytest.raises(StreamingQueryException, match=lost):
        run(topic.stream(spark), tmp_path)


def test_records_deleted_before_they_were_read_end_the_query(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic()
    topic.send(map(str, range(100)))
    run(topic.stream(spark), tmp_path)
    topic.send(map(str, range(100, 200)))
    topic.trim(150)

    with pytest.raises(StreamingQueryException, match="offsets 100 to 149 were deleted before they were read"):
        run(topic.stream(spark), tmp_path)
    run(topic.stream(spark, failOnDataLoss="false"), tmp_path)
    assert values(spark, tmp_path) == [*range(100), *range(150, 200)]


@pytest.mark.soak
def test_a_topic_that_goes_missing_ends_the_query(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> None:
    topic = new_topic()
    topic.send(["1"])
    run(topic.stream(spark), tmp_path)
    topic.delete()

    with pytest.raises(StreamingQueryException, match=f"topic '{topic.name}' does not exist"):
        run(topic.stream(spark), tmp_path)


def test_offsets_follow_the_checkpoint_into_the_group(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic(2)
    group = f"spark-{topic.name}"
    topic.send(map(str, range(900)), partition=0)
    topic.send(map(str, range(900, 1000)), partition=1)

    run(topic.stream(spark, maxOffsetsPerTrigger="600", **{"kafka.group.id": group}), tmp_path)
    assert topic.committed(group, 2) == [900, 100]

    topic.send(["late"], partition=1)
    run(topic.stream(spark, **{"kafka.group.id": group}), tmp_path)
    assert topic.committed(group, 2) == [900, 101]


def test_topics_that_begin_to_match_are_read_from_their_beginning(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    first = new_topic()
    first.send(["1", "2"])
    assert run(first.matching(spark, f"{first.name}.*"), tmp_path) == [2]

    second = new_topic(2, name=f"{first.name}-next")
    second.send(["3"], partition=1)
    first.send(["4"])
    assert run(first.matching(spark, f"{first.name}.*"), tmp_path) == [1, 1]
    assert values(spark, tmp_path) == [1, 2, 3, 4]


def test_a_small_trickle_waits_for_more(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> None:
    topic = new_topic()
    query = (
        topic.stream(spark, minOffsetsPerTrigger="3", maxTriggerDelay="60s")
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("memory")
        .queryName("trickle")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        eventually(lambda: (tmp_path / "sources").exists() or query.lastProgress, timeout_s=60)
        topic.send(["0", "1"])
        topic.send(["2"])
        eventually(functools.partial(has_rows, spark, "trickle", 3), timeout_s=60)
        eventually(lambda: any(progress["numInputRows"] for progress in query.recentProgress))
        batches = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
        assert batches == [3]
    finally:
        query.stop()
