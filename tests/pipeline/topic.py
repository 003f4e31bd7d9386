"""A topic as the tests see it: filled and read by a plain client, and handed to Spark."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame, SparkSession

from tests.support.eventually import eventually


@dataclass(frozen=True)
class Topic:
    bootstrap: str
    name: str

    def send(self, values: Iterable[str], partition: int = 0, compression: str = "none", **fields: Any) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "partitioner": "murmur2_random",
                "compression.type": compression,
            }
        )
        refused: list[str] = []

        def report(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refused.append(error.str())

        for value in values:
            producer.produce(self.name, value.encode(), partition=partition, on_delivery=report, **fields)
            producer.poll(0)
        assert producer.flush(30) == 0
        assert refused == []

    def put(self, key: str, value: str | None) -> None:
        """One record, in the partition of its key; without a value it deletes the key."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random"})
        producer.produce(self.name, None if value is None else value.encode(), key=key.encode())
        assert producer.flush(30) == 0

    def messages(self) -> list[Message]:
        """Everything in the topic, in order within each partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "tests",
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 5,
            }
        )
        found: list[Message] = []
        try:
            numbers = set(consumer.list_topics(self.name, timeout=10).topics[self.name].partitions)
            consumer.assign([TopicPartition(self.name, number, 0) for number in numbers])
            while numbers:
                message = consumer.poll(10)
                assert message is not None, f"{self.name} could not be read to its end"
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    numbers.discard(message.partition() or 0)
        finally:
            consumer.close()
        return sorted(found, key=lambda each: (each.partition() or 0, each.offset() or 0))

    def trim(self, offset: int, partition: int = 0) -> None:
        """Delete all records before the offset."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for done in admin.delete_records([TopicPartition(self.name, partition, offset)]).values():
            done.result(30)

    def delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([self.name])[self.name].result(30)
        eventually(lambda: self.name not in admin.list_topics(timeout=10).topics)

    def grow(self, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(30)
        eventually(lambda: len(admin.list_topics(self.name, timeout=10).topics[self.name].partitions) == partitions)

    def table(self, spark: SparkSession, **options: str) -> DataFrame:
        table: DataFrame = self._options(spark.read, options).load()
        return table

    def stream(self, spark: SparkSession, **options: str) -> DataFrame:
        stream: DataFrame = self._options(spark.readStream, {"startingOffsets": "earliest", **options}).load()
        return stream

    def matching(self, spark: SparkSession, pattern: str) -> DataFrame:
        reader = self._server(spark.readStream).option("subscribePattern", pattern)
        stream: DataFrame = reader.option("startingOffsets", "earliest").load()
        return stream

    def assigned(self, spark: SparkSession, partitions: list[int]) -> DataFrame:
        table: DataFrame = self._server(spark.read).option("assign", json.dumps({self.name: partitions})).load()
        return table

    def committed(self, group: str, partitions: int) -> list[int]:
        """The offsets of a group, by partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            wanted = [TopicPartition(self.name, number) for number in range(partitions)]
            return [each.offset for each in consumer.committed(wanted, timeout=10)]
        finally:
            consumer.close()

    def _options(self, reader: Any, options: dict[str, str]) -> Any:
        return self._server(reader).option("subscribe", self.name).options(**options)

    def _server(self, reader: Any) -> Any:
        return reader.format("ottla").option("kafka.bootstrap.servers", self.bootstrap)
