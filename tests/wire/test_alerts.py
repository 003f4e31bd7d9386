"""The alert rules and dashboards that ship, in a real Prometheus: alerts fire, and end."""

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.prometheus import Prometheus
from tools.dashboards import DASHBOARDS, FOLDER, text
from tools.docs.markdown import ROOT

from ottla.server.metrics.catalog import FAMILIES

RULES = (ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8")
OTHERS = {"up", "process_open_fds", "process_max_fds", "process_cpu_seconds_total", "process_resident_memory_bytes"}


@pytest.fixture(scope="module")
def broker() -> Iterator[OttlaProcess]:
    started = OttlaProcess()
    started.properties["metrics.listeners"] = f"http://127.0.0.1:{free_port()}"
    started.properties["transaction.max.timeout.ms"] = "3600000"
    with started:
        yield started


@pytest.fixture(scope="module")
def prometheus(broker: OttlaProcess) -> Iterator[Prometheus]:
    with Prometheus([broker.properties["metrics.listeners"].removeprefix("http://")], RULES) as started:
        eventually(lambda: started.query("up == 1"))
        yield started


def metrics_in(expression: str) -> set[str]:
    names = re.findall(r"\b[a-z]+(?:_[a-z]+)+(?=[{\[ )]|$)|\bup\b", expression)
    return {name.removesuffix("_sum").removesuffix("_count") for name in names} - {
        "predict_linear",
        "min_over_time",
        "humanize_duration",
    }


def test_rules_and_dashboards_read_only_metrics_that_there_are() -> None:
    declared = {family.name for family in FAMILIES} | OTHERS
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


def test_a_healthy_broker_causes_no_alert(prometheus: Prometheus) -> None:
    assert eventually(lambda: prometheus.query("ottla_build_info"))
    assert prometheus.firing().keys() <= {"OttlaEventLoopDelayed", "OttlaProduceSlow"}, "those on a busy machine"


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
    firing = eventually(lambda: found if "OttlaBrokerDown" in (found := prometheus.firing()) else {}, timeout_s=60)
    assert "does not answer" in firing["OttlaBrokerDown"]
    broker.start()
    eventually(lambda: "OttlaBrokerDown" not in prometheus.firing(), timeout_s=60)
