"""A sink's task while its group moves on: nothing is written twice, nothing committed that was not written."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from ottla.connect.api import ConnectError, Retriable, Settings, Sink, SinkRecord, TopicPartition
from ottla.connect.herder.state import TaskId
from ottla.connect.log_identity import LogIdentity
from ottla.connect.runtime import sink_task
from ottla.connect.runtime.brokers import Brokers, Lifeline
from ottla.connect.runtime.connector_config import SinkRuntimeSettings
from ottla.connect.runtime.secrets import Secrets
from ottla.connect.runtime.sink_task import SinkTask
from ottla.connect.runtime.worker_settings import WorkerSettings

MINE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


THERE = Lifeline(Brokers(""))


class Target(Sink[Settings]):
    """Is away for some calls."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int]] = []
        self.away = 0
        self.flushed = 0
        self.kept: dict[TopicPartition, int] = {}

    def write(self, batch: Any) -> None:
        self.fail()
        self.written += [(record.origin.partition, record.offset) for record in batch]

    def positions(self, partitions: Any) -> dict[TopicPartition, int]:
        return self.kept

    def flush(self) -> None:
        self.fail()
        self.flushed += 1

    def fail(self) -> None:
        if self.away:
            self.away -= 1
            raise Retriable("the target is away")


class Grouped:
    """A consumer; `meanwhile` is what happens in the group while the task waits."""

    def __init__(self) -> None:
        self.committed: list[tuple[int, int]] = []
        self.assigned: list[tuple[int, int]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def consume(self, _most: int, _seconds: float) -> list[Any]:
        return []

    def poll(self, _seconds: float) -> None:
        happens, self.meanwhile = self.meanwhile, lambda: None
        happens()

    def assignment(self) -> list[Place]:
        return []

    def assign(self, places: list[Place]) -> None:
        self.assigned = [(each.partition, each.offset) for each in places]

    def get_watermark_offsets(self, _place: Place, timeout: float) -> tuple[int, int]:
        return 0, 5

    def pause(self, places: list[Place]) -> None: ...

    def resume(self, places: list[Place]) -> None: ...

    def commit(self, offsets: list[Place], asynchronous: bool) -> None:
        self.committed += [(each.partition, each.offset) for each in offsets]


def task_with(target: Target, consumer: Grouped) -> Any:
    environment: Any = SimpleNamespace(
        tracer=None, settings=SimpleNamespace(offset_flush_interval_ms=0), secrets=Secrets({}), brokers=Brokers("")
    )
    task: Any = SinkTask(TaskId("tested", 0), {}, environment, lambda *_: None, lambda *_: None)
    task.context.log = logging.getLogger("tested")
    task._sink, task._consumer = target, consumer
    task._owned = {MINE, OTHER}
    return task


def moved_and_back(task: Any, back: list[TopicPartition]) -> Callable[[], None]:
    def rebalance() -> None:
        task._revoked(task._consumer, [Place(*MINE), Place(*OTHER)])
        task._assigned(task._consumer, [Place(*each) for each in back])

    return rebalance


def pumped(task: Any, records: list[SinkRecord]) -> None:
    """One round of the task's loop, with these as what was consumed."""

    left = [records]

    def decoded(*_: Any) -> Any:
        if not left:
            task.stop()
            return [], {}
        consumed = left.pop()
        return consumed, {record.origin: record.offset + 1 for record in consumed}

    task._decoded = decoded
    task._pump(None, 100, THERE)


def record(origin: TopicPartition, offset: int) -> SinkRecord:
    return SinkRecord(topic="t", value=None, partition=origin.partition, origin=origin, offset=offset)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_task, "_FIRST_PAUSE_S", 0.01)


def test_a_batch_is_not_written_when_its_partitions_were_away_and_came_back() -> None:
    """They are consumed again from where the group, or the target, has them: written now they would be twice there."""
    target, consumer = Target(), Grouped()
    task = task_with(target, consumer)
    target.away = 2  # the write, and the flush when the partitions go
    consumer.meanwhile = moved_and_back(task, [MINE])
    pumped(task, [record(MINE, 5), record(OTHER, 7)])
    assert target.written == []
    assert consumer.committed == []  # nor is anything committed of it


def test_what_stayed_is_written_and_committed() -> None:
    target, consumer = Target(), Grouped()
    task = task_with(target, consumer)
    target.away = 1
    consumer.meanwhile = lambda: task._taken_away(consumer, [Place(*OTHER)])
    pumped(task, [record(MINE, 5), record(OTHER, 7)])
    assert target.written == [(0, 5)]
    assert consumer.committed == [(0, 6)]


def test_the_group_does_not_wait_for_a_target_that_is_away() -> None:
    target, consumer = Target(), Grouped()
    task = task_with(target, consumer)
    task._next = {MINE: 5}
    target.away = 1_000_000
    task._revoked(consumer, [Place(*MINE)])
    assert target.away == 999_999  # asked once
    assert consumer.committed == []
    assert task._owned == {OTHER}
    assert task.context.warning == "the target is away (partitions are given up unflushed)"


