"""Clients learn of the requests of KIP-714 only while somebody subscribes to their metrics."""

import logging

from confluent_kafka import Producer
from tests.compat.cli.program import OttlaProgram
from tests.support.eventually import eventually
from tests.support.raw_client import ask

from ottla.protocol.api import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.testing import Broker

TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


class Lines(logging.Handler):
    """Collects what a client logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def producer(broker: Broker) -> tuple[Producer, list[str]]:
    """A producer of librdkafka with its default settings, and what it logs."""
    handler = Lines()
    logger = logging.getLogger(f"librdkafka-{id(handler)}")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    made = Producer({"bootstrap.servers": broker.bootstrap}, logger=logger)
    made.produce("lines", b"x")
    assert made.flush(10) == 0
    return made, handler.lines


def offered(broker: Broker) -> set[int]:
    request = ApiVersionsRequest(client_software_name="story", client_software_version="1")
    return {key.api_key for key in ask(broker.bootstrap, request, 4).api_keys} & TELEMETRY


def test_a_client_logs_nothing_until_there_is_a_subscription(ottla_broker: Broker) -> None:
    broker = ottla_broker
    ottla = OttlaProgram(broker.bootstrap)
    early, early_lines = producer(broker)
    assert offered(broker) == set()
    assert ottla("telemetry", "subscribe", "all", "--metric", "*", "--every", "300ms").returncode == 0
    assert offered(broker) == TELEMETRY

    late, late_lines = producer(broker)

    def late_takes_part() -> bool:
        late.poll(0)
        return any("Telemetry client instance id" in line for line in late_lines)

    eventually(late_takes_part)
    eventually(lambda: ottla.json("telemetry", "clients"))
    early.produce("lines", b"y")
    assert early.flush(10) == 0
    early.poll(0)
    assert early_lines == [], "its connection was made before the subscription"

    assert ottla("telemetry", "unsubscribe", "all").returncode == 0
    assert offered(broker) == set()
