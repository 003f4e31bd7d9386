"""What tasks do where something goes wrong: dead letters, offsets, rests without a position, answers of brokers."""

import itertools
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException

from ottla.connect.api import ConnectError, Part, Position, Retriable, SinkRecord, SourceRecord, TopicPartition
from ottla.connect.errors import Fenced, of_brokers
from ottla.connect.herder.state import TaskId
from ottla.connect.log_identity import LogIdentity
from ottla.connect.records import Progress
from ottla.connect.runtime import handling, logs, sink_offsets, source_task
from ottla.connect.runtime.brokers import Brokers, Lifeline
from ottla.connect.runtime.chain import Encoded
from ottla.connect.runtime.connector_config import SourceRuntimeSettings
from ottla.connect.runtime.figures import ErrorFigures, TaskFigures
from ottla.connect.runtime.handling import DeadLetters
from ottla.connect.runtime.logs import TopicLogs
from ottla.connect.runtime.secrets import Secrets
from ottla.connect.runtime.sink_task import SinkTask
from ottla.connect.runtime.source_task import SourceTask
from ottla.connect.runtime.transaction_boundary import Phase, TransactionBoundary

TASK = TaskId("tested", 0)
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Letters:
    """A producer that answers when it is flushed."""

    error: KafkaError | None = None

    def __init__(self, _settings: Any) -> None:
        self.waiting: list[tuple[dict[str, Any], Callable[..., None]]] = []
        self.sent: list[dict[str, Any]] = []

    def produce(self, _topic: str, *, on_delivery: Callable[..., None], **record: Any) -> None:
        self.waiting.append((record, on_delivery))

    def poll(self, _seconds: float) -> None: ...

    def flush(self, _seconds: float) -> int:
        for record, told in self.waiting:
            self.sent.append(record)
            told(self.error, None)
        self.waiting.clear()
        return 0


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> DeadLetters:
    monkeypatch.setattr(
        handling, "AdminClient", lambda _: SimpleNamespace(list_topics=lambda **_: SimpleNamespace(topics={"dead"}))
    )
    monkeypatch.setattr(handling, "Producer", Letters)
    return DeadLetters(
        "dead", 1, {}, headers=True, task=TASK, clean=lambda text: text.replace("correct horse", "[hidden]"),
        figures=ErrorFigures(),
    )  # fmt: skip


def record(partition: int = 0, offset: int = 7) -> SinkRecord:
    return SinkRecord(
        topic="t", value=None, partition=partition, origin=TopicPartition("t", partition), offset=offset,
        raw_key=b"k", raw_value=b"v", raw_headers=(),
    )  # fmt: skip


def test_a_dead_letter_is_in_its_topic_before_the_sink_goes_on_and_has_no_secrets(letters: DeadLetters) -> None:
    letters.add("TASK_PUT", "Sink", ValueError("no correct horse here"), record())
    (sent,) = letters._producer.sent  # type: ignore[attr-defined]
    headers = dict(sent["headers"])
    assert headers["__connect.errors.exception.message"] == b"no [hidden] here"
    assert b"correct horse" not in headers["__connect.errors.exception.stacktrace"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(KafkaError.NOT_LEADER_FOR_PARTITION, Retriable), (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConnectError)],
)
def test_only_what_does_not_pass_fails_a_task(
    letters: DeadLetters, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[ConnectError]
) -> None:
    monkeypatch.setattr(Letters, "error", KafkaError(code))
    with pytest.raises(ConnectError) as refused:
        letters.add("TASK_PUT", "Sink", ValueError("no"), record())
    assert type(refused.value) is kind
    assert type(of_brokers(KafkaError(code), "no")) is kind


def test_partitions_that_flush_does_not_name_are_durable() -> None:
    committed: list[Any] = []
    task: Any = SinkTask.__new__(SinkTask)
    task.figures = TaskFigures()
    task._owned, task._next, task._committed, task._dead = {FIRST, SECOND}, {FIRST: 5, SECOND: 9}, {}, None
    task._look_at, task.context = float("inf"), SimpleNamespace(identity=lambda _: LogIdentity())
    task._sink = SimpleNamespace(flush=lambda: {FIRST: 3})
    task._consumer = SimpleNamespace(commit=lambda offsets, asynchronous: committed.extend(offsets))
    task._flush()
    assert {(each.partition, each.offset) for each in committed} == {(0, 3), (1, 9)}


