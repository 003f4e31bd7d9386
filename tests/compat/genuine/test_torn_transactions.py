"""The schedule of Jepsen's report on Bufstream 0.1.0 (KAFKA-17754), request by request.

A request of one transaction is held up on its way; the client gives its connection up, sends the request again over
another, and goes on with the next transaction. Then the late one arrives. Clients of the first generation use one
epoch for all transactions, so genuine Kafka takes it for one of the next transaction, which it tears; Ottla does not.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from tests.support import stories
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ClosedError, RawConnection, ask, errors_in
from tests.support.transaction_stories import Producer, Teller

from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.schema import Message
from ottla.records.batch import iter_batches
from ottla.records.record import decode_records

SETTINGS: Final = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
FIRST_GENERATION: Final = 3
"""The last version of AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn that its clients send."""
NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class Client(Teller):
    """A client over one connection."""

    def __init__(self, bootstrap: str, connection: RawConnection) -> None:
        super().__init__(bootstrap)
        self.connection = connection
        self.errors: set[ErrorCode] = set()
        """Error codes in the last answer."""
        connection.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)

    def ask(self, what: str, request: Message, version: int, *, hide: Iterable[str] = ()) -> Any:
        def answered() -> Any:
            answer = self.connection.ask(request, version)
            self.errors = errors_in(answer)
            return None if self.errors & set(NOT_YET) else answer

        return eventually(answered)


@dataclass(slots=True)
class Scene:
    """One producer with two connections, and three places to write to."""

    bootstrap: str
    topic: str
    producer: Producer
    left: Client
    """Over the connection that it leaves after the first transaction, with a request still on its way."""
    now: Client

    def committed(self) -> list[bytes]:
        """What readers of committed records see, partition by partition."""
        values: list[bytes] = []
        for partition in range(3):
            wanted = stories.fetch([(self.topic, partition, 0)], isolation_level=1, max_wait_ms=200)
            (topic,) = ask(self.bootstrap, wanted, 11).responses
            (answer,) = topic.partitions
            aborted = {(each.producer_id, each.first_offset) for each in answer.aborted_transactions}
            skipped: set[int] = set()
            for header in iter_batches(answer.records or b"", allow_partial_end=True):
                if header.is_control:
                    skipped.discard(header.producer_id)
                elif (header.producer_id, header.base_offset) in aborted:
                    skipped.add(header.producer_id)
                if not header.is_control and header.producer_id not in skipped:
                    values += [record.value or b"" for record in decode_records(answer.records, header)]
        return values

    def refuses(self, late: Callable[[], object]) -> bool:
        """Whether the broker closes the connection upon a late request, instead of carrying it out."""
        try:
            late()
        except ClosedError:
            return True
        assert not self.left.errors
        return False


@pytest.fixture(scope="module", params=[GenuineKafka, OttlaProcess], ids=["genuine", "ottla"])
def process(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with request.param(properties=SETTINGS) as process:
        Teller(process.bootstrap).ready()
        yield process


@pytest.fixture
def tears(process: BrokerProcess) -> bool:
    """Does this broker tear transactions?"""
    return isinstance(process, GenuineKafka)


@pytest.fixture
def scene(process: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """The first transaction has written `one` and is about to end."""
    bootstrap = process.bootstrap
    name = request.node.originalname
    with RawConnection(bootstrap) as first, RawConnection(bootstrap) as second:
        left, now = Client(bootstrap, first), Client(bootstrap, second)
        left.create(name, 3)
        producer = left.new(name)
        left.add("first", producer, [(name, 0)], FIRST_GENERATION)
        left.send("first", producer, (name, 0), 0, b"one")
        yield Scene(bootstrap, name, producer, left, now)


def test_a_late_commit_makes_half_an_aborted_transaction_visible(scene: Scene, tears: bool) -> None:
    producer, now, left = scene.producer, scene.now, scene.left
    now.end("again", producer, commit=True, version=FIRST_GENERATION)
    now.add("second", producer, [(scene.topic, 1)], FIRST_GENERATION)
    now.send("second", producer, (scene.topic, 1), 0, b"two")
    refused = scene.refuses(lambda: left.end("late", producer, commit=True, version=FIRST_GENERATION))
    now.add("second", producer, [(scene.topic, 2)], FIRST_GENERATION)
    now.send("second", producer, (scene.topic, 2), 0, b"two as well")
    now.end("changed its mind", producer, commit=False, version=FIRST_GENERATION)
    assert not now.errors, "the client learns of the abort"
    assert (refused, scene.committed()) == ((False, [b"one", b"two"]) if tears else (True, [b"one"]))


def test_a_late_abort_takes_half_a_committed_transaction_away(scene: Scene, tears: bool) -> None:
    producer, now, left = scene.producer, scene.now, scene.left
    now.end("again", producer, commit=False, version=FIRST_GENERATION)
    now.add("second", producer, [(scene.topic, 1)], FIRST_GENERATION)
    now.send("second", producer, (scene.topic, 1), 0, b"two")
    refused = scene.refuses(lambda: left.end("late", producer, commit=False, version=FIRST_GENERATION))
    now.add("second", producer, [(scene.topic, 2)], FIRST_GENERATION)
    now.send("second", producer, (scene.topic, 2), 0, b"two as well")
    now.end("done", producer, commit=True, version=FIRST_GENERATION)
    assert not now.errors, "the client learns of the commit"
    assert (refused, scene.committed()) == ((False, [b"two as well"]) if tears else (True, [b"two", b"two as well"]))


def test_late_offsets_take_a_group_back(scene: Scene, tears: bool) -> None:
    producer, now, left, group = scene.producer, scene.now, scene.left, "readers"
    now.add_group("first", producer, group)
    now.commit_offsets("first", producer, group, [(scene.topic, 0, 5)], FIRST_GENERATION)
    now.end("first", producer, commit=True, version=FIRST_GENERATION)
    now.add_group("second", producer, group)
    now.commit_offsets("second", producer, group, [(scene.topic, 0, 9)], FIRST_GENERATION)
    assert not now.errors
    refused = scene.refuses(
        lambda: left.commit_offsets("late", producer, group, [(scene.topic, 0, 5)], FIRST_GENERATION)
    )
    now.end("second", producer, commit=True, version=FIRST_GENERATION)
    assert not now.errors

    def offset() -> int:
        topics = [OffsetFetchRequestTopics(name=scene.topic, partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True
        )
        (found,) = ask(scene.bootstrap, request, 8).groups[0].topics[0].partitions
        return -1 if found.error_code else int(found.committed_offset)

    committed = eventually(lambda: offset() if offset() >= 0 else 0)
    assert (refused, committed) == ((False, 5) if tears else (True, 9))


def test_a_late_partition_begins_a_transaction_behind_its_producers_back(scene: Scene, tears: bool) -> None:
    producer, now, left = scene.producer, scene.now, scene.left
    now.end("again", producer, commit=True, version=FIRST_GENERATION)
    refused = scene.refuses(lambda: left.add("late", producer, [(scene.topic, 0)], FIRST_GENERATION))
    now.end("nothing to end", producer, commit=False, version=FIRST_GENERATION)
    began = now.errors == set()
    assert (refused, began) == ((False, True) if tears else (True, False))


def test_a_predecessor_is_fenced_by_its_epoch(scene: Scene) -> None:
    """Where there is another epoch, nothing is torn by anybody."""
    predecessor, now, left = scene.producer, scene.now, scene.left
    successor = now.init("successor", Producer(scene.topic))
    now.add("successor", successor, [(scene.topic, 1)], FIRST_GENERATION)
    now.send("successor", successor, (scene.topic, 1), 0, b"two")
    for late in (
        lambda: left.end("late", predecessor, commit=True, version=FIRST_GENERATION),
        lambda: left.add("late", predecessor, [(scene.topic, 1)], FIRST_GENERATION),
        lambda: left.send("late", predecessor, (scene.topic, 1), 1, b"late"),
        lambda: left.send("late", predecessor, (scene.topic, 2), 0, b"late"),
    ):
        late()
        assert left.errors <= {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
        assert left.errors
    now.end("done", successor, commit=True, version=FIRST_GENERATION)
    assert not now.errors
    assert scene.committed() == [b"two"]
