"""Quotas of clients, over the wire: what is throttled and how long, and what is not.

Throttle times are compared with genuine Kafka's in `tests/compat/genuine/test_same_quotas.py`.
"""

import os
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.compat.cli.program import OttlaProgram
from tests.support.ottla_process import OttlaProcess
from tests.support.quota_stories import CLIENT, USER, Entity, alteration, consumed, create, produced
from tests.support.raw_client import RawConnection, ask
from tests.support.stories import batch

from ottla.errors import ErrorCode
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

NUMBERS = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[OttlaProcess]:
    with OttlaProcess(properties={"quota.window.num": "3", "controller.quota.window.num": "3"}) as process:
        yield process


def topic(broker: OttlaProcess, partitions: int = 1) -> str:
    name = f"t{next(NUMBERS)}"
    assert {each.error_code for each in create(broker.bootstrap, "setup", {name: partitions}).topics} == {0}
    return name


def limit(broker: OttlaProcess, entity: Entity, **quotas: float | None) -> None:
    (answer,) = ask(broker.bootstrap, alteration((entity, tuple(quotas.items()))), 1).entries
    assert answer.error_code == 0, answer.error_message


def client(broker: OttlaProcess, name: str) -> RawConnection:
    return RawConnection(broker.bootstrap, client_id=name)


def test_a_producer_is_answered_at_once_and_muted_then(broker: OttlaProcess) -> None:
    name, data = topic(broker), batch(os.urandom(148_000))
    limit(broker, ((CLIENT, "producer"),), producer_byte_rate=75_000)
    with client(broker, "producer") as throttled, client(broker, "other") as other:
        times: list[int] = []
        while not any(times):
            began = time.monotonic()
            times.append(produced(throttled, name, data).throttle_time_ms)
        assert time.monotonic() - began < times[-1] / 1000
        assert len(times) == 2  # two seconds' worth is allowed at once
        assert 500 < times[-1] <= 2_010
        throttled.send(MetadataRequest(topics=[]), 12)
        assert [produced(other, name, data).throttle_time_ms for _ in range(5)] == [0] * 5
        throttled.receive(MetadataRequest(topics=[]), 12)
        assert time.monotonic() - began >= times[-1] / 1000 - 0.01
    limit(broker, ((CLIENT, "producer"),), producer_byte_rate=None)
    with client(broker, "producer") as free:
        assert produced(free, name, data).throttle_time_ms == 0


def test_acks_0_is_throttled_without_an_answer(broker: OttlaProcess) -> None:
    name, data = topic(broker), batch(os.urandom(50_000))
    limit(broker, ((CLIENT, "fire-and-forget"),), producer_byte_rate=100_000)
    with client(broker, "fire-and-forget") as connection:
        began = time.monotonic()
        for _ in range(5):
            produced(connection, name, data, acks=0)
        connection.ask(MetadataRequest(topics=[]), 12)
        assert time.monotonic() - began > 0.3


def test_a_consumer_above_its_quota_gets_nothing_for_a_while(broker: OttlaProcess) -> None:
    name = topic(broker)
    with client(broker, "setup") as setup:
        for _ in range(6):
            produced(setup, name, batch(os.urandom(40_000)))
    limit(broker, ((USER, "ANONYMOUS"), (CLIENT, "consumer")), consumer_byte_rate=100_000)
    with client(broker, "consumer") as connection:
        offset, throttled = 0, 0
        began = time.monotonic()
        while offset < 6:
            answer, size = consumed(connection, name, offset, 40_100)
            assert bool(size) != bool(answer.throttle_time_ms), "records or a throttle time"
            offset += bool(size)
            throttled += bool(answer.throttle_time_ms)
        assert throttled >= 1
        assert time.monotonic() - began > 0.1


def test_a_batch_that_no_quota_allows_is_given_when_nothing_else_was(broker: OttlaProcess) -> None:
    """Kafka's consumers would wait for it forever."""
    name = topic(broker)
    with client(broker, "setup") as setup:
        produced(setup, name, batch(os.urandom(40_000)))
    limit(broker, ((CLIENT, "slow"),), consumer_byte_rate=10_000)
    with client(broker, "slow") as connection:
        answer, size = consumed(connection, name, 0, 100_000)
        assert size > 40_000
        assert answer.throttle_time_ms > 1_000


