"""Kafka's own tool and clients, and librdkafka, with clients' metrics (KIP-714)."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.compat.cli.program import OttlaProgram
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.tool_server import kafka_tool

TOOL = "org.apache.kafka.tools.ClientMetricsCommand"


@pytest.fixture
def broker() -> Iterator[OttlaProcess]:
    with OttlaProcess() as running:
        yield running


def client_metrics(broker: OttlaProcess, *arguments: str) -> str:
    return kafka_tool(TOOL, "--bootstrap-server", broker.bootstrap, *arguments).stdout


def metrics_of(broker: OttlaProcess, software: str) -> list[Any]:
    """The newest metrics of the client that calls itself so; empty before there are some."""
    ottla = OttlaProgram(broker.bootstrap)
    for client in ottla.json("telemetry", "clients"):
        if client["software"].startswith(software):
            shown = ottla.json("telemetry", "show", client["instance"])
            assert shown["client_id"] == client["client_id"]
            return list(shown["metrics"])
    return []


def test_the_tool_and_the_command_manage_the_same_subscriptions(broker: OttlaProcess) -> None:
    ottla = OttlaProgram(broker.bootstrap)
    wanted = ("--metrics", "org.apache.kafka.producer.", "--interval", "7000", "--match", "client_id=x")
    client_metrics(broker, "--alter", "--name", "tools", *wanted)
    (listed,) = ottla.json("telemetry", "subscriptions")
    assert listed == {
        "name": "tools",
        "metrics": "org.apache.kafka.producer.",
        "interval_ms": "7000",
        "match": "client_id=x",
    }
    assert ottla("telemetry", "subscribe", "ours", "--metric", "*", "--every", "8s").returncode == 0
    assert set(client_metrics(broker, "--list").split()) == {"tools", "ours"}
    described = client_metrics(broker, "--describe", "--name", "ours")
    assert "interval.ms=8000" in described
    assert "metrics=*" in described
    assert ottla("telemetry", "unsubscribe", "tools").returncode == 0
    client_metrics(broker, "--delete", "--name", "ours")
    assert client_metrics(broker, "--list").split() == []
    assert ottla.json("telemetry", "subscriptions") == []


def test_metrics_of_javas_client_and_of_librdkafka(broker: OttlaProcess) -> None:
    ottla = OttlaProgram(broker.bootstrap)
    assert ottla("telemetry", "subscribe", "everything", "--metric", "*", "--every", "300ms").returncode == 0
    stop = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "of librdkafka"})
        while not stop.wait(0.05):
            producer.produce("measured", b"x")
            producer.poll(0)
        producer.flush(5)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        eventually(lambda: metrics_of(broker, "confluent-kafka-python"), interval_s=0.5)
    finally:
        stop.set()
        thread.join()
    names = {metric["metric"] for metric in metrics_of(broker, "confluent-kafka-python")}
    assert any(name.startswith("org.apache.kafka.producer.") for name in names), names
    limits = ("--from-beginning", "--topic", "measured", "--timeout-ms", "4000")
    kafka_tool("ConsoleConsumer", "--bootstrap-server", broker.bootstrap, *limits)
    metrics = metrics_of(broker, "apache-kafka-java")
    assert any(metric["metric"].startswith("org.apache.kafka.consumer.fetch.manager.") for metric in metrics)
    assert any(metric["value"] > 0 for metric in metrics)
    assert "org.apache.kafka.consumer" in ottla("telemetry", "show", instance_of(ottla, "apache-kafka-java")).stdout


def instance_of(ottla: OttlaProgram, software: str) -> str:
    found = (each["instance"] for each in ottla.json("telemetry", "clients") if each["software"].startswith(software))
    return str(next(found))
