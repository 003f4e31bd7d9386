"""What is made of the brokers' answers, without sockets: a cluster in a few lines that speaks in messages."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from ottla.client import pool
from ottla.client.addresses import Address
from ottla.client.errors import BrokerUnavailable, ClientError
from ottla.errors import ErrorCode
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.spark import wire
from ottla.spark.errors import NotReadyError, SourceError, UnknownTopicError, UnreachableError
from ottla.spark.offsets import EARLIEST, LATEST, Partition
from ottla.spark.wire_metadata import WireMetadata

A, B = Partition("t", 0), Partition("t", 1)
HOSTS = ("a", "b", "c")
NONE = -1


@dataclass
class Brokers:
    """Brokers 0 to 2, `a:9` to `c:9`, and who of them leads which partition of the topic `t`. `refusals` are error
    codes by partition, and for other topics under NONE."""

    leaders: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 1})
    epochs: dict[int, int] = field(default_factory=lambda: {0: 5, 1: 5})
    topic_id: UUID = field(default_factory=lambda: UUID(int=7))
    away: set[str] = field(default_factory=set)
    knows_nothing: set[str] = field(default_factory=set)
    refusals: dict[int, int] = field(default_factory=dict)
    asked: list[tuple[str, type]] = field(default_factory=list)
    isolated: "Brokers | None" = None
    """What broker 0 believes, cut off from the others."""

    def answer(self, host: str, request: Any) -> Any:
        if host in self.away:
            raise BrokerUnavailable(f"{host} cannot be reached")
        self.asked.append((host, type(request)))
        if host == HOSTS[0] and self.isolated is not None:
            return self.isolated.answer(host, request)
        return self._metadata(host, request) if isinstance(request, MetadataRequest) else self._offsets(host, request)

    def _metadata(self, host: str, request: MetadataRequest) -> MetadataResponse:
        brokers = [MetadataResponseBroker(node_id=number, host=each, port=9) for number, each in enumerate(HOSTS)]
        wanted = ["t"] if request.topics is None else [topic.name for topic in request.topics]
        topics = []
        for name in wanted:
            if name == "t" and host not in self.knows_nothing:
                partitions = [
                    MetadataResponsePartition(
                        partition_index=number,
                        leader_id=led,
                        leader_epoch=self.epochs[number],
                        replica_nodes=[],
                        isr_nodes=[],
                    )
                    for number, led in self.leaders.items()
                ]
                topics.append(MetadataResponseTopic(name=name, topic_id=self.topic_id, partitions=partitions))
            elif request.topics is not None:
                code = self.refusals.get(NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                topics.append(MetadataResponseTopic(name=name, error_code=code, partitions=[]))
        return MetadataResponse(brokers=brokers, topics=topics)

    def _offsets(self, host: str, request: ListOffsetsRequest) -> ListOffsetsResponse:
        answers = []
        for each in request.topics[0].partitions:
            number, epoch = each.partition_index, each.current_leader_epoch
            if HOSTS[self.leaders[number]] != host:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif epoch != self.epochs[number]:
                is_old = epoch < self.epochs[number]
                code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            else:
                code = ErrorCode(self.refusals.get(number, ErrorCode.NONE))
            offset = {EARLIEST: 10, LATEST: 20}.get(each.timestamp, each.timestamp) + number
            answers.append(ListOffsetsPartitionResponse(partition_index=number, error_code=code, offset=offset))
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=answers)])


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()

    class FakeConnection:
        def __init__(self, address: Address, **_: Any) -> None:
            self.address, self.used_at = address, math.inf
            if address.host in brokers.away:
                raise BrokerUnavailable(f"{address} cannot be reached")

        def version(self, _: int, newest: int) -> int:
            return newest

        def send(self, request: Any, _: int) -> None:
            self.request = request

        def receive(self) -> Any:
            return brokers.answer(self.address.host, self.request)

        def answer(self) -> Any:
            try:
                return self.receive()
            except ClientError as error:
                return error

        def close(self) -> None:
            pass

    def receive_each(connections: Iterable[FakeConnection]) -> dict[FakeConnection, Any]:
        return {connection: connection.answer() for connection in connections}

    monkeypatch.setattr(wire, "Connection", FakeConnection)
    monkeypatch.setattr(pool, "receive_each", receive_each)
    return brokers


@pytest.fixture
def queries(brokers: Brokers) -> WireMetadata:
    return WireMetadata((("bootstrap.servers", "a:9,b:9"),), 10.0)


def count(brokers: Brokers, request: type) -> int:
    return sum(kind is request for _, kind in brokers.asked)


def problem(queries: WireMetadata, partition: Partition = A) -> SourceError:
    found = queries.offsets({partition: LATEST})[partition]
    assert isinstance(found, SourceError)
    return found


def test_each_leader_is_asked_once(queries: WireMetadata, brokers: Brokers) -> None:
    assert queries.offsets({A: LATEST, B: EARLIEST}) == {A: 20, B: 11}
    assert queries.offsets({A: 5, B: LATEST}) == {A: 5, B: 21}
    assert (count(brokers, MetadataRequest), count(brokers, ListOffsetsRequest)) == (1, 4)


def test_a_broker_that_was_started_again_is_asked_with_its_new_epoch(queries: WireMetadata, brokers: Brokers) -> None:
    queries.offsets({A: LATEST, B: LATEST})
    brokers.epochs = {0: 6, 1: 6}
    assert queries.offsets({A: LATEST, B: LATEST}) == {A: 20, B: 21}


def test_a_leader_that_has_not_heard_of_its_successor_is_not_believed(queries: WireMetadata, brokers: Brokers) -> None:
    brokers.leaders, brokers.epochs = {0: 1, 1: 1}, {0: 6, 1: 6}
    queries.offsets({A: LATEST})
    brokers.isolated = Brokers(leaders={0: 0, 1: 0})
    for asked in (queries.describe(["t"]), queries.offsets({A: LATEST, B: LATEST})):
        assert asked in ({"t": ([0, 1], brokers.topic_id)}, {A: 20, B: 21})
    assert [host for host, kind in brokers.asked if kind is ListOffsetsRequest] == ["b", "b"]
    brokers.away = {"b"}
    assert isinstance(problem(queries), NotReadyError)

    brokers.isolated.topic_id = UUID(int=8)  # made again since: its epochs are others
    assert queries.offsets({A: LATEST}) == {A: 20}


def test_what_describes_a_topic_says_who_leads(queries: WireMetadata, brokers: Brokers) -> None:
    described = queries.describe(["t"])["t"]
    assert (described.partitions, described.topic_id) == ([0, 1], brokers.topic_id)
    queries.offsets({A: LATEST})
    assert count(brokers, MetadataRequest) == 1
    brokers.topic_id = NULL_UUID
    assert queries.describe(["t"])["t"].topic_id is None


def test_a_leader_that_has_moved_is_followed_at_once(queries: WireMetadata, brokers: Brokers) -> None:
    queries.offsets({A: LATEST, B: LATEST})
    brokers.leaders = {0: 1, 1: 1}
    assert queries.offsets({A: LATEST, B: LATEST}) == {A: 20, B: 21}
    brokers.leaders = {0: 0, 1: 0}
    brokers.away = {"b"}
    assert queries.offsets({A: LATEST, B: LATEST}) == {A: 20, B: 21}


@pytest.mark.parametrize("believed", [2, NONE])
def test_a_broker_that_is_cut_off_does_not_keep_the_others_from_being_asked(
    queries: WireMetadata, brokers: Brokers, believed: int
) -> None:
    """It says that one leads who is dead, or that nobody does; who leads is known to another."""
    brokers.leaders, brokers.epochs = {0: 1, 1: 1}, {0: 6, 1: 6}
    brokers.isolated, brokers.away = Brokers(leaders={0: believed, 1: believed}), {"c"}
    assert queries.offsets({A: LATEST, B: LATEST}) == {A: 20, B: 21}


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE])
def test_a_leader_that_cannot_say_it_yet_is_not_ready(queries: WireMetadata, brokers: Brokers, code: ErrorCode) -> None:
    brokers.refusals = {0: code}
    found = queries.offsets({A: LATEST, B: LATEST})
    assert found[B] == 21
    assert isinstance(found[A], NotReadyError)
    assert str(found[A]).startswith("partition t-0 at a:9,b:9: ")
    assert code.name in str(found[A])


def test_a_partition_whose_leader_is_gone_is_not_ready(queries: WireMetadata, brokers: Brokers) -> None:
    brokers.away = {"a"}
    assert "partition t-0 at a:9,b:9: its leader a:9 cannot be reached" in str(problem(queries))
    brokers.leaders[0] = NONE
    error = problem(queries)
    assert isinstance(error, NotReadyError)
    assert "it has no leader (LEADER_NOT_AVAILABLE)" in str(error)


def test_without_any_answer_no_broker_is_there(queries: WireMetadata, brokers: Brokers) -> None:
    queries.offsets({A: LATEST})
    brokers.away = set(HOSTS)
    for ask in (lambda: queries.offsets({A: LATEST}), lambda: queries.describe(["t"])):
        with pytest.raises(UnreachableError, match="no broker at a:9,b:9 answers, asked about topic 't'") as raised:
            ask()
        assert "cannot be reached" in raised.value.reason
    with pytest.raises(UnreachableError, match="asked about the list of topics"):
        queries.names()
    brokers.away = set()
    assert queries.offsets({A: LATEST}) == {A: 20}


@pytest.mark.parametrize("knows_nothing", [{"a"}, {"b"}])
def test_a_broker_that_has_just_started_is_not_believed(
    queries: WireMetadata, brokers: Brokers, knows_nothing: set[str]
) -> None:
    brokers.knows_nothing = knows_nothing
    assert queries.describe(["t"])["t"].partitions == [0, 1]
    assert queries.offsets({B: LATEST}) == {B: 21}
    assert queries.names(["t"]) == ["t"]


@pytest.mark.parametrize("topics", [["u"], ["t", "u"]])
def test_a_topic_that_all_deny_is_unknown(queries: WireMetadata, topics: Collection[str]) -> None:
    with pytest.raises(UnknownTopicError, match="topic 'u' does not exist on the brokers at a:9,b:9; create it first"):
        queries.describe(topics)
    assert isinstance(problem(queries, Partition("u", 0)), UnknownTopicError)
    assert isinstance(problem(queries, Partition("t", 2)), UnknownTopicError)


def test_a_topic_that_is_not_ours_to_read_is_said_to_be(queries: WireMetadata, brokers: Brokers) -> None:
    brokers.refusals = {NONE: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    with pytest.raises(SourceError, match="topic 'u' at a:9,b:9: this client has no right to ask about it") as raised:
        queries.describe(["u"])
    assert type(raised.value) is SourceError


def test_nothing_is_asked_about_nothing(queries: WireMetadata, brokers: Brokers) -> None:
    assert (queries.offsets({}), queries.describe([])) == ({}, {})
    assert brokers.asked == []
