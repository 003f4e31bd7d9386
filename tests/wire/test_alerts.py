"""The alert rules and dashboards that ship, in a real Prometheus: alerts fire, and end.

Main ones are caused for real. All of them are tried with Prometheus' rule tester, on the series of real processes.
"""

import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.alert_stories import STORIES, Series, series_of, trouble_with
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.prometheus import Prometheus
from tools.dashboards import DASHBOARDS, FOLDER, text
from tools.docs.markdown import ROOT
from tools.docs.metrics import TABLES

from ottla.metrics.exposition import expose
from ottla.metrics.families import Measurements
from ottla.metrics.process import serving_metrics
from ottla.pipeline.metrics import RunMetrics
from ottla.pipeline.run_store import FAILED, RUNNING
from ottla.pipeline.supervised import Supervised
from ottla.server.metrics import catalog
from ottla.testing import ConnectWorker

RULES_FILE = ROOT / "deploy/prometheus/alerts.yml"
RULES = RULES_FILE.read_text(encoding="utf-8")
OTHERS = {"up", "process_open_fds", "process_max_fds", "process_cpu_seconds_total", "process_resident_memory_bytes"}


@pytest.fixture(scope="module")
def broker() -> Iterator[OttlaProcess]:
    started = OttlaProcess()
    started.properties["metrics.listeners"] = f"http://127.0.0.1:{free_port()}"
    started.properties["transaction.max.timeout.ms"] = "3600000"
    with started:
        yield started


class Run(NamedTuple):
    """A run as its watch shows it, without Spark: its flow has what figures and state a test gives it."""

    query: Supervised
    port: int


@contextmanager
def run_without_spark() -> Iterator[Run]:
    nothing: Any = None
    planned: Any = SimpleNamespace(name="hourly", start=lambda *_: nothing)
    query = Supervised(planned, nothing, Path("/checkpoint"))
    figures = query.progress.figures
    figures.lag_records, figures.lag_s, figures.batch_ms, figures.rate = 0, 0.0, 200, 5.0
    figures.watermark, figures.state_bytes = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()), 60_000_000
    figures.rejected, figures.rejected_by = 5, {"has carrier": 3}
    figures.expectations = {"early": {"is early": {"otherwise": "warn", "rows": 1}}}
    shown = RunMetrics("orders")
    shown.record = SimpleNamespace(error=None, started_at=time.time())  # type: ignore[assignment]
    shown.queries = [query]
    with serving_metrics("http://127.0.0.1:0", shown.gather, shown.health) as (port,):
        yield Run(query, port)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with run_without_spark() as shown:
        yield shown


@pytest.fixture(scope="module")
def worker(broker: OttlaProcess) -> Iterator[ConnectWorker]:
    with ConnectWorker(broker.bootstrap, {"metrics.listeners": "http://127.0.0.1:0"}) as started:
        started.put("numbers", {"connector.class": "tests.connect.connectors.Numbers", "topic": "numbers"})
        started.put("lost", {"connector.class": "tests.connect.evil.Evil", "mode": "no tasks"})
        started.put("strict", {"connector.class": "tests.connect.connectors.Fragile", "topics": "numbers"})
        started.wait("strict", "RUNNING")
        eventually(lambda: started.request("GET", "/connectors/lost/status")["connector"]["state"] == "FAILED")
        yield started


def targets(broker: OttlaProcess, worker: ConnectWorker, run: Run) -> list[str]:
    assert worker.server is not None
    of_broker = broker.properties["metrics.listeners"].removeprefix("http://")
    return [of_broker, *(f"127.0.0.1:{port}" for port in (*worker.server.metrics_ports, run.port))]


@pytest.fixture(scope="module")
def prometheus(broker: OttlaProcess, worker: ConnectWorker, run: Run) -> Iterator[Prometheus]:
    with Prometheus(targets(broker, worker, run), RULES) as started:
        eventually(lambda: started.query("sum(up) == 3"))
        yield started


@pytest.fixture(scope="module")
def served(broker: OttlaProcess, worker: ConnectWorker, run: Run) -> Series:
    """Everything that the three processes serve, among it what a group has committed, and a request to produce."""
    connect: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap}
    producer = Producer(connect)
    producer.produce("read", b"x")
    assert producer.flush(20) == 0
    consumer = Consumer({**connect, "group.id": "reads", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("read", 0, 1)], asynchronous=False)
    consumer.close()
    found: Series = {}
    for target in targets(broker, worker, run):

        def scraped(target: str = target) -> str:
            with urllib.request.urlopen(f"http://{target}/metrics", timeout=20) as answer:
                body: bytes = answer.read()
            return body.decode()

        if target == targets(broker, worker, run)[0]:
            eventually(lambda: 'consumergroup="reads"' in scraped())
        found |= series_of(scraped(), target)
    return found | series_of(of_what_is_rare(), targets(broker, worker, run)[0])


def of_what_is_rare() -> str:
    """Series that a broker has only once there was an error, a quota, a log to compact or a share group, and those of a
    controller.

    That they are there then, tests/wire/test_metrics.py and test_quorum_nodes.py show.
    """
    to = Measurements()
    to.add(catalog.ERRORS, 0, "Produce", "KAFKA_STORAGE_ERROR")
    to.add(catalog.THROTTLE_TIME, 0, "producer_byte_rate")
    to.add(catalog.DIRTY_RATIO, 0.1, "t", "0")
    to.add(catalog.DIRTY_BYTES, 1e6, "t", "0")
    to.add(catalog.SHARE_DELIVERED, 0, "g")
    to.add(catalog.SHARE_REDELIVERED, 0, "g")
    to.add(catalog.VOTER_LAG, 0, "2")
    to.add(catalog.FENCED_BROKERS, 0)
    return expose(to, "").body.decode()


