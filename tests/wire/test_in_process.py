"""The broker inside a Python process: many of them, quickly, and nothing left behind."""

import asyncio
import gc
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer

from ottla.errors import OttlaError
from ottla.testing import Broker

ALLOWED_S: Final = 0.15
"""For each broker."""


def round_trip(bootstrap: str, value: bytes) -> bytes | None:
    """Produce one record, and read it from the beginning."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce("greetings", value)
    assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["greetings"])
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_client_gets_back_what_it_sent() -> None:
    with Broker() as broker:
        assert round_trip(broker.bootstrap, b"hello") == b"hello"


def test_it_is_an_async_context_manager_too() -> None:
    async def scenario() -> bytes | None:
        async with Broker() as broker:
            return await asyncio.to_thread(round_trip, broker.bootstrap, b"hello")

    assert asyncio.run(scenario()) == b"hello"


def test_a_given_directory_survives_and_can_be_started_again(tmp_path: Path) -> None:
    broker = Broker(directory=tmp_path)
    with broker:
        port = broker.port
        round_trip(broker.bootstrap, b"kept")
    with broker:
        assert broker.port == port
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "late", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["greetings"])
        message = consumer.poll(10)
        consumer.close()
    assert message is not None
    assert message.value() == b"kept"


def is_delivered(settings: dict[str, str]) -> bool:
    delivered: list[bool] = []
    producer = Producer({**settings, "message.timeout.ms": "5000", "logger": logging.getLogger("quiet")})
    producer.produce("orders", b"one pear", on_delivery=lambda error, _: delivered.append(error is None))
    producer.flush(10)
    return delivered == [True]


@pytest.mark.ottla_broker(tls=True, users={"alice": 'a "secret", x=', "bob": "b"}, acls={"alice": ["all topic ord*"]})
def test_a_protected_broker_in_one_line(ottla_broker: Broker) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert is_delivered(ottla_broker.client_config("alice", mechanism=mechanism))
    assert not is_delivered(ottla_broker.client_config("bob"))
    assert is_delivered(ottla_broker.client_config("admin"))
    assert not is_delivered({**ottla_broker.client_config("alice"), "sasl.password": "wrong"})
    with pytest.raises(ValueError, match="there is no user 'carol': name one of alice, bob, admin"):
        ottla_broker.client_config("carol")


def test_clients_are_known_by_certificates_and_a_protected_broker_starts_again(tmp_path: Path) -> None:
    broker = Broker(directory=tmp_path, tls="required", acls={"alice": ["write topic *", "create topic *"]})
    for _ in range(2):
        with broker:
            assert is_delivered(broker.client_config("alice"))
            assert not is_delivered(broker.client_config("bob"))
            port = broker.port
    assert broker.port == port


def test_users_without_encryption() -> None:
    with Broker(users={"alice": "wonderland"}) as broker:
        assert is_delivered(broker.client_config("alice"))
        assert broker.client_config("alice")["security.protocol"] == "SASL_PLAINTEXT"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"acls": {"alice": ["read topic x"]}}, "acls are for users with names"),
        ({"users": {"a": "b"}, "acls": {"b": ["read topic x"]}}, "acls has 'b', which is none of the users: a, admin"),
        ({"users": {"a": "b"}, "acls": {"a": ["read orders"]}}, "write OPERATION TYPE NAME"),
        ({"users": {"a": "b"}, "acls": {"a": ["reed topic x"]}}, "operations unknown, any, all, read"),
    ],
)
def test_protection_that_makes_no_sense(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Broker(**arguments)


def test_two_brokers_never_share_a_directory(tmp_path: Path) -> None:
    with Broker(directory=tmp_path), pytest.raises(OttlaError, match="in use"):
        Broker(directory=tmp_path).start()


def test_a_bad_setting_is_said_where_the_broker_is_started() -> None:
    with pytest.raises(OttlaError, match=r"log\.retention\.hours"):
        Broker(config={"log.retention.hours": "often"}).start()


def test_the_plugin_offers_a_broker(ottla_broker: Broker) -> None:
    assert round_trip(ottla_broker.bootstrap, b"from the fixture") == b"from the fixture"


@pytest.mark.parametrize("brokers", [60, pytest.param(200, marks=pytest.mark.soak)])
def test_many_brokers_are_quick_and_leak_nothing(brokers: int) -> None:
    with Broker() as broker:  # what is loaded once is loaded now
        round_trip(broker.bootstrap, b"warm")
    gc.collect()
    threads, descriptors = threading.active_count(), open_descriptors()
    began, began_cpu = time.monotonic(), time.process_time()
    for number in range(brokers):
        with Broker() as broker:
            directory = broker.directory
            producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
            producer.produce("numbers", str(number).encode())
            assert producer.flush(10) == 0
            del producer
        assert not directory.exists()
    elapsed, worked = time.monotonic() - began, time.process_time() - began_cpu
    gc.collect()
    assert threading.active_count() < threads + brokers // 10  # the fixture's broker may begin one meanwhile
    assert open_descriptors() <= descriptors + 2
    # On a machine that is busy with something else, the work done counts and not the time it took.
    assert min(elapsed, 2 * worked) < brokers * ALLOWED_S, (
        f"{brokers} brokers took {elapsed:.1f} s, {worked:.1f} s of CPU"
    )
