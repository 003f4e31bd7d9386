"""Which micro-batch of a query a topic has, by what brokers know; no Spark is needed for that."""

import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.pipeline import topic
from ottla.pipeline.context import Outputs
from ottla.pipeline.inputs import Topic as TopicSink
from ottla.pipeline.sinks.base import SinkError, UncertainBatchError
from tests.pipeline.conftest import TopicFactory
from tests.pipeline.topic import Topic

_DAY_MS = 86_400_000


def last_batch(sink: TopicSink, query: str, bootstrap: str, *, since_ms: int = 0) -> int | None:
    return sink.last_batch(query, Outputs(bootstrap, Path(), since_ms=since_ms))


def mark(bootstrap: str, written: Topic, query: str, task: int, batch: int) -> None:
    """As the sink's tasks leave it."""
    settings = {"bootstrap.servers": bootstrap, "group.id": f"ottla-spark-{query}-{task}"}
    consumer = Consumer(settings)
    try:
        consumer.commit(offsets=[TopicPartition(written.name, 0, batch + 1)], asynchronous=False)
    finally:
        consumer.close()


def test_the_last_micro_batch_is_that_of_the_furthest_task(bootstrap: str, new_topic: TopicFactory) -> None:
    written, other = new_topic(), new_topic()
    query = str(uuid4())
    written.send(["a"])
    for task, batch in ((0, 7), (1, 12), (11, 3)):
        mark(bootstrap, written, query, task, batch)
    mark(bootstrap, written, f"late-{query}", 0, 40)
    mark(bootstrap, other, query, 2, 30)
    assert last_batch(topic(written.name), query, bootstrap) == 12
    assert last_batch(topic(written.name), f"late-{query}", bootstrap) == 40


def test_no_mark_means_nothing_written_only_where_one_would_still_be_there(
    bootstrap: str, new_topic: TopicFactory
) -> None:
    written = new_topic()
    query, now_ms = str(uuid4()), time.time_ns() // 1_000_000
    assert last_batch(topic("there-is-none"), query, bootstrap) is None
    assert last_batch(topic(written.name), query, bootstrap, since_ms=now_ms - 30 * _DAY_MS) is None
    written.send(["by another query"])
    assert last_batch(topic(written.name), query, bootstrap, since_ms=now_ms) is None
    assert last_batch(topic(written.name), query, bootstrap, since_ms=now_ms + _DAY_MS) is None
    with pytest.raises(UncertainBatchError, match=r"may have been forgotten \(offsets\.retention\.minutes\)"):
        last_batch(topic(written.name), query, bootstrap, since_ms=now_ms - 30 * _DAY_MS)
    without_marks = topic(written.name, deliveryGuarantee="at-least-once")
    with pytest.raises(UncertainBatchError, match="with deliveryGuarantee at-least-once nothing shows"):
        last_batch(without_marks, query, bootstrap, since_ms=now_ms)


def test_brokers_that_do_not_answer_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.pipeline.sinks.topic_batches._WITHIN_S", 1.0)
    with pytest.raises(SinkError, match="cannot be asked what it has of this query"):
        last_batch(topic("flights"), str(uuid4()), "127.0.0.1:1")


def test_brokers_of_which_some_do_not_answer_are_no_answer(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client library lists their errors beside the groups of the others."""
    silent: Future[Any] = Future()
    silent.set_result(SimpleNamespace(errors=[KafkaError(KafkaError._TIMED_OUT)], valid=[]))
    monkeypatch.setattr(AdminClient, "list_consumer_groups", lambda *_, **__: silent)
    with pytest.raises(SinkError, match="cannot be asked what it has of this query"):
        last_batch(topic("flights"), str(uuid4()), bootstrap)


def test_a_transaction_that_a_killed_run_left_open_is_waited_for(
    bootstrap: str, new_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark may still be committed, so that there is no answer before it has ended."""
    written, query = new_topic(), str(uuid4())
    mark(bootstrap, written, query, 0, 4)
    name = f"ottla-spark-{query}-0"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(10)
    producer.begin_transaction()
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    try:
        newer = TopicPartition(written.name, 0, 6)
        producer.send_offsets_to_transaction([newer], group.consumer_group_metadata(), 10)
        with monkeypatch.context() as hurried:
            hurried.setattr("ottla.pipeline.sinks.topic_batches._SETTLED_WITHIN_S", 1.0)
            with pytest.raises(SinkError, match=rf"a transaction of its tasks is still open.* ottla txn abort {name}"):
                last_batch(topic(written.name), query, bootstrap)
        producer.commit_transaction(10)
        assert last_batch(topic(written.name), query, bootstrap) == 5
    finally:
        group.close()