def fires(prometheus: Prometheus, alert: str) -> str:
    """The sentence of an alert, once it fires."""
    return eventually(lambda: prometheus.firing().get(alert), timeout_s=60)


def metrics_in(expression: str) -> set[str]:
    names = re.findall(r"\b[a-z]+(?:_[a-z]+)+(?=[{\[ )]|$)|\bup\b", expression)
    return {name.removesuffix("_sum").removesuffix("_count") for name in names} - {
        "predict_linear",
        "min_over_time",
        "humanize_duration",
    }


def test_rules_and_dashboards_read_only_metrics_that_there_are() -> None:
    declared = {family.name for families in TABLES.values() for family in families} | OTHERS
    declared |= {name.removesuffix("_count") for name in declared}
    expressions = re.findall(r"expr: (?:\|\n)?((?:.|\n      {4})+)", RULES)
    assert len(expressions) == RULES.count("- alert:")
    queries = [query for panels in DASHBOARDS.values() for panel in panels for query in panel.queries.values()]
    for expression in [*expressions, *queries]:
        used = metrics_in(re.sub(r"\{[^}]*\}|by \([^)]*\)", "", expression))
        assert used, expression
        assert used <= declared, expression


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_dashboards_that_ship_are_those_that_are_described(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == text(name), "python -m tools.dashboards"


def test_every_query_of_a_dashboard_is_one(prometheus: Prometheus) -> None:
    queries = [query for panels in DASHBOARDS.values() for panel in panels for query in panel.queries.values()]
    real = [query.replace("$__rate_interval", "10s").replace("$job", ".*").replace("$topic", ".*") for query in queries]
    # Follower lag, memory of groups and the like need more than this broker has; a query that is none raises an error.
    eventually(lambda: sum(bool(prometheus.query(query)) for query in real) > 20)


def test_every_alert_fires_in_its_trouble_and_ends_with_it(served: Series) -> None:
    assert sorted(STORIES) == sorted(re.findall(r"- alert: (\w+)", RULES))
    assert trouble_with(RULES_FILE, served) == ""


def test_healthy_processes_cause_no_alert(prometheus: Prometheus) -> None:
    assert eventually(lambda: prometheus.query("ottla_build_info"))
    accepted = {"OttlaEventLoopDelayed", "OttlaProduceSlow"}  # on a busy machine
    accepted |= {"OttlaConnectorFailed", "OttlaErrorsLogged"}  # of the connector that has no tasks, as it should
    eventually(lambda: prometheus.firing().keys() <= accepted, timeout_s=60)  # what others caused has to end first


def test_a_task_that_fails_and_is_mended(broker: OttlaProcess, worker: ConnectWorker, prometheus: Prometheus) -> None:
    assert "OttlaConnectTaskFailed" not in prometheus.firing()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("numbers", b"{")
    assert producer.flush(20) == 0
    assert fires(prometheus, "OttlaConnectTaskFailed").startswith("1 tasks of connector strict at 127.0.0.1:")
    worker.put(
        "strict",
        {"connector.class": "tests.connect.connectors.Fragile", "topics": "numbers", "errors.tolerance": "all"},
    )
    eventually(lambda: "OttlaConnectTaskFailed" not in prometheus.firing(), timeout_s=60)


def test_a_flow_that_fails_and_is_started_again(run: Run, prometheus: Prometheus) -> None:
    run.query.state, run.query.error = FAILED, "no such column"
    assert "ottla pipeline start orders --flow hourly" in fires(prometheus, "OttlaPipelineFlowFailed")
    run.query.state, run.query.error = RUNNING, None
    eventually(lambda: "OttlaPipelineFlowFailed" not in prometheus.firing(), timeout_s=60)


def test_a_consumer_that_commits_nothing_and_a_transaction_that_hangs(
    broker: OttlaProcess, prometheus: Prometheus
) -> None:
    connect: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap}
    admin = AdminClient(connect)
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
    producer = Producer({**connect, "transactional.id": "hangs", "transaction.timeout.ms": 600_000})
    producer.init_transactions(20)
    producer.begin_transaction()
    for _ in range(10):
        producer.produce("t", b"x")
    assert producer.flush(20) == 0
    consumer = Consumer({**connect, "group.id": "stuck", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    expected = {"OttlaConsumerStuck", "OttlaTransactionHangs"}
    eventually(lambda: expected <= prometheus.firing().keys(), timeout_s=60)
    firing = prometheus.firing()
    assert firing["OttlaConsumerStuck"].startswith("Group stuck is 10 records behind in t")
    assert "holds back 10 records" in firing["OttlaTransactionHangs"]
    producer.commit_transaction(20)
    consumer.commit(offsets=[TopicPartition("t", 0, 11)], asynchronous=False)
    consumer.close()
    eventually(lambda: not expected & prometheus.firing().keys(), timeout_s=60)


def test_a_broker_that_is_killed(broker: OttlaProcess, prometheus: Prometheus) -> None:
    broker.kill()
    assert "does not answer" in fires(prometheus, "OttlaProcessDown")
    broker.start()
    eventually(lambda: "OttlaProcessDown" not in prometheus.firing(), timeout_s=60)