def test_offsets_are_asked_with_secrets_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sink_offsets, "_admin", lambda config, _environment: asked.append(config["admin.override.x"]))

    def committed(_admin: Any, group: str) -> list[Any]:
        asked.append(group)
        return []

    monkeypatch.setattr(sink_offsets, "_committed", committed)
    monkeypatch.setattr(sink_offsets, "_reset", lambda _admin, group: asked.append(group))
    monkeypatch.setattr(sink_offsets, "_alterable", lambda *_: None)
    monkeypatch.setattr(sink_offsets, "_alter_in_target", lambda *_: None)
    environment: Any = SimpleNamespace(tracer=None, secrets=Secrets({"GROUP": "mine"}))
    config = {"consumer.override.group.id": "${env:GROUP}", "admin.override.x": "${env:GROUP}"}
    sink_offsets.committed("tested", config, environment)
    sink_offsets.reset("tested", config, environment)
    assert asked == ["mine"] * 4


class Transactions:
    """Remembers what each transaction had."""

    transactional = True

    def __init__(self) -> None:
        self.open: list[Any] = []
        self.done: list[list[Any]] = []
        self.warning: str | None = None

    def send(self, sent: Any) -> None:
        self.open.append(sent.value)

    def move(self, _part: Part, position: Position) -> None:
        self.open.append(position["at"])

    client = None

    def commit(self) -> list[tuple[Part, Position]]:
        if self.open:
            self.done.append(self.open)
        self.open = []
        return []


def boundary(kind: str = "poll", *, gives_positions: bool = True, longest_s: float = 60.0) -> TransactionBoundary:
    """A second passes whenever it looks at the clock, so that every item is over it."""
    return TransactionBoundary(
        SourceRuntimeSettings.model_construct(transaction_boundary=kind, transaction_boundary_interval_ms=90_000),
        flush_s=60.0,
        transactional=True,
        longest_s=longest_s,
        gives_positions=gives_positions,
        clock=itertools.count().__next__,
    )


def run(items: list[Any], start: Position | None, *, longest_s: float = 60.0) -> Transactions:
    """Every item is over the boundary; the task is stopped after the last."""
    environment: Any = SimpleNamespace(tracer=None, settings=SimpleNamespace(), positions=SimpleNamespace())
    task: Any = SourceTask(TASK, {}, environment, lambda *_: None, lambda *_: None)
    task.context.log = logging.getLogger("tested")

    def read(_position: Position | None) -> Iterator[Any]:
        for number, item in enumerate(items, 1):
            if number == len(items):
                task.stop()
            yield item

    source: Any = SimpleNamespace(part=dict, read=read, committed=lambda *_: None, changed_at=lambda *_: None)
    chain: Any = SimpleNamespace(encode=lambda each: each)
    writer = Transactions()
    task._topics.add("t")
    limits = boundary(gives_positions=start is not None, longest_s=longest_s)
    task._pump(source, start, chain, writer, limits, {}, Lifeline(Brokers("")))
    writer.warning = task.context.warning
    return writer


def test_records_after_the_last_position_wait_for_the_next() -> None:
    items = [SourceRecord(topic="t", value=n) for n in "ab"]
    given = run([*items, Progress(position={"at": 1}), *items], {"at": 0})
    assert given.done == [["a", "b", 1]]
    assert given.open == ["a", "b"]  # aborted when the writer closes
    assert run(items, None).done == [["a"], ["b"]]  # a source without positions


def test_a_transaction_ends_before_the_brokers_abort_it_and_the_status_says_so() -> None:
    items = [SourceRecord(topic="t", value=n) for n in "ab"]
    given = run([*items, Progress(position={"at": 1})], {"at": 0}, longest_s=0.0)
    assert given.done == [["a"], ["b"], [1]]
    assert given.warning is not None
    assert given.warning.startswith("the source has given no position for half of transaction.timeout.ms")