def test_a_consumer_that_cannot_be_made_closes_the_sink_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Closing(Sink[Settings]):
        def close(self) -> None:
            closed.append("sink")

    def refused(_settings: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, 'No such configuration property: "no"'))

    monkeypatch.setattr(sink_task, "Consumer", refused)
    monkeypatch.setattr(
        sink_task, "Chain", lambda *_: SimpleNamespace(close=lambda: closed.append("chain"), leave_out=lambda _: None)
    )
    environment: Any = SimpleNamespace(
        tracer=None, settings=WorkerSettings(), converters={}, client=lambda *_: {}, brokers=Brokers("")
    )
    task: Any = SinkTask(TaskId("tested", 0), {}, environment, lambda *_: None, lambda *_: None)
    runtime = SinkRuntimeSettings.model_validate({"name": "tested", "connector.class": "c", "topics": "t"})
    with pytest.raises(ConnectError, match='consumer cannot be used: No such configuration property: "no"') as failure:
        task._attempt(Closing, {}, runtime)
    assert not isinstance(failure.value, Retriable)
    assert closed == ["sink", "chain"]


def test_a_slow_target_is_handed_as_many_records_as_leave_time_for_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that takes longer than `max.poll.interval.ms` is never committed, and so written for ever."""
    now = 0.0
    asked: list[int] = []

    class Slow(Target):
        def write(self, batch: Any) -> None:
            nonlocal now
            now += 2.0 * len(batch)

    class Full(Grouped):
        def consume(self, most: int, _seconds: float) -> list[Any]:
            asked.append(most)
            return list(range(most))

    consumer = Full()
    task = task_with(Slow(), consumer)
    monkeypatch.setattr(sink_task, "time", SimpleNamespace(monotonic=lambda: now))

    def decoded(messages: list[Any], _chain: Any) -> Any:
        if len(asked) == 3:
            task.stop()
        return [record(MINE, offset) for offset in messages], {MINE: sum(asked)}

    task._decoded = decoded
    task._pump(None, 10_000, THERE)
    assert asked == [100, 15, 15]
    assert consumer.committed == [(0, 100), (0, 115), (0, 130)]


def test_a_position_that_the_log_does_not_reach_is_refused() -> None:
    """A topic that was made again begins at 0: what is below the position would pass for written."""
    target, consumer = Target(), Grouped()
    task = task_with(target, consumer)
    target.kept = {MINE: 5}
    task._assigned(consumer, [Place(*MINE)])
    assert consumer.assigned == [(0, 5)]
    target.kept = {MINE: 6}
    with pytest.raises(ConnectError, match="before offset 6 of t-0, whose end offset is 5") as refused:
        task._assigned(consumer, [Place(*MINE)])
    assert not isinstance(refused.value, Retriable)


@pytest.mark.parametrize("callback", ["_assigned", "_revoked"])
def test_an_error_of_the_client_in_a_callback_is_retried(callback: str) -> None:
    """The client library would raise it from `consume` as a KafkaError, which is no exception and ends the thread."""
    target, consumer = Target(), Grouped()
    task = task_with(target, consumer)
    task._next = {MINE: 5}

    def away(*_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    consumer.assign = consumer.commit = away  # type: ignore[method-assign]
    if callback == "_assigned":
        with pytest.raises(Retriable, match=r"(?i)timed out"):
            task._assigned(consumer, [Place(*MINE)])
    else:
        task._revoked(consumer, [Place(*MINE)])  # the next owner writes them again
        assert MINE not in task._owned


def test_a_task_that_runs_notices_that_its_topic_was_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_with(Target(), Grouped())
    now = {"t": LogIdentity("c", "first")}
    task._identify = lambda topics, shared=False: {topic: now[topic] for topic in topics}
    task._note_logs({"t"})
    task._next = {MINE: 7, OTHER: 3}
    task._flush()
    assert len(task._consumer.committed) == 2
    monkeypatch.setattr(time, "monotonic", lambda: task._look_at)
    now["t"] = LogIdentity("c", "second")
    task._next = {MINE: 8, OTHER: 3}
    with pytest.raises(ConnectError, match="topic t was deleted and made again since this sink got offset"):
        task._flush()
    assert len(task._consumer.committed) == 2, "nothing is committed to what is not the same"


def test_workers_with_state_in_files_have_places_of_their_own_in_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place(directory: str, machine: str, **settings: str) -> Any:
        (tmp_path / directory).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / directory)
        monkeypatch.setattr("socket.gethostname", lambda: machine)
        given = WorkerSettings.model_validate({name.replace("_", "."): text for name, text in settings.items()})
        task: Any = SimpleNamespace(_environment=SimpleNamespace(settings=given), id=TaskId("s", 0))
        return SinkTask._place(task, {})["group.instance.id"]

    file = {"offset_storage_file_filename": "connect.offsets"}
    places = [place("a", "one", **file), place("b", "one", **file), place("a", "two", **file)]
    assert len({*places}) == 3
    assert place("a", "one", **file) == places[0], "started again it has its place at once"
    assert place("a", "one", group_id="g") == place("b", "two", group_id="g") == "g-s-0"
