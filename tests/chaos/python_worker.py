"""A worker with the clients of confluent-kafka: a process of its own, so that it can be killed in mid-transaction.

It reads one task a line from stdin and answers each with a line on stdout, both JSON; ends with its input. The Java
worker (`java/ChaosWorker.java`) does the same with the clients of Apache Kafka.
"""

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.chaos.checker import RELAY_INPUT, RELAY_OUTPUT, RELAYED

TIMEOUT_S: Final = 12.0
"""How long one call may take in all, retries included."""
STUCK_S: Final = TIMEOUT_S + 4
"""What a call takes that does not keep to it."""
POLL_S: Final = 0.1
MAX_RECORDS: Final = 200
MAX_RELAYED: Final = 40

_MOVED: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
)
"""Another broker leads a partition, or will soon, or its leader does not know yet what is committed."""

_QUIET: Final = {
    "log_level": 0,
    "error_cb": lambda error: None,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 2000,
    "topic.metadata.refresh.interval.ms": 5000,
    # librdkafka 2.16 forgets its brokers when the last one is gone, but not which of them coordinated a group: it then
    # waits for ever for the answer to a TxnOffsetCommit that it has not sent, with genuine Kafka too.
    "metadata.recovery.strategy": "none",
}


def _debug() -> dict[str, Any]:
    """What librdkafka shall tell, to the file of the worker's complaints."""
    contexts = os.environ.get("CHAOS_LIBRDKAFKA_DEBUG")
    return {"debug": contexts, "log_level": 7} if contexts else {}


class Failed(Exception):
    """The task has failed and will have no effect."""


class Unknown(Exception):
    """Whether the task had its effect is not known."""


def _error(problem: KafkaException) -> KafkaError:
    error = problem.args[0]
    assert isinstance(error, KafkaError)
    return error


def _retried(call: Callable[[], object]) -> None:
    """Call again while the client says that this may help, as its manual has it. Raises KafkaException."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            call()
        except KafkaException as problem:
            if not _error(problem).retriable() or time.monotonic() > deadline:
                raise
        else:
            return


FIRST: Final = 0
"""Where a partition begins that nothing is deleted from.

