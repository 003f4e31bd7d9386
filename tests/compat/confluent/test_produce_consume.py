"""librdkafka's producer and simple consumer."""

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.compat.confluent.clients import as_sample, consumer, drain, numbered, produce, read_all
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.compat.samples import Sample, samples


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_records_come_back_as_they_went(
    bootstrap: str, new_topic: NewTopicFactory, codec: str, idempotent: bool
) -> None:
    topic = new_topic()
    sent = samples()
    settings: dict[str, Any] = {"compression.codec": codec, "enable.idempotence": idempotent}
    produce(bootstrap, topic, sent, **settings)
    messages = read_all(bootstrap, topic, len(sent))
    assert [as_sample(message) for message in messages] == sent
    assert [message.offset() for message in messages] == list(range(len(sent)))


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_recompresses(bootstrap: str, new_topic: NewTopicFactory, codec: str) -> None:
    topic = new_topic(**{"compression.type": codec})
    sent = samples(60)
    settings: dict[str, Any] = {"compression.codec": "gzip" if codec != "gzip" else "lz4"}
    produce(bootstrap, topic, sent, **settings)
    assert [as_sample(message) for message in read_all(bootstrap, topic, len(sent))] == sent


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks(bootstrap: str, new_topic: NewTopicFactory, acks: str) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(100), acks=acks)
    assert [message.value() for message in read_all(bootstrap, topic, 100)] == [b"%d" % n for n in range(100)]


def test_log_append_time_replaces_the_producers(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    produce(bootstrap, topic, numbered(3))
    kinds = {message.timestamp()[0] for message in read_all(bootstrap, topic, 3)}
    assert kinds == {2}  # TIMESTAMP_LOG_APPEND_TIME


def test_a_topic_with_larger_messages(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(**{"max.message.bytes": str(6 << 20)})
    big = Sample(b"big", bytes(range(256)) * (20 << 10), (), 1_000)  # 5 MB
    produce(bootstrap, topic, [big], **{"message.max.bytes": 6 << 20})
    assert as_sample(read_all(bootstrap, topic, 1)[0]) == big


def test_a_message_too_large_is_refused(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(**{"max.message.bytes": "10000"})
    with pytest.raises(KafkaException) as refused:
        produce(bootstrap, topic, [Sample(None, b"x" * 20_000, (), 1_000)])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_compacted_topics_refuse_records_without_key(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    with pytest.raises(KafkaException) as refused:
        produce(bootstrap, topic, [Sample(None, b"no key", (), 1_000)])
    assert refused.value.args[0].code() == KafkaError.INVALID_RECORD


def test_an_idempotent_producer_over_many_partitions_keeps_the_order(
    bootstrap: str, new_topic: NewTopicFactory
) -> None:
    topic = new_topic(6)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for number in range(6000):
        producer.produce(topic, str(number).encode(), partition=number % 6)
        producer.poll(0)
    assert producer.flush(30) == 0
    for partition in range(6):
        values = [int(m.value() or b"-1") for m in read_all(bootstrap, topic, 1000, partition)]
        assert values == list(range(partition, 6000, 6))


def test_two_hundred_partitions(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(200)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(200):
        producer.produce(topic, b"%d" % partition, partition=partition)
    assert producer.flush(30) == 0
    reader = consumer(bootstrap, "unused")
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(200)])
    assert {int(m.value() or b"-1") for m in drain(reader, 200)} == set(range(200))
    reader.close()


def test_small_fetches_still_read_everything(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    produce(bootstrap, topic, samples(200), **{"batch.num.messages": 20})
    limits = {"fetch.message.max.bytes": 1000, "fetch.max.bytes": 10_000, "message.max.bytes": 10_000}
    assert [as_sample(m) for m in read_all(bootstrap, topic, 200, **limits)] == samples(200)


def test_seek_back_and_forth(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(100))
    reader = consumer(bootstrap, "unused")
    reader.assign([TopicPartition(topic, 0, 0)])
    assert drain(reader, 1)[0].offset() == 0
    for offset in (50, 10, 99, 0):
        reader.seek(TopicPartition(topic, 0, offset))
        message = drain(reader, 1)[0]
        assert (message.offset(), message.value()) == (offset, b"%d" % offset)
    reader.close()


def test_a_paused_partition_is_silent(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(2)
    for partition in (0, 1):
        produce(bootstrap, topic, numbered(10), partition)
    reader = consumer(bootstrap, "unused")
    reader.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    reader.pause([TopicPartition(topic, 1)])
    assert {m.partition() for m in drain(reader, 10)} == {0}
    assert reader.poll(0.5) is None
    reader.resume([TopicPartition(topic, 1)])
    assert {m.partition() for m in drain(reader, 10)} == {1}
    reader.close()


def test_the_end_of_a_partition_is_announced(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(5))
    reader = consumer(bootstrap, "unused", **{"enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    drain(reader, 5)
    with pytest.raises(KafkaException) as end:
        drain(reader, 1)
    assert end.value.args[0].code() == KafkaError._PARTITION_EOF
    reader.close()


def test_watermarks_and_offsets_for_times(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(100), **{"batch.num.messages": 7})
    reader = consumer(bootstrap, "unused")
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 100)
    asked = [0, 1_000_000, 1_000_037, 1_000_099]
    found = [
        reader.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=10)[0].offset for timestamp in asked
    ]
    assert found == [0, 0, 37, 99]
    assert reader.offsets_for_times([TopicPartition(topic, 0, 2_000_000)], timeout=10)[0].offset == -1
    reader.close()


def test_out_of_range_goes_where_the_reset_policy_says(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(10))
    earliest = consumer(bootstrap, "unused", **{"auto.offset.reset": "earliest"})
    earliest.assign([TopicPartition(topic, 0, 5000)])
    assert drain(earliest, 1)[0].offset() == 0
    earliest.close()
    strict = consumer(bootstrap, "unused", **{"auto.offset.reset": "error"})
    strict.assign([TopicPartition(topic, 0, 5000)])
    with pytest.raises(KafkaException) as refused:
        drain(strict, 1)
    assert refused.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    strict.close()


def test_a_waiting_consumer_gets_a_new_record_at_once(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    reader: Consumer = consumer(bootstrap, "unused", **{"fetch.wait.max.ms": 10_000})
    reader.assign([TopicPartition(topic, 0, 0)])
    assert reader.poll(1.0) is None  # the fetch is parked at the broker now
    produce(bootstrap, topic, numbered(1), **{"linger.ms": 0})
    assert len(drain(reader, 1, timeout_s=8.0)) == 1
    reader.close()


def test_producing_creates_a_topic(bootstrap: str, new_name: NewNameFactory) -> None:
    topic = new_name()
    produce(bootstrap, topic, numbered(3), -1)
    assert [m.value() for m in read_all(bootstrap, topic, 3)] == [b"0", b"1", b"2"]


def test_an_unknown_partition_is_refused(bootstrap: str, new_topic: NewTopicFactory) -> None:
    with pytest.raises(KafkaException) as refused:
        produce(bootstrap, new_topic(1), numbered(1), partition=7)
    assert refused.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
