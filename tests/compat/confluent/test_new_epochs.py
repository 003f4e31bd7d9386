"""librdkafka appends a record twice although each broker does as it should, if requests behind a refused one are not
refused, too. That is why Ottla refuses them (`replication/refused_producers.py`); genuine Kafka does not.

    sequence 0       appended; the leader is killed before it answers, or answers NOT_LEADER_OR_FOLLOWER, since the
                     partition moves away before all replicas in sync have the record
    sequences 0, 1   sent to the next leader, which does not lead yet: NOT_LEADER_OR_FOLLOWER
    sequence 2       sent before those answers came, to a broker that leads by now: OUT_OF_ORDER_SEQUENCE_NUMBER

A gap is nothing that librdkafka waits for: it begins a new epoch, and sends all three again, the first one, too. The
new epoch is that of all partitions, so that what is not acknowledged in the others is sent again likewise.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.whole_topic import read_all

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.compiled import decode
from ottla.protocol.framing import decode_request_header, encode_response, peek_request
from ottla.protocol.messages import produce as p

TOPIC: Final = "t"


class ChangingLeader:
    """Stands between a client and a broker, for an old leader and its successor; a context manager.

    The old leader appends the first produce request, and is killed before it answers. With `answers` it refuses that
    request instead. The successor takes `together` requests before it answers any of them. It refuses all but the last
    (one that is alone, too). Then it leads.
    """

    def __init__(self, target_port: int, port: int, together: int, *, answers: bool) -> None:
        self._target_port = target_port
        self._server = socket.create_server(("127.0.0.1", port))
        self._together = together
        self._answers = answers
        self._produced = 0
        self.is_gone = threading.Event()
        """The old leader is, and with `answers` the client knows it."""
        self.may_succeed = threading.Event()
        """Set by the test: from now on the successor is there."""

    def __enter__(self) -> "ChangingLeader":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                if self.is_gone.is_set():
                    self.may_succeed.wait()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with suppress(OSError, EOFError), near, socket.create_connection(("127.0.0.1", self._target_port)) as far:
            waiting: list[bytes] = []
            while True:
                frame = _frame(near)
                if peek_request(frame)[0] != ApiKey.PRODUCE:
                    near.sendall(_framed(_answer(far, frame)))
                    continue
                self._produced += 1
                if self._produced == 1:
                    _answer(far, frame)
                    if not self._answers:
                        self.is_gone.set()
                        return
                    near.sendall(_refusal(frame))
                    continue
                self.is_gone.set()
                waiting.append(frame)
                if self._produced <= self._together:
                    continue
                for place, each in enumerate(waiting):
                    is_refused = self._produced == 1 + self._together and (place < len(waiting) - 1 or place == 0)
                    near.sendall(_refusal(each) if is_refused else _framed(_answer(far, each)))
                waiting = []


def _frame(source: socket.socket) -> bytes:
    """The next request or answer, without its length."""
    return _exactly(source, int.from_bytes(_exactly(source, 4), "big"))


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _answer(far: socket.socket, frame: bytes) -> bytes:
    far.sendall(_framed(frame))
    return _frame(far)


def _refusal(frame: bytes) -> bytes:
    header, position = decode_request_header(frame)
    request = decode(p.ProduceRequest, frame, header.api_version, position)
    refused = [
        p.TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                p.PartitionProduceResponse(
                    index=part.index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1
                )
                for part in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    pieces = encode_response(p.ProduceResponse(responses=refused), header.api_version, header.correlation_id)
    return b"".join(pieces)  # type: ignore[arg-type] # no records


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    kind: Callable[..., BrokerProcess] = request.param
    port, advertised = free_port(), free_port()
    listener = "PLAINTEXT://127.0.0.1:"
    with kind(port=port, properties={"advertised.listeners": f"{listener}{advertised}"}) as broker:
        yield broker


@pytest.mark.parametrize(
    "broker",
    [OttlaProcess, pytest.param(GenuineKafka, marks=pytest.mark.soak)],
    ids=["ottla", "genuine"],
    indirect=True,
)
@pytest.mark.parametrize("answers", [False, True], ids=["killed", "moved"])
@pytest.mark.parametrize(("in_flight", "values"), [(5, [b"0", b"0", b"1", b"2"]), (1, [b"0", b"1", b"2"])])
def test_a_gap_has_the_client_append_again(
    broker: BrokerProcess, in_flight: int, values: list[bytes], *, answers: bool
) -> None:
    advertised = int(broker.properties["advertised.listeners"].rpartition(":")[2])
    with ChangingLeader(broker.port, advertised, together=min(in_flight, 3), answers=answers) as leader:
        bootstrap = f"127.0.0.1:{advertised}"
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": in_flight,
                "batch.num.messages": 1,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        producer.produce(TOPIC, b"0", partition=0)
        eventually(leader.is_gone.is_set)
        for value in (b"1", b"2"):
            producer.produce(TOPIC, value, partition=0)
        leader.may_succeed.set()
        assert producer.flush(30) == 0
        assert read_all(bootstrap, TOPIC, len(values)) == values
