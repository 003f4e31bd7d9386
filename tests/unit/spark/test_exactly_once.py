"""The sink's decisions, against a cluster that is a dictionary; real ones are in tests/pipeline."""

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.spark import exactly_once
from ottla.spark.client_settings import ClientSettings
from ottla.spark.errors import SourceError
from ottla.spark.exactly_once import Outcome, StreamTask, write_once
from ottla.spark.marks import ANSWER_TIMEOUT_S, Mark, Write


@dataclass
class Cluster:
    records: list[str] = field(default_factory=list)
    marks: dict[str, Any] = field(default_factory=dict)
    """What is committed, by the name of the task."""
    owners: dict[str, object] = field(default_factory=dict)
    """The producer that may write under the name of a task: the latest."""
    commit_error: KafkaError | None = None


class FakeMarks:
    group = "group"

    def __init__(self, client: ClientSettings, name: str) -> None:
        self._cluster, self._name = clusters[dict(client)["bootstrap.servers"]], name

    def last(self, topic: str | None, place: str | None = None) -> Mark | None:
        mark: Mark | None = self._cluster.marks.get(self._name)
        return mark

    def close(self) -> None:
        pass


class FakeProducer:
    """The producers of the client library and of `ottla.spark.produce` in one."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.client = self
        self._cluster, self._name = clusters[settings["bootstrap.servers"]], settings["transactional.id"]
        self._open: list[str] = []
        self._mark: Any = None

    def write(self, batches: Iterator[pa.RecordBatch], topic: str | None) -> int:
        self._open += [value for batch in batches for value in batch.column("value").to_pylist()]
        return len(self._open)

    def init_transactions(self, timeout: float) -> None:
        self._cluster.owners[self._name] = self

    def begin_transaction(self) -> None:
        self._open, self._mark = [], None

    def send_offsets_to_transaction(self, offsets: list[Mark], group: object, timeout: float) -> None:
        if self._cluster.owners[self._name] is not self:
            raise KafkaException(KafkaError(KafkaError._FENCED))
        self._mark = offsets[0]

    def commit_transaction(self, timeout: float) -> None:
        if self._cluster.commit_error is not None:
            clock.now += timeout
            raise KafkaException(self._cluster.commit_error)
        self._cluster.records += self._open
        self._cluster.marks[self._name] = self._mark

    def purge(self) -> None:
        pass

    def __len__(self) -> int:
        return 0

    def abort_transaction(self, timeout: float) -> None:
        pass


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


clusters: dict[str, Cluster] = {}
clock = Clock()


@pytest.fixture(autouse=True)
def _no_brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    clusters.update(one=Cluster(), two=Cluster())
    exactly_once._writers.clear()
    monkeypatch.setattr(exactly_once, "Marks", FakeMarks)
    monkeypatch.setattr(exactly_once, "RecordProducer", FakeProducer)
    monkeypatch.setattr(exactly_once, "as_offset", lambda mark, place: mark)
    monkeypatch.setattr(exactly_once, "time", clock)
    yield
    exactly_once._writers.clear()


def write(cluster: str, batch_id: int, *values: str, run: str = "run-1", write_id: str = "write-1") -> Outcome:
    task = StreamTask("query", batch_id, 0, Write(run, write_id))
    rows = iter([pa.record_batch([pa.array(values, pa.string())], names=["value"])])
    return write_once((("bootstrap.servers", cluster),), "topic", task, rows)


def test_a_writer_is_kept_for_one_cluster_only() -> None:
    write("one", 0, "a")
    write("two", 0, "b")
    write("one", 1, "c")
    assert (clusters["one"].records, clusters["two"].records) == (["a", "c"], ["b"])


def test_a_task_that_had_rows_is_not_done_without() -> None:
    write("one", 0, "a", "b")
    exactly_once._writers.clear()
    with pytest.raises(SourceError, match="an earlier attempt wrote 2 records, and now there are 0"):
        write("one", 0, run="run-2")
    assert write("one", 1, run="run-2") == Outcome(0)


def test_a_task_without_rows_asks_a_writer_that_was_kept() -> None:
    write("one", 0, "a")
    with pytest.raises(SourceError, match="an earlier attempt wrote 1 records, and now there are 0"):
        write("one", 0)


def test_a_second_write_to_a_topic_is_refused_after_a_restart_too() -> None:
    write("one", 0, "a")
    for _ in range(2):  # Spark may repeat a task of the new run as well
        assert write("one", 0, "a", run="run-2", write_id="first") == Outcome(1, repeated=True)
    with pytest.raises(SourceError, match="foreachBatch has written to topic already in this micro-batch"):
        write("one", 0, "b", run="run-2", write_id="second")
    assert clusters["one"].records == ["a"]


def test_a_fenced_writer_that_only_has_to_skip_is_replaced() -> None:
    write("one", 0, "a")
    clusters["one"].owners.clear()  # another process has written under this name since
    clusters["one"].owners["ottla-spark-query-0"] = object()
    assert write("one", 0, "a", run="run-2") == Outcome(1, repeated=True)
    assert write("one", 1, "b", run="run-2") == Outcome(1)


def test_a_commit_that_brokers_never_answer_ends() -> None:
    clusters["one"].commit_error = KafkaError(KafkaError._TIMED_OUT, retriable=True)
    began = clock.now
    with pytest.raises(SourceError, match=r"could not be committed: the brokers were away for 5 minutes"):
        write("one", 0, "a")
    assert clock.now - began < 2 * ANSWER_TIMEOUT_S
    assert not exactly_once._writers


def test_a_forked_process_keeps_its_parents_clients_and_does_not_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    write("one", 0, "a")
    (kept,) = exactly_once._writers.values()
    parents = weakref.ref(kept)
    del kept
    monkeypatch.setattr(exactly_once, "_writers_process", exactly_once._writers_process + 1)
    monkeypatch.setattr(exactly_once, "_inherited", [])
    write("one", 1, "b")
    gc.collect()
    assert parents() is not None
    assert parents() not in exactly_once._writers.values()
    assert clusters["one"].records == ["a", "b"]
