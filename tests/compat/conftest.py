"""One broker for all client suites: `ottla serve`, or genuine Kafka with OTTLA_COMPAT_TARGET=genuine.

A suite that fails against genuine Kafka tests something else than compatibility. What fails against Ottla alone is
listed in `known_failures.txt`; the list is run, and an entry that passes fails the run, so it can only shrink.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess

_HERE = Path(__file__).parent
_KNOWN_FAILURES = _HERE / "known_failures.txt"
_TARGETS: dict[str, type[BrokerProcess]] = {"ottla": OttlaProcess, "genuine": GenuineKafka}
_PROPERTIES = {
    "offsets.topic.num.partitions": "10",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "6000",
    "transaction.state.log.num.partitions": "10",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # the samples are of 1970, which retention, that looks half a minute after the start, would find too old
    "log.initial.task.delay.ms": "86400000",
}


def _target() -> str:
    target = os.environ.get("OTTLA_COMPAT_TARGET", "ottla")
    if target not in _TARGETS:
        raise pytest.UsageError(f"OTTLA_COMPAT_TARGET is {target!r}; it can be {' or '.join(_TARGETS)}")
    return target


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Expect the failures that are listed, and refuse a list that names tests which do not exist."""
    lines = [line.partition("#")[0].strip() for line in _KNOWN_FAILURES.read_text().splitlines()]
    known = {line for line in lines if line}
    ours = [item for item in items if _HERE in item.path.parents]
    if _target() == "ottla":
        for item in ours:
            if item.nodeid in known:
                item.add_marker(pytest.mark.xfail(strict=True, reason="listed in known_failures.txt"))
    selected = bool(config.option.keyword or config.option.markexpr or config.option.lf)
    whole = {str(argument).rstrip("/") for argument in config.args} & {"tests", "tests/compat"}
    if whole and not selected and (unknown := known - {item.nodeid for item in ours}):
        raise pytest.UsageError(f"{_KNOWN_FAILURES.name} names tests that do not exist: {sorted(unknown)}")


def _coordinates_groups(bootstrap: str) -> bool:
    """Make the topic of the groups' commits, which not every client waits for, by asking for a group."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "compat-first"})
    try:
        client.committed([TopicPartition("none", 0)], timeout=10)
    except KafkaException:
        return False
    finally:
        client.close()
    return True


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    """The broker under test, shared by the whole run; afterwards its log must be free of Python tracebacks."""
    with _TARGETS[_target()](properties=_PROPERTIES) as process:
        eventually(lambda: _coordinates_groups(process.bootstrap))
        yield process
        log = process.log_text()
        start = log.find("Traceback (most recent call last)")
        assert start < 0, f"the broker logged a traceback:\n{log[max(0, start - 500) : start + 3000]}"


@pytest.fixture
def own_broker() -> Iterator[BrokerProcess]:
    """A broker of the test's own, which it may kill."""
    with _TARGETS[_target()](properties=_PROPERTIES) as process:
        yield process


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> Iterator[str]:
    """`host:port` of the broker, which must survive the test."""
    yield broker.bootstrap
    assert broker.is_alive(), f"the broker died during the test\n{broker.log_tail()}"


@pytest.fixture
def new_name() -> NewNameFactory:
    """Gives names for topics and groups that nothing else uses."""
    return lambda: f"compat-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_topic(bootstrap: str, new_name: NewNameFactory) -> NewTopicFactory:
    """Creates a topic: `new_topic(partitions, **{"cleanup.policy": "compact"})` returns its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(partitions: int = 1, **settings: str) -> str:
        name = new_name()
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)

        def has_leaders() -> bool:
            topic = admin.list_topics(name, timeout=10).topics[name]
            return topic.error is None and [p.leader for p in topic.partitions.values()] == [1] * partitions

        eventually(has_leaders)
        return name

    return create