def test_time_of_requests_counts_for_all_clients_of_a_user(broker: OttlaProcess) -> None:
    limit(broker, ((USER, "ANONYMOUS"),), request_percentage=0.001)
    try:
        with client(broker, "busy") as connection:
            throttle = [connection.ask(MetadataRequest(topics=None), 12).throttle_time_ms for _ in range(2)]
        assert max(throttle) == 1_000  # one sample is the most
    finally:
        limit(broker, ((USER, "ANONYMOUS"),), request_percentage=None)


def test_changes_of_topics_wait_for_tokens(broker: OttlaProcess) -> None:
    limit(broker, ((CLIENT, "operator"),), controller_mutation_rate=2)
    old, first, second, third = topic(broker), *(f"t{next(NUMBERS)}" for _ in range(3))

    def codes(answer: Any) -> list[int]:
        return [each.error_code for each in answer.topics]

    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    answer = create(broker.bootstrap, "operator", {"bad/name": 9, first: 7, second: 1})
    assert codes(answer) == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0, refused]
    assert 0 < answer.throttle_time_ms <= 500
    with client(broker, "operator") as connection:
        growth = CreatePartitionsTopic(name=first, count=20, assignments=None)
        grown = connection.ask(CreatePartitionsRequest(topics=[growth], timeout_ms=5000, validate_only=False), 3)
        assert grown.results[0].error_code in (0, refused)  # the half second may have passed
        if grown.results[0].error_code:
            grown = connection.ask(CreatePartitionsRequest(topics=[growth], timeout_ms=5000, validate_only=False), 3)
            assert grown.results[0].error_code == 0
        deletion = connection.ask(DeleteTopicsRequest(topic_names=[old], timeout_ms=5000), 5)
        assert deletion.responses[0].error_code == refused
        assert deletion.responses[0].error_message is None
        assert deletion.throttle_time_ms > 5_000
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=third)], allow_auto_topic_creation=True)
    assert ask(broker.bootstrap, asked, 9, client_id="operator").topics[0].error_code != 0
    unknown = ask(broker.bootstrap, asked, 9, client_id="another").topics[0]
    assert unknown.error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE)
    assert codes(create(broker.bootstrap, "operator", {f"t{next(NUMBERS)}": 1}, version=5)) == [0]


def test_quotas_survive_a_restart(broker: OttlaProcess) -> None:
    limit(broker, ((USER, None), (CLIENT, None)), producer_byte_rate=1000)
    name = topic(broker)
    broker.restart(kill=True)
    try:
        with client(broker, "any") as connection:
            assert produced(connection, name, batch(os.urandom(50_000))).throttle_time_ms > 10_000
    finally:
        limit(broker, ((USER, None), (CLIENT, None)), producer_byte_rate=None)


def test_the_command_line(broker: OttlaProcess) -> None:
    ottla = OttlaProgram(broker.bootstrap)
    entity = ("--user", "ANONYMOUS", "--client", "shown")
    quotas = ("producer_byte_rate=100000", "request_percentage=50")
    tried = ottla("quota", "set", *quotas, *entity, "--dry-run")
    assert tried.stdout == "producer_byte_rate\t-\t100000\nrequest_percentage\t-\t50\n"
    assert "2 quotas could be changed" in tried.stderr
    ottla("quota", "set", *quotas, *entity)
    listed = ottla("quota", "list", "--user", "ANONYMOUS").stdout.splitlines()
    assert "ANONYMOUS\tshown\t-\tproducer_byte_rate\t100000" in listed
    name = topic(broker)
    with client(broker, "shown") as connection:
        produced(connection, name, batch(os.urandom(50_000)))
    rows = {(row["quota"], row["client"]): row for row in ottla.json("quota", "top")}
    row = rows["producer_byte_rate", "shown"]
    assert (row["user"], row["limit"], row["throttled_ms"]) == ("ANONYMOUS", 100_000, 0)
    assert 1 <= row["percent"] <= 26
    removed = ottla.json("quota", "set", "producer_byte_rate=none", "request_percentage=none", *entity)
    assert [change["after"] for change in removed] == [None, None]
    refused = ottla("quota", "set", "producer_byte_rate=1.5", "--any-user", code=1).stderr
    assert "any user" in refused
    assert "cannot be a fractional value" in refused
