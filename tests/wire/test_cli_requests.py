"""Requests of the command line that no client library sends, against a broker in this process."""

import socket
import threading

import pytest

from ottla.cli.client import Connection
from ottla.cli.exits import CommandFailed
from ottla.cli.partition import Partition
from ottla.cli.requests import GROUP, Address, Requests, error_name, refusal
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.create_acls import CreateAclsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.testing import Broker


def address(broker: Broker) -> Address:
    host, _, port = broker.bootstrap.rpartition(":")
    return Address(host, int(port))


def test_a_broker_is_asked_at_the_newest_common_version(ottla_broker: Broker) -> None:
    with Requests(Connection(ottla_broker.bootstrap)) as requests:
        here = address(ottla_broker)
        assert requests.brokers() == {1: here}
        assert requests.coordinator("readers", GROUP) == here
        assert requests.version(ApiKey.FIND_COORDINATOR, here) == 6
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        requests.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert requests.leaders([Partition("t", 1), Partition("t", 7), Partition("none", 0)]) == {
            Partition("t", 1): here
        }
        assert requests.leaders([]) == {}
        wanted = TopicRequest(name="t", partition_indexes=[0])
        answer = requests.ask(DescribeProducersRequest(topics=[wanted]), to=here)
        assert answer.topics[0].partitions[0].active_producers == []


def test_what_a_broker_does_not_serve_is_said(ottla_broker: Broker) -> None:
    with (
        Requests(Connection(ottla_broker.bootstrap)) as requests,
        pytest.raises(CommandFailed, match="does not serve CreateAcls in a version known here"),
    ):
        requests.ask(CreateAclsRequest(creations=[]))


def test_a_broker_that_wants_more_than_plain_sockets_is_not_tried() -> None:
    connection = Connection("127.0.0.1:9", {"security.protocol": "SASL_SSL"})
    with Requests(connection) as requests, pytest.raises(CommandFailed, match="speaks PLAINTEXT only, not SASL_SSL"):
        requests.ask(DescribeProducersRequest(topics=[]), to=Address("127.0.0.1", 9))


def test_nobody_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        there = Address("127.0.0.1", unused.getsockname()[1])
        with Requests(Connection("127.0.0.1:9")) as requests, pytest.raises(CommandFailed, match="cannot be reached"):
            requests.ask(DescribeProducersRequest(topics=[]), to=there)


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not answer as a Kafka broker"),
        (b"\0\0\0\4\0\0", "broke off: the connection was closed"),
        (b"\0\0\0\4\0\0\0\1", "does not answer as a Kafka broker"),
    ],
)
def test_somebody_else_answers(reply: bytes, complaint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = Address("127.0.0.1", server.getsockname()[1])

        def answer() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(1000)
                accepted.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with Requests(Connection(str(there))) as requests, pytest.raises(CommandFailed, match=complaint):
                requests.ask(DescribeProducersRequest(topics=[]), to=there)
        finally:
            thread.join()


def test_an_answer_that_never_comes_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = Address("127.0.0.1", server.getsockname()[1])
        with (
            Requests(Connection(str(there), timeout_s=0.2)) as requests,
            pytest.raises(CommandFailed, match=r"did not answer within 0.2 s"),
        ):
            requests.ask(DescribeProducersRequest(topics=[]), to=there)


def test_codes_become_words() -> None:
    assert refusal(ErrorCode.GROUP_ID_NOT_FOUND) == "the group does not exist"
    assert refusal(ErrorCode.GROUP_ID_NOT_FOUND, "Group readers not found.") == "Group readers not found"
    assert error_name(69) == "GROUP_ID_NOT_FOUND"
    assert error_name(12345) == "12345"
    assert str(Address("::1", 9092)) == "[::1]:9092"