def test_a_transaction_by_time_ends_before_the_brokers_abort_it() -> None:
    by_time = boundary("interval")
    by_time.taken([SourceRecord(topic="t", value="a", position={"at": 1})], together=False)
    seconds = next(n for n in itertools.count(1) if by_time.over())
    assert 20 < seconds <= 30


def test_a_list_ends_a_transaction_of_the_connectors_choice() -> None:
    of_lists = boundary("connector")
    one = SourceRecord(topic="t", value="a", position={"at": 1})
    of_lists.taken([one, one], together=True)
    assert of_lists.over()
    of_lists.taken([one, SourceRecord(topic="t", value="b")], together=True)
    assert not of_lists.over()  # the rest would come again


@pytest.mark.parametrize(
    ("positions", "gives_positions", "transactional", "phase"),
    [
        ([1], False, True, Phase.AT_POSITION),
        ([None, 1], True, True, Phase.AT_POSITION),
        ([1, None], False, True, Phase.BEYOND_POSITION),
        ([None], True, True, Phase.BEYOND_POSITION),
        ([None], False, True, Phase.COMMITTABLE),
        ([None], True, False, Phase.COMMITTABLE),
    ],
)
def test_what_may_be_committed_depends_on_the_positions(
    positions: list[int | None], gives_positions: bool, transactional: bool, phase: Phase
) -> None:
    runtime = SourceRuntimeSettings.model_construct(transaction_boundary="poll", transaction_boundary_interval_ms=None)
    of_some = TransactionBoundary(
        runtime, flush_s=1.0, transactional=transactional, longest_s=60.0, gives_positions=gives_positions
    )
    taken = [SourceRecord(topic="t", value="a", position=None if at is None else {"at": at}) for at in positions]
    of_some.taken(taken, together=True)
    assert of_some.phase is phase
    of_some.committed(0.0)
    assert of_some.phase is Phase.AT_POSITION


@pytest.mark.parametrize(("position", "committed"), [({"at": 2}, [["a", "b", 2]]), (None, [])])
def test_a_source_that_asks_for_another_try_keeps_what_has_a_position(position: Position, committed: list[Any]) -> None:
    def read(_position: Position | None) -> Iterator[Any]:
        yield SourceRecord(topic="t", value="a")
        yield SourceRecord(topic="t", value="b", position=position)
        raise Retriable("away")

    environment: Any = SimpleNamespace(tracer=None, settings=SimpleNamespace(), positions=SimpleNamespace())
    task: Any = SourceTask(TASK, {}, environment, lambda *_: None, lambda *_: None)
    source: Any = SimpleNamespace(part=dict, read=read, committed=lambda *_: None, changed_at=lambda *_: None)
    writer = Transactions()
    task._topics.add("t")
    limits = boundary("interval")
    with pytest.raises(Retriable, match="away"):
        task._pump(source, {}, SimpleNamespace(encode=lambda each: each), writer, limits, {}, Lifeline(Brokers("")))
    assert writer.done == committed


def answer(error: KafkaError | None) -> Any:
    place = SimpleNamespace(error=error)
    return {"g": SimpleNamespace(result=lambda _seconds: SimpleNamespace(topic_partitions=[place]))}