Not OFFSET_BEGINNING: when librdkafka 2.16 gets the answer to such a question after the partition was assigned anew, it
asks again half a second later, whatever has been assigned meanwhile, and goes back to the start (with any broker).
"""


def partition(key: str, offset: int = FIRST) -> TopicPartition:
    """What the client calls the partition that the history calls `key`."""
    topic, _, number = key.rpartition("-")
    return TopicPartition(topic, int(number), offset)


class Worker:
    """A producer, a transactional producer and a consumer, each made when it is first needed."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._bootstrap: str = settings["bootstrap"]
        self._transactional_id: str = settings["transactional_id"]
        self._transaction_timeout_ms: int = settings["transaction_timeout_ms"]
        self._group: dict[str, Any] = settings["group"]
        self._in_flight: int = settings["in_flight"]
        self._plain: Producer | None = None
        self._transactional: Producer | None = None
        self._consumer: Consumer | None = None
        self._subscribed = False
        self._positions: dict[str, int] = {}
        self._moved = False
        self._steps: list[Any] = []
        self._what = ""

    def do(self, task: dict[str, Any]) -> dict[str, Any]:
        """Carry out one task and say how it went; KafkaException from where it has no effect means that it failed."""
        self._steps, self._what = [], task["what"]
        before = dict(self._positions)
        state, error = "ok", None
        try:
            getattr(self, task["what"])(task)
        except (Failed, KafkaException) as problem:
            state, error = "fail", str(problem)
        except Unknown as problem:
            state, error = "info", str(problem)
        if state != "ok":
            self._rewind(before)
        moved, self._moved = self._moved, False
        answer = {"state": state, "what": task["what"], "steps": self._steps}
        if state == "info" and task["what"] == "relay":
            answer["has_ended"] = True  # whether it is committed, the group's offsets say: to another member
        return {**answer, **({"moved": True} if moved else {}), **({"error": error} if error else {})}

    # -- consuming ---------------------------------------------------------------------------------------------------

    def assign(self, task: dict[str, Any]) -> None:
        """Choose partitions; those it had are read on, unless `from_start`."""
        kept = {} if task.get("from_start") else self._positions
        self._positions = {key: kept.get(key, FIRST) for key in task["keys"]}
        self._the_consumer().assign([partition(key, offset) for key, offset in self._positions.items()])

    def subscribe(self, task: dict[str, Any]) -> None:
        """Have the group choose partitions."""
        self._subscribed = True
        self._positions = {}
        self._the_consumer().subscribe(
            task["keys"], on_assign=self._on_move, on_revoke=self._on_move, on_lost=self._on_move
        )

    def poll(self, task: dict[str, Any]) -> None:
        """Polls, and the group's offsets."""
        for _ in task["steps"]:
            self._poll()
        if self._subscribed and self._read_now():
            self._the_consumer().commit(offsets=self._offsets(), asynchronous=False)

    def audit(self, task: dict[str, Any]) -> None:
        """Read all to the end, which may have to wait for transactions to be given up.

        The end is asked for again when all has been read to it, until the answer is the same: a leader that has just
        been elected may not know at first how far it is committed.
        """
        keys = task["keys"]
        settings = {
            **_QUIET,
            "bootstrap.servers": self._bootstrap,
            "group.id": f"audit-{time.time_ns()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        records: dict[str, list[tuple[int, int]]] = {key: [] for key in keys}
        self._steps.append(["poll", records])
        reached = dict.fromkeys(keys, FIRST)
        deadline = time.monotonic() + task["seconds"]
        with (
            _closing(Consumer({**settings, "isolation.level": "read_uncommitted"})) as looker,
            _closing(Consumer({**settings, "isolation.level": "read_committed"})) as reader,
        ):
            reader.assign([partition(key) for key in keys])
            ends: dict[str, int] = {}
            while (now := {key: _end(looker, key) for key in keys}) != ends:
                ends = now
                _read_to(reader, ends, reached, records, deadline)

    def _the_consumer(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    **_QUIET,
                    "bootstrap.servers": self._bootstrap,
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 100,
                    "fetch.error.backoff.ms": 50,
                    **_debug(),
                    **self._group,
                }
            )
        return self._consumer

    def _poll(self, limit: int = MAX_RECORDS) -> list[tuple[str, int, int]]:
        """One poll: what came, as key, offset and value; also put among the steps."""
        consumer = self._the_consumer()
        first = consumer.poll(POLL_S)
        messages = [] if first is None else [first, *consumer.consume(limit, timeout=0)]
        found: dict[str, list[tuple[int, int]]] = {}
        records = []
        for message in messages:
            if message.error() is None:
                key, offset, value = f"{message.topic()}-{message.partition()}", message.offset(), _value(message)
                assert offset is not None
                found.setdefault(key, []).append((offset, value))
                records.append((key, offset, value))
                self._positions[key] = offset + 1
        self._steps.append(["poll", found])
        return records

    def _read_now(self) -> dict[str, int]:
        """First offset that the present task has read of each key."""
        firsts: dict[str, int] = {}
        for name, *rest in self._steps:
            if name == "poll":
                for key, records in rest[0].items():
                    firsts.setdefault(key, records[0][0])
        return firsts

    def _offsets(self) -> list[TopicPartition]:
        return [partition(key, self._positions[key]) for key in self._read_now()]

    def _rewind(self, before: dict[str, int]) -> None:
        """Stand again where the task began."""
        firsts = self._read_now()
        if self._consumer is None or not firsts:
            return
        if not self._subscribed:
            self._positions = before
            self._consumer.assign([partition(key, offset) for key, offset in before.items()])
            return
        held = {f"{one.topic}-{one.partition}" for one in self._consumer.assignment()}
        for key in firsts.keys() & held:
            self._positions[key] = firsts[key]
            self._consumer.seek(partition(key, firsts[key]))

    def _on_move(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._moved = True

    # -- producing ---------------------------------------------------------------------------------------------------

    def send(self, task: dict[str, Any]) -> None:
        """Records outside transactions."""
        if self._plain is None:
            self._plain = Producer(
                {
                    **_QUIET,
                    "bootstrap.servers": self._bootstrap,
                    "enable.idempotence": True,
                    "max.in.flight.requests.per.connection": self._in_flight,
                    "linger.ms": 0,
                    "retry.backoff.ms": 50,
                    "message.timeout.ms": int(TIMEOUT_S * 1000),
                }
            )
        errors: list[str] = []
        try:
            for step in task["steps"]:
                if step[0] == "wait":
                    time.sleep(step[1])
                else:
                    self._produce(self._plain, step[1], step[2], errors)
        except KafkaException as problem:  # what was sent before may be in the log
            errors.append(str(problem))
        unsent = self._plain.flush(TIMEOUT_S + 5)
        if errors or unsent:
            self._plain.purge()
            self._plain = None
            raise Unknown(errors[0] if errors else "not flushed in time")

    def txn(self, task: dict[str, Any]) -> None:
        """Sends and polls in one transaction."""

        def body(producer: Producer, errors: list[str]) -> None:
            for step in task["steps"]:
                if step[0] == "send":
                    self._produce(producer, step[1], step[2], errors)
                elif step[0] == "poll":
                    self._poll()
                else:
                    time.sleep(step[1])

        self._in_transaction(body)

    def relay(self, task: dict[str, Any]) -> None:
        """From the topic `in` to the topic `out`."""

        def body(producer: Producer, errors: list[str]) -> None:
            for key, _, value in self._poll(MAX_RELAYED):
                self._produce(producer, key.replace(RELAY_INPUT, RELAY_OUTPUT), value + RELAYED, errors)
            time.sleep(task.get("seconds", 0))

        self._in_transaction(body)

    def _in_transaction(self, body: Callable[[Producer, list[str]], None]) -> None:
        producer = self._the_transactional()
        committing = False
        try:
            producer.begin_transaction()
            errors: list[str] = []
            body(producer, errors)
            unsent = producer.flush(TIMEOUT_S)
            if errors or unsent:
                raise Failed(errors[0] if errors else "not flushed in time")
            if self._subscribed and self._read_now():
                group = self._the_consumer().consumer_group_metadata()
                with self._unless_stuck():
                    _retried(lambda: producer.send_offsets_to_transaction(self._offsets(), group, TIMEOUT_S))
            committing = True
            _retried(lambda: producer.commit_transaction(TIMEOUT_S))
        except (Failed, KafkaException) as problem:
            if not self._aborted(producer, problem) and committing:
                raise Unknown(f"while committing: {problem}") from problem
            raise Failed(str(problem)) from problem

    @contextmanager
    def _unless_stuck(self) -> Iterator[None]:
        """End this process if what is done here does not end: nothing has been committed then, and never will be.

        librdkafka 2.16 does not keep to the timeout of `send_offsets_to_transaction`, and does not come back from it
        when the group's coordinator has gone from the metadata: its issues 5456 and 5511.
        """

        def leave() -> None:
            answer = {"state": "fail", "what": self._what, "steps": self._steps, "error": "stuck in the client library"}
            print(json.dumps({**answer, "has_ended": True}), flush=True)
            os._exit(0)

        timer = threading.Timer(STUCK_S, leave)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _aborted(self, producer: Producer, problem: Exception) -> bool:
        """Abort what is under way; whether that has succeeded. If not, the producer is given up."""
        try:
            if isinstance(problem, KafkaException) and _error(problem).fatal():
                raise problem
            _retried(lambda: producer.abort_transaction(TIMEOUT_S))
        except KafkaException:
            producer.purge()
            self._transactional = None
            return False
        return True

    def _the_transactional(self) -> Producer:
        if self._transactional is None:
            producer = Producer(
                {
                    **_QUIET,
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": self._transactional_id,
                    "transaction.timeout.ms": self._transaction_timeout_ms,
                    "linger.ms": 0,
                    "retry.backoff.ms": 50,
                    "message.timeout.ms": self._transaction_timeout_ms,
                    **_debug(),
                }
            )
            _retried(lambda: producer.init_transactions(TIMEOUT_S))
            self._transactional = producer
        return self._transactional

    def _produce(self, producer: Producer, key: str, value: int, errors: list[str]) -> None:
        step: list[Any] = ["send", key, value]
        self._steps.append(step)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(str(error))
            else:
                offset = message.offset()
                assert offset is not None
                step.append(offset)

        to = partition(key)
        producer.produce(to.topic, str(value), partition=to.partition, on_delivery=delivered)


def _end(looker: Consumer, key: str) -> int:
    """The high watermark of a partition; asked again while its leader is another than the client believes."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return looker.get_watermark_offsets(partition(key), timeout=TIMEOUT_S)[1]
        except KafkaException as refused:
            if _error(refused).code() not in _MOVED or time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def _read_to(
    reader: Consumer,
    ends: dict[str, int],
    reached: dict[str, int],
    records: dict[str, list[tuple[int, int]]],
    deadline: float,
) -> None:
    """Read all to `ends`, which the reader may have `reached` already. Raises Unknown after the deadline."""
    while missing := [key for key, end in ends.items() if reached[key] < end]:
        if time.monotonic() > deadline:
            raise Unknown(f"not read to the end: {', '.join(sorted(missing))}")
        for message in reader.consume(1000, timeout=POLL_S):
            key = f"{message.topic()}-{message.partition()}"
            error, offset = message.error(), message.offset()
            assert offset is not None
            if error is None:
                records[key].append((offset, _value(message)))
            elif error.code() == KafkaError._PARTITION_EOF:
                reached[key] = max(reached[key], offset)


def _value(message: Message) -> int:
    value = message.value()
    assert isinstance(value, bytes)
    return int(value)


@contextmanager
def _closing(consumer: Consumer) -> Iterator[Consumer]:
    try:
        yield consumer
    finally:
        consumer.close()


def main(settings: str, tasks: Iterable[str]) -> None:
    """Work until the tasks end; print all stacks to stderr on SIGUSR1."""
    faulthandler.register(signal.SIGUSR1)
    worker = Worker(json.loads(settings))
    for task in tasks:
        answer = worker.do(json.loads(task))
        print(json.dumps(answer), flush=True)
        if answer.get("has_ended"):
            os._exit(0)  # not waiting for clients that cannot reach their brokers


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin)
