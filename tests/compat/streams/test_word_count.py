"""A Kafka Streams application with exactly_once_v2 is killed, resumes, hands over, and counts every word once: as a
classic group, and as a streams group, whose tasks and internal topics are the broker's (KIP-1071)."""

import random
import signal
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.freezing import freeze, thaw
from tests.support.genuine import TOOL_JVM_OPTIONS, cache_of, maven_libs
from tests.support.java_sources import compiled, java_command

_HERE: Final = Path(__file__).parent
_PARTITIONS: Final = 3
_WORDS: Final = [f"word-{number}" for number in range(40)]


class Task(NamedTuple):
    """What the application works on."""

    bootstrap: str
    application: str
    source: str
    sink: str
    protocol: str


class Instance:
    """One process of the application; its state directory outlives it."""

    def __init__(self, task: Task, name: str, directory: Path) -> None:
        self._task, self._name, self._directory = task, name, directory / name
        self._directory.mkdir()
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        libs = [maven_libs(_HERE / "pom.xml", cache_of("streams"))]
        where = (self._task.bootstrap, self._task.application, self._name, str(self._directory))
        what = (self._task.source, self._task.sink, self._task.protocol)
        command = java_command(
            compiled(_HERE / "WordCount.java", libs=libs),
            *("WordCount", *where, *what),
            libs=libs,
            jvm_options=TOOL_JVM_OPTIONS,
        )
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def end(self, how: signal.Signals) -> int:
        """Send a signal, wait for the end; the exit code."""
        assert self._process is not None
        self._process.send_signal(how)
        code = self._process.wait(40)
        self._process = None
        return code

    def kill_in_a_transaction(self) -> None:
        """SIGKILL at a moment at which records of an open transaction lie in the sink."""

        def caught_in_one() -> bool:
            assert self._process is not None
            freeze(self._process.pid)
            if end_of_sink(self._task, "read_uncommitted") > end_of_sink(self._task, "read_committed"):
                return True
            thaw(self._process.pid)
            return False

        eventually(caught_in_one, timeout_s=120)
        self.end(signal.SIGKILL)

    def log_text(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)


@contextmanager
def lines_coming(task: Task) -> Iterator[Callable[[], Counter[str]]]:
    """Produce lines of words, a few hundred a second, until the end; then the call gives how often each word was."""
    counts: Counter[str] = Counter()
    enough = threading.Event()

    def produce() -> None:
        chance = random.Random(4)
        producer = Producer({"bootstrap.servers": task.bootstrap, "linger.ms": 2, "enable.idempotence": True})
        number = 0
        while not enough.wait(0.01):
            for _ in range(5):
                words = chance.choices(_WORDS, weights=range(1, len(_WORDS) + 1), k=4)
                producer.produce(task.source, key=str(number), value=" ".join(words), partition=number % _PARTITIONS)
                counts.update(words)
                number += 1
            producer.poll(0)
        assert producer.flush(30) == 0

    def finish() -> Counter[str]:
        enough.set()
        thread.join()
        return counts

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield finish
    finally:
        finish()


def consumer(task: Task, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def end_of_sink(task: Task, isolation: str) -> int:
    """The sum of the offsets at which such a reader's partitions end; 0 while a broker has just started."""
    reader = consumer(task, isolation)
    try:
        places = [TopicPartition(task.sink, partition) for partition in range(_PARTITIONS)]
        return sum((reader.get_watermark_offsets(place, timeout=10) or (0, 0))[1] for place in places)
    except KafkaException:
        return 0
    finally:
        reader.close()


def read(task: Task, isolation: str) -> dict[str, list[int]]:
    """All counts of every word in the sink, which must rest, in the order of their offsets."""
    found: dict[str, list[int]] = defaultdict(list)
    reader = consumer(task, isolation)
    try:
        reader.assign([TopicPartition(task.sink, partition, 0) for partition in range(_PARTITIONS)])
        ended: set[int | None] = set()
        while len(ended) < _PARTITIONS:
            message = reader.poll(20)
            assert message is not None, f"{task.sink} ended nowhere"
            if message.error() is not None:
                ended.add(message.partition())
            else:
                found[(message.key() or b"").decode()].append(int(message.value() or b""))
    finally:
        reader.close()
    return found


def judge(task: Task, words: Counter[str]) -> None:
    """Wait until every word that was produced is counted; then each count of each word was given once, in order.

    Raises:
        AssertionError: they were not, or no transaction was cut short on the way, so that nothing was proved.
    """

    def all_counted() -> dict[str, list[int]] | None:
        found = read(task, "read_committed")
        return found if sum(map(len, found.values())) >= sum(words.values()) else None

    committed = eventually(all_counted, timeout_s=120, interval_s=0.5)
    assert committed == {word: list(range(1, count + 1)) for word, count in words.items()}
    uncommitted = read(task, "read_uncommitted")
    assert sum(map(len, uncommitted.values())) > sum(words.values())


def more(task: Task, beyond: int) -> int:
    """Wait until the sink's stable end is beyond so many records; where it is then."""
    return eventually(
        lambda: (now := end_of_sink(task, "read_committed")) > beyond and now, timeout_s=120, interval_s=0.2
    )


@pytest.fixture(params=[pytest.param("classic", marks=pytest.mark.soak), "streams"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def task(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, protocol: str) -> Task:
    return Task(bootstrap, new_name(), new_topic(_PARTITIONS), new_topic(_PARTITIONS), protocol)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_an_application_that_is_killed_counts_every_word_once(task: Task, tmp_path: Path) -> None:
    with Instance(task, "first", tmp_path) as first, Instance(task, "second", tmp_path) as second:
        with lines_coming(task) as finish:
            first.start()
            seen = more(task, 0)
            first.kill_in_a_transaction()
            first.start()  # on its directory, with its transactional id: it fences its predecessor's transaction
            seen = more(task, seen + 1000)
            second.start()
            eventually(lambda: second.log_text().count("RUNNING") >= 1, timeout_s=120)
            first.end(signal.SIGKILL)  # for good: its transaction is aborted by timeout, its tasks move
            more(task, seen + 1000)
            words = finish()
        judge(task, words)
        assert second.end(signal.SIGTERM) == 143


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_an_application_whose_broker_is_killed_counts_every_word_once(
    own_broker: BrokerProcess, tmp_path: Path, protocol: str
) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    for made in admin.create_topics([NewTopic(name, _PARTITIONS, 1) for name in ("source", "sink")]).values():
        made.result(30)
    task = Task(own_broker.bootstrap, "counts", "source", "sink", protocol)
    with Instance(task, "first", tmp_path) as first:
        with lines_coming(task) as finish:
            first.start()
            seen = 0
            for _ in range(2):
                seen = more(task, seen + 1000)
                own_broker.restart(kill=True)
            more(task, seen + 1000)
            first.kill_in_a_transaction()
            first.start()
            words = finish()
        judge(task, words)
        assert first.end(signal.SIGTERM) == 143