def test_offsets_that_a_group_with_members_refuses_are_not_changed_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    refuses = KafkaError(KafkaError.UNKNOWN_MEMBER_ID)
    admin = SimpleNamespace(alter_consumer_group_offsets=lambda _, **_options: answer(refuses))
    monkeypatch.setattr(sink_offsets, "_admin", lambda *_: admin)
    monkeypatch.setattr(sink_offsets, "_alterable", lambda *_: None)
    monkeypatch.setattr(sink_offsets, "_alter_in_target", lambda *arguments: told.append(arguments))
    environment: Any = SimpleNamespace(tracer=None, secrets=Secrets({}))
    wanted = {"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 5}}
    with pytest.raises(Retriable, match="its tasks have not ended yet: try again"):
        sink_offsets.alter("tested", {}, [wanted], environment)
    assert told == []
    admin.alter_consumer_group_offsets = lambda _, **_options: answer(None)
    sink_offsets.alter("tested", {}, [wanted], environment)
    assert len(told) == 1
    negative = {**wanted, "offset": {"kafka_offset": -1}}
    with pytest.raises(ValueError, match="The offset -1 of partition 0 of topic t is negative"):
        sink_offsets.alter("tested", {}, [negative], environment)
    assert len(told) == 1


def refusal(code: int) -> Any:
    def result(_seconds: float) -> None:
        raise KafkaException(KafkaError(code))

    return SimpleNamespace(create_topics=lambda _new, **_: {"t": SimpleNamespace(result=result)})


@pytest.mark.parametrize(
    ("code", "kind"),
    [(KafkaError.NOT_CONTROLLER, Retriable), (KafkaError.POLICY_VIOLATION, ConnectError)],
)
def test_a_topic_that_cannot_be_made_while_the_controller_changes_is_made_later(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[ConnectError]
) -> None:
    environment: Any = SimpleNamespace(tracer=None, settings=SimpleNamespace(topic_creation_enable=True))
    task: Any = SourceTask(TASK, {}, environment, lambda *_: None, lambda *_: None)
    monkeypatch.setattr(source_task, "AdminClient", lambda _: refusal(code))
    wanted = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}
    with pytest.raises(ConnectError, match="topic t cannot be made") as refused:
        task._new_topic("t", wanted)
    assert type(refused.value) is kind


class Moving:
    """A producer whose coordinator is moving."""

    def __init__(self, _settings: Any) -> None: ...

    def init_transactions(self, _seconds: float) -> None:
        raise KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))

    def begin_transaction(self) -> None: ...

    def produce(self, *_: Any, **__: Any) -> None: ...

    def commit_transaction(self, _seconds: float) -> None:
        raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION, "moved", txn_requires_abort=True))

    def abort_transaction(self, _seconds: float) -> None: ...


def test_the_worker_leads_and_writes_configurations_later_if_brokers_are_in_a_failover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "Producer", Moving)
    topics = TopicLogs({"configs": ("c", 1, 1)}, {}, "leader", lambda *_: None)
    with pytest.raises(Retriable, match="this worker cannot lead"):
        topics.lead()
    assert not topics.leads
    topics._producer = Moving({})  # type: ignore[assignment]
    with pytest.raises(Fenced, match="c is written by the leader alone"):
        topics.put("configs", b"task-tested-0", b"v")
    topics._leader = topics._producer
    with pytest.raises(Retriable, match="c cannot be written"):
        topics.put("configs", b"k", b"v")
    assert topics.leads


def test_positions_are_read_to_the_end_beyond_open_transactions() -> None:
    asked: list[IsolationLevel] = []

    def list_offsets(_wanted: Any, *, isolation_level: IsolationLevel, **_: Any) -> dict[Any, Any]:
        asked.append(isolation_level)
        return {}

    topics = TopicLogs({"offsets": ("o", 1, 1), "configs": ("c", 1, 1)}, {}, "leader", lambda *_: None)
    topics._admin = SimpleNamespace(list_offsets=list_offsets)  # type: ignore[assignment]
    topics.catch_up("offsets")
    topics.catch_up("configs")
    assert asked == [IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED]


def test_why_a_record_was_not_taken_is_found_out_when_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Moving):
        def produce(self, *_: Any, on_delivery: Any = None, **__: Any) -> None:
            if on_delivery is not None:
                on_delivery(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), SimpleNamespace(topic=lambda: "orders"))

    monkeypatch.setattr(source_task, "Producer", Refusing)
    environment: Any = SimpleNamespace(tracer=None, settings=SimpleNamespace(group_id="g"))
    writer = source_task.TransactionalWriter(TASK, {}, environment)
    sent = Encoded("orders", None, b"v", [], None, None)
    writer.send(sent)
    with pytest.raises(KafkaException):
        writer.commit()
    writer = source_task.TransactionalWriter(TASK, {}, environment)
    writer.explains = True
    writer.send(sent)
    with pytest.raises(ConnectError, match=r"refuse what this task writes \(orders\): .*too large"):
        writer.commit()


def test_a_list_of_nothing_is_nothing() -> None:
    one = SourceRecord(topic="t", value="a", position={"at": 1})
    assert run([one, [], SourceRecord(topic="t", value="b")], {"at": 0}).done == [["a", 1]]
