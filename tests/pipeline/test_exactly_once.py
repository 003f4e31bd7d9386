"""The sink's promise, apart from crashes: those are in `test_kills`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ottla.spark import exactly_once
from ottla.spark.errors import SourceError
from ottla.spark.exactly_once import Outcome, StreamTask, write_once
from ottla.spark.marks import Write
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.topic import Topic

# -- one task, without Spark -----------------------------------------------------------------------


def task(batch_id: int, *, query: str, run: str = "run-1", write: str = "write-1") -> StreamTask:
    return StreamTask(query, batch_id, 0, Write(run, write))


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([pa.array(values)], names=["value"])


def write(topic: Topic, which: StreamTask, batches: Iterator[pa.RecordBatch]) -> Outcome:
    return write_once((("bootstrap.servers", topic.bootstrap),), topic.name, which, batches)


def values(topic: Topic) -> list[str]:
    return [(message.value() or b"").decode() for message in topic.messages()]


def test_a_task_is_written_once(new_topic: TopicFactory) -> None:
    topic = new_topic()
    assert write(topic, task(0, query=topic.name), rows("a", "b")) == Outcome(2)
    assert write(topic, task(0, query=topic.name, run="run-2"), rows("a", "b")) == Outcome(2, repeated=True)
    assert write(topic, task(1, query=topic.name, run="run-2"), rows("c")) == Outcome(1)
    assert values(topic) == ["a", "b", "c"]


def test_a_later_attempt_ends_the_one_before_it(new_topic: TopicFactory) -> None:
    topic = new_topic()
    which = task(0, query=topic.name)

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from rows("zombie")
        exactly_once._writers.clear()  # another process knows nothing of this one's
        assert write(topic, which, rows("later")) == Outcome(1)
        yield from rows("zombie")

    with pytest.raises(SourceError, match=r"micro-batch 0, task 0 .*: a later attempt of the same task has taken over"):
        write(topic, which, overtaken())
    assert values(topic) == ["later"]


def test_a_writer_that_was_fenced_between_two_micro_batches_is_replaced(new_topic: TopicFactory) -> None:
    topic = new_topic()
    write(topic, task(0, query=topic.name), rows("a"))
    name = task(0, query=topic.name).name
    Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": name}).init_transactions(30)

    assert write(topic, task(1, query=topic.name), rows("b")) == Outcome(1)
    assert values(topic) == ["a", "b"]


def test_a_repeated_task_with_other_rows_is_refused(new_topic: TopicFactory) -> None:
    topic = new_topic()
    write(topic, task(0, query=topic.name), rows("a", "b"))
    with pytest.raises(SourceError, match="an earlier attempt wrote 2 records, and now there are 3"):
        write(topic, task(0, query=topic.name, run="run-2"), rows("a", "b", "c"))
    assert values(topic) == ["a", "b"]


def test_a_second_write_to_a_topic_in_one_micro_batch_is_refused(new_topic: TopicFactory) -> None:
    topic = new_topic()
    write(topic, task(0, query=topic.name, write="first"), rows("a"))
    with pytest.raises(SourceError, match=f"foreachBatch has written to {topic.name} already"):
        write(topic, task(0, query=topic.name, write="second"), rows("a"))


def test_a_micro_batch_before_the_last_is_refused(new_topic: TopicFactory) -> None:
    topic = new_topic()
    for batch_id in range(3):
        write(topic, task(batch_id, query=topic.name), rows("a"))
    with pytest.raises(SourceError, match=r"micro-batch 1, task 0: .* up to micro-batch 2 already.* new checkpoint"):
        write(topic, task(1, query=topic.name, run="run-2"), rows("a"))


def test_rows_that_name_their_topics_are_recognised_in_any_order(new_topic: TopicFactory) -> None:
    left, right = new_topic(), new_topic()
    client = (("bootstrap.servers", left.bootstrap),)

    def to(*topics: Topic) -> Iterator[pa.RecordBatch]:
        names = [topic.name for topic in topics]
        yield pa.record_batch([pa.array(names), pa.array(names)], names=["topic", "value"])

    assert write_once(client, None, task(0, query=left.name), to(left, right)) == Outcome(2)
    assert write_once(client, None, task(0, query=left.name), to(right, left)) == Outcome(2, repeated=True)
    assert (values(left), values(right)) == ([left.name], [right.name])


def test_what_was_open_when_a_writer_failed_is_never_seen(new_topic: TopicFactory) -> None:
    topic = new_topic()

    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows("lost")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(topic, task(0, query=topic.name), broken())
    assert write(topic, task(0, query=topic.name), rows("kept")) == Outcome(1)
    assert values(topic) == ["kept"]


# -- queries ---------------------------------------------------------------------------------------


def copy(source: DataFrame, sink: Topic, checkpoint: Path, **options: str) -> None:
    query = (
        source.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", sink.bootstrap)
        .option("topic", sink.name)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget(checkpoint: Path, log: str, number: int) -> None:
    for name in (str(number), f".{number}.crc"):
        (checkpoint / log / name).unlink(missing_ok=True)


def test_a_micro_batch_cut_into_other_tasks_is_refused_and_can_be_written_again(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, sink = new_topic(2), new_topic()
    source.send(map(str, range(30)), partition=0)
    source.send(map(str, range(30, 50)), partition=1)
    read = source.stream(spark).select("value")
    copy(read, sink, tmp_path)
    forget(tmp_path, "commits", 0)

    with pytest.raises(StreamingQueryException, match="an earlier attempt wrote 30 records, and now there are 50"):
        copy(read.coalesce(1), sink, tmp_path)
    assert sorted(map(int, values(sink))) == list(range(50))

    copy(read.coalesce(1), sink, tmp_path, deliveryGuarantee="at-least-once")
    source.send(map(str, range(50, 60)))
    copy(read.coalesce(1), sink, tmp_path)
    assert sorted(map(int, values(sink))) == sorted([*range(50)] * 2 + [*range(50, 60)])


def test_a_checkpoint_that_was_set_back_is_refused(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    source, sink = new_topic(), new_topic()
    read = source.stream(spark).select("value")
    source.send(["0"])
    copy(read, sink, tmp_path / "new")
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    for value in "12":
        source.send([value])
        copy(read, sink, tmp_path / "new")

    with pytest.raises(StreamingQueryException, match="up to micro-batch 2 already"):
        copy(read, sink, tmp_path / "old")
    assert values(sink) == ["0", "1", "2"]


def test_foreach_batch_writes_once(spark: SparkSession, new_topic: TopicFactory, tmp_path: Path) -> None:
    source, left, right = new_topic(2), new_topic(), new_topic()

    def save(rows: DataFrame, topic: Topic) -> None:
        to = rows.write.format("ottla").option("kafka.bootstrap.servers", topic.bootstrap).option("topic", topic.name)
        to.option("deliveryGuarantee", "exactly-once").mode("append").save()

    def to_both(rows: DataFrame, _: int) -> None:
        save(rows.where("CAST(value AS INT) % 2 = 0"), left)
        save(rows.where("CAST(value AS INT) % 2 = 1"), right)

    def run() -> None:
        read = source.stream(spark).selectExpr("CAST(value AS STRING) AS value")
        query = read.writeStream.foreachBatch(to_both).option("checkpointLocation", str(tmp_path))
        query.trigger(availableNow=True).start().awaitTermination()

    source.send(map(str, range(10)), partition=0)
    source.send(map(str, range(10, 20)), partition=1)
    run()
    forget(tmp_path, "commits", 0)
    run()

    assert sorted(map(int, values(left))) == list(range(0, 20, 2))
    assert sorted(map(int, values(right))) == list(range(1, 20, 2))


def test_a_batch_write_has_nothing_to_be_recognised_by(spark: SparkSession, new_topic: TopicFactory) -> None:
    topic = new_topic()
    rows = spark.createDataFrame([("1",)], "value STRING").write.format("ottla").mode("append")
    rows = rows.option("kafka.bootstrap.servers", topic.bootstrap).option("topic", topic.name)
    with pytest.raises(PySparkException, match="outside of foreachBatch cannot be exactly-once"):
        rows.option("deliveryGuarantee", "exactly-once").save()
