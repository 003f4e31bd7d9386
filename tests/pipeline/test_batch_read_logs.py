"""Logs with holes: compacted ones, and those with transactions in them."""

from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.pipeline.conftest import TopicFactory
from tests.pipeline.test_stream_read import run, values
from tests.pipeline.topic import Topic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually


def in_transaction(topic: Topic, texts: list[str], *, how: str) -> Producer:
    """Send in one transaction, and end it by `how`: commit, abort, or leave it open."""
    producer = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": f"{topic.name}-{how}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for text in texts:
        producer.produce(topic.name, text.encode(), partition=0)
    assert producer.flush(30) == 0
    if how == "commit":
        producer.commit_transaction(30)
    elif how == "abort":
        producer.abort_transaction(30)
    return producer


def test_readers_of_committed_records_see_no_others(
    spark: SparkSession, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic()
    in_transaction(topic, ["0", "1"], how="commit")
    in_transaction(topic, ["2", "3"], how="abort")
    topic.send(["4"])
    in_transaction(topic, ["5"], how="commit")
    in_transaction(topic, ["6"], how="abort")
    still_open = in_transaction(topic, ["7"], how="open")
    topic.send(["8"])

    committed = {"kafka.isolation.level": "read_committed"}
    assert [int(row.value) for row in topic.table(spark).collect()] == list(range(9))
    assert [int(row.value) for row in topic.table(spark, **committed).collect()] == [0, 1, 4, 5]
    # one by one: batches that hold nothing but markers, or aborted records, are passed by
    assert sum(run(topic.stream(spark, maxOffsetsPerTrigger="3", **committed), tmp_path)) == 4
    assert values(spark, tmp_path) == [0, 1, 4, 5]

    still_open.commit_transaction(30)
    assert run(topic.stream(spark, **committed), tmp_path) == [2]
    assert values(spark, tmp_path) == [0, 1, 4, 5, 7, 8]


def test_compacted_logs_are_read_across_their_gaps(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    with type(broker)(properties={"log.cleaner.backoff.ms": "100"}) as own:
        topic = TopicFactory(own.bootstrap)(
            config={
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "segment.ms": "1000",
            }
        )
        for lap in range(3):
            for key in range(50):
                topic.send([str(lap * 50 + key).zfill(200)], key=str(key).encode())
        topic.send(["150"], key=b"last")

        def compacted() -> bool:
            topic.send(["0"], key=b"0")  # what is written last stays in the active segment
            return len(topic.messages()) < 130

        eventually(compacted, timeout_s=60, interval_s=0.5)
        there = topic.messages()
        assert (there[-1].offset() or 0) + 1 > len(there)
        read = {row.offset: row.value for row in topic.table(spark, minPartitions="4").collect()}
        run(topic.stream(spark, maxOffsetsPerTrigger="40"), tmp_path)
        streamed = values(spark, tmp_path)
        left = topic.messages()  # the cleaner goes on meanwhile
        assert len(left) <= len(streamed) <= len(read) <= len(there)
        assert all(read[message.offset() or 0] == message.value() for message in left)
        assert set(streamed) >= {int(message.value() or b"") for message in left}
