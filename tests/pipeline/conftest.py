"""One broker and one Spark session for all tests of the pipeline.

OTTLA_PIPELINE_TARGET=genuine runs them against genuine Kafka: the pipeline is a client like any other.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from ottla.pipeline import class_archive, session
from ottla.pipeline.java import JavaNotFoundError, find_java
from tests.pipeline.topic import Topic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.spark_connector import connector_settings


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test pays for the start of Spark, on machines that may be busy."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have the archive of Spark's classes made, once for all workers, before most tests would start without it."""
    worker = getattr(session.config, "workerinput", {}).get("workerid")
    if worker == "gw0" and any(Path(__file__).parent in item.path.parents for item in session.items):
        with suppress(JavaNotFoundError):
            class_archive.jvm_options(find_java())


def broker_kind() -> type[OttlaProcess] | type[GenuineKafka]:
    """What the tests run against."""
    return GenuineKafka if os.environ.get("OTTLA_PIPELINE_TARGET", "ottla") == "genuine" else OttlaProcess


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    # records of the tests are of any time, which retention, half a minute after the start, would find too old
    properties = {"log.initial.task.delay.ms": "86400000"}
    with broker_kind()(properties=properties) as process:
        yield process
        assert "Traceback" not in process.log_text(), process.log_tail()


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def spark(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Has Spark's own connector too (`format("kafka")`). Depends on the broker so as to be stopped before it."""
    context = session.launch("ottla-tests", tmp_path_factory.mktemp("spark"), cores=2, settings=connector_settings())
    yield session.open_session()
    session.stop(context)


class TopicFactory:
    """Creates topics that nothing else uses."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def __call__(self, partitions: int = 1, *, name: str | None = None, config: dict[str, str] | None = None) -> Topic:
        name = name or f"pipeline-{uuid.uuid4().hex[:12]}"
        self._admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(30)

        def is_led() -> bool:
            found = self._admin.list_topics(name, timeout=10).topics[name]
            return found.error is None and len([p for p in found.partitions.values() if p.leader >= 0]) == partitions

        eventually(is_led)
        return Topic(self._bootstrap, name)


@pytest.fixture
def new_topic(bootstrap: str) -> TopicFactory:
    return TopicFactory(bootstrap)
