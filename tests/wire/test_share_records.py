"""ShareFetch and ShareAcknowledge over sockets: what members of a share group are given, and what becomes of it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4 as new_uuid

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.eventually import eventually
from tests.support.share_groups import set_group, topic_id
from tests.support.share_member import ACCEPT, GAP, REJECT, RELEASE, RENEW, ShareMember, given, new_member_id

from ottla.errors import CorruptMessage, ErrorCode, OffsetOutOfRange
from ottla.log.partition_log import PartitionLog
from ottla.log.reader import ColdRead
from ottla.log.segment_list import ReadResult
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.testing import Broker

LOCK_MS = 1_000


class Topic:
    """A topic of the broker's, and members of share groups that read it."""

    def __init__(self, broker: Broker, name: str, partitions: int = 1, **settings: str) -> None:
        self.broker = broker
        self.name = name
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(10)
        self.topic_id = topic_id(broker.bootstrap, name)
        self._members: list[ShareMember] = []

    def produce(self, *values: str, keys: str = "", partition: int = 0, compression: str = "none") -> None:
        """In one batch."""
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5_000, "compression.type": compression}
        )
        for at, value in enumerate(values):
            producer.produce(self.name, value, key=keys[at] if keys else None, partition=partition)
        assert producer.flush(10) == 0

    def member(self, group: str = "g", *, initialize: bool = False) -> ShareMember:
        member = ShareMember(self.broker.bootstrap, group, self.topic_id)
        self._members.append(member)
        if initialize:
            eventually(lambda: _initialized(member))
        return member

    def close(self) -> None:
        for member in self._members:
            member.disconnect()


def _initialized(member: ShareMember, partitions: int = 1, start_offset: int = 0) -> bool:
    try:
        member.initialize(start_offset, partitions)
    except AssertionError:  # the share coordinator's topic is being made
        return False
    return True


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "group.share.record.lock.duration.ms": str(LOCK_MS),
        "group.share.min.record.lock.duration.ms": str(LOCK_MS),
        "group.share.delivery.count.limit": "3",
        "group.share.partition.max.record.locks": "100",
        "group.share.max.share.sessions": "300",
    }
    with Broker(config=settings, allow_insecure=True) as broker:  # members are there without a coordinator
        yield broker


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Topic]:
    topic = Topic(broker, re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name), 2)
    yield topic
    topic.close()


def values(response: Any, partition: int = 0) -> list[str]:
    return [(record.value or b"").decode() for record in given(response).get(partition, [])]


def test_records_are_given_once_and_acknowledged(topic: Topic) -> None:
    topic.produce("a", "b", "c")
    one, two = topic.member(initialize=True), topic.member()
    response = one.fetch(max_wait_ms=5_000)
    assert values(response) == ["a", "b", "c"]
    assert response.acquisition_lock_timeout_ms == LOCK_MS
    assert two.acquire() == []
    assert one.say((0, 2, ACCEPT)) == ErrorCode.NONE
    topic.produce("d")
    assert two.acquire(max_wait_ms=5_000) == [(3, 3, 1)]


def test_acknowledgements_come_along_with_the_next_fetch(topic: Topic) -> None:
    topic.produce("a", "b")
    member = topic.member(initialize=True)
    assert member.acquire(max_wait_ms=5_000) == [(0, 1, 1)]
    topic.produce("c")
    response = member.fetch({0: [(0, 0, ACCEPT), (1, 1, RELEASE)]}, max_wait_ms=5_000)
    (data,) = response.responses[0].partitions
    assert (data.error_code, data.acknowledge_error_code) == (0, 0)
    assert values(response) == ["c"]
    assert member.acquire(max_wait_ms=5_000) == [(1, 1, 2)]


def test_a_fetch_with_acknowledgements_does_not_wait_for_records(topic: Topic) -> None:
    topic.produce("a")
    member = topic.member(initialize=True)
    member.acquire(max_wait_ms=5_000)
    response = member.fetch({0: [(0, 0, ACCEPT)]}, max_wait_ms=60_000)
    assert response.responses[0].partitions[0].acknowledge_error_code == ErrorCode.NONE


def test_a_parked_fetch_is_woken_by_an_append_and_by_a_release(topic: Topic) -> None:
    one, two = topic.member(initialize=True), topic.member()
    request = one.fetch_request(max_wait_ms=60_000)
    one.send(request, 1)
    assert one.hears_nothing(0.1)
    topic.produce("a")
    assert values(one.receive(request, 1)) == ["a"]
    request = two.fetch_request(max_wait_ms=60_000)
    two.send(request, 1)
    assert two.hears_nothing(0.1)
    assert one.say((0, 0, RELEASE)) == ErrorCode.NONE
    assert values(two.receive(request, 1)) == ["a"]


def test_who_has_left_is_given_nothing(topic: Topic) -> None:
    """A fetch that was woken in vain, and parked again, goes with its connection as any other."""
    one, two, three = topic.member(initialize=True), topic.member(), topic.member()
    assert three.acquire() == []
    topic.produce("a")
    for member in (one, two):
        request = member.fetch_request(max_wait_ms=60_000, min_bytes=1_000)
        member.send(request, 1)
        assert member.hears_nothing(0.1)
    topic.produce("b")
    assert one.hears_nothing(0.1)
    assert two.hears_nothing(0.05)
    one.disconnect()
    two.disconnect()
    topic.produce("c" * 1_000)
    assert values(three.fetch(max_wait_ms=LOCK_MS // 2, min_bytes=1_000)) == ["a", "b", "c" * 1_000]


def test_a_fetch_waits_for_min_bytes_and_no_longer_than_asked(topic: Topic) -> None:
    topic.produce("a")
    member, other = topic.member(initialize=True), topic.member()
    request = member.fetch_request(max_wait_ms=300, min_bytes=10_000)
    member.send(request, 1)
    assert member.hears_nothing(0.1)
    assert values(member.receive(request, 1)) == ["a"], "what there is, when the time is up"
    request = member.fetch_request(max_wait_ms=60_000, min_bytes=1_000)
    member.send(request, 1)
    topic.produce("b")
    assert member.hears_nothing(0.1)
    assert other.acquire(max_wait_ms=5_000) == [(1, 1, 1)], "who waits for more holds nothing"
    topic.produce("c" * 1_000)
    assert values(member.receive(request, 1)) == ["c" * 1_000]


def test_locks_expire_and_a_record_is_given_up_in_the_end(topic: Topic) -> None:
    topic.produce("a")
    member = topic.member(initialize=True)
    assert member.acquire(max_wait_ms=5_000) == [(0, 0, 1)]
    for delivery in (2, 3):
        assert member.acquire(max_wait_ms=10_000) == [(0, 0, delivery)], "woken by the lock that expired"
    assert member.acquire(max_wait_ms=2 * LOCK_MS) == []
    assert member.say((0, 0, ACCEPT)) == ErrorCode.NONE, "it lies before the start by now"


@pytest.mark.parametrize("how", ["leave", "final_fetch", "disconnect"])
def test_the_end_of_a_session_releases_what_is_held(topic: Topic, how: str) -> None:
    topic.produce("a")
    one, two = topic.member(how, initialize=True), topic.member(how)
    assert one.acquire(max_wait_ms=5_000) == [(0, 0, 1)]
    request = two.fetch_request(max_wait_ms=60_000)
    two.send(request, 1)
    if how == "leave":
        one.leave()
    elif how == "final_fetch":
        assert one.fetch(epoch=-1).error_code == ErrorCode.NONE
    else:
        one.disconnect()
    response = two.receive(request, 1)
    assert values(response) == ["a"]
    assert response.responses[0].partitions[0].acquired_records[0].delivery_count == 1, "it does not count"


def test_the_last_acknowledgements_of_a_session_are_written_before_it_ends(topic: Topic) -> None:
    topic.produce("a", "b", "c")
    one, two = topic.member(initialize=True), topic.member()
    one.acquire(max_wait_ms=5_000)
    response = one.acknowledge({0: [(0, 1, ACCEPT)]}, epoch=-1)
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert two.acquire(max_wait_ms=5_000) == [(2, 2, 1)]


def test_sessions_have_epochs(topic: Topic) -> None:
    member = topic.member(initialize=True)
    assert member.fetch(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge({}, epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch({0: [(0, 0, ACCEPT)]}, epoch=0).error_code == ErrorCode.INVALID_REQUEST
    assert member.fetch().error_code == ErrorCode.NONE
    assert member.fetch(epoch=5).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge({}, epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge({}).error_code == ErrorCode.NONE
    assert member.fetch().error_code == ErrorCode.NONE, "both kinds of requests count"
    member.leave()
    assert member.fetch(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_new_session_takes_the_place_of_the_old_one(topic: Topic) -> None:
    topic.produce("a")
    member = topic.member(initialize=True)
    assert member.acquire(max_wait_ms=5_000) == [(0, 0, 1)]
    member.epoch = 0
    assert member.acquire() == [], "it still holds the record"
    assert member.say((0, 0, ACCEPT)) == ErrorCode.NONE


def test_there_are_only_so_many_sessions() -> None:
    settings = {"group.share.max.share.sessions": "1", "group.share.max.size": "1"}
    with Broker(config=settings, allow_insecure=True) as broker:  # members are there without a coordinator
        topic = Topic(broker, "few")
        one, two = topic.member(initialize=True), topic.member()
        assert one.fetch().error_code == ErrorCode.NONE
        request = two.fetch_request(max_wait_ms=300)
        two.send(request, 1)
        assert two.hears_nothing(0.1), "asking again at once would not help"
        assert two.receive(request, 1).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        one.leave()
        two.epoch = 0
        assert two.fetch().error_code == ErrorCode.NONE
        topic.close()


def test_bad_acknowledgements_are_refused_and_change_nothing(topic: Topic) -> None:
    topic.produce("a", "b", "c")
    one, two = topic.member(initialize=True), topic.member()
    one.acquire(max_wait_ms=5_000)
    two.fetch()
    assert two.say((0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    wrong: list[tuple[int, int, int | list[int]]] = [
        (2, 1, ACCEPT),
        (0, 2, [ACCEPT, ACCEPT]),
        (0, 2, []),
        (0, 2, 7),
        (0, 9, ACCEPT),
    ]
    for said in wrong:
        assert one.say(said) == ErrorCode.INVALID_REQUEST
    assert one.say((1, 1, ACCEPT), (0, 0, ACCEPT)) == ErrorCode.INVALID_REQUEST
    assert one.say((0, 0, ACCEPT), (0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert one.say((0, 2, [ACCEPT, REJECT, GAP])) == ErrorCode.NONE
    assert one.say((0, 2, ACCEPT)) == ErrorCode.NONE, "finished already"


def test_topics_and_partitions_that_do_not_exist(topic: Topic, broker: Broker) -> None:
    topic.produce("a")
    member = topic.member(initialize=True)
    response = member.fetch(partitions=(0, 7), max_wait_ms=5_000)
    codes = {data.partition_index: data.error_code for data in response.responses[0].partitions}
    assert codes == {0: ErrorCode.NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    stranger = ShareMember(broker.bootstrap, "g", new_uuid())
    response = stranger.fetch(max_wait_ms=60_000)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert stranger.say((0, 0, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_ID
    stranger.disconnect()


@pytest.mark.parametrize(("group_id", "member_id"), [(None, "m"), ("g", None), ("g", "n" * 37), ("g", "")])
def test_who_asks_has_to_be_said(topic: Topic, group_id: str | None, member_id: str | None) -> None:
    member = topic.member()
    member.group_id, member.member_id = group_id, member_id and member_id.replace("m", new_member_id())
    assert member.fetch().error_code == ErrorCode.INVALID_REQUEST
    assert member.acknowledge({}).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("terms", [{"max_records": 0}, {"max_records": -1}])
def test_who_wants_no_records_gets_none(topic: Topic, terms: dict[str, Any]) -> None:
    topic.produce("a")
    member = topic.member(initialize=True)
    assert member.acquire(max_wait_ms=100, **terms) == []
    assert member.acquire(max_wait_ms=5_000, max_bytes=-1, batch_size=0) == [(0, 0, 1)]


def test_a_partition_leaves_the_session(topic: Topic) -> None:
    member = topic.member()
    eventually(lambda: _initialized(member, 2))
    member.fetch(partitions=(0, 1))
    topic.produce("a", partition=1)
    member.fetch(partitions=(), forgotten=(1,))
    assert member.fetch().responses == []
    topic.produce("b")
    assert values(member.fetch(max_wait_ms=5_000)) == ["b"]


def test_the_topic_goes_while_somebody_waits(broker: Broker) -> None:
    topic = Topic(broker, "goes")
    member = topic.member(initialize=True)
    request = member.fetch_request(max_wait_ms=60_000)
    member.send(request, 1)
    assert member.hears_nothing(0.1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["goes"])["goes"].result(10)
    response = member.receive(request, 1)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert member.fetch().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    topic.close()


def test_a_share_partition_that_was_never_initialized(topic: Topic) -> None:
    topic.member("other", initialize=True)
    response = topic.member("never").fetch(max_wait_ms=5_000)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_starts_over_where_it_is_initialized_anew(topic: Topic) -> None:
    topic.produce("a", "b")
    member = topic.member(initialize=True)
    assert member.acquire(max_wait_ms=5_000) == [(0, 1, 1)]
    member.initialize(start_offset=1, state_epoch=1)
    assert member.acquire(max_wait_ms=5_000) == [(1, 1, 1)]


@pytest.mark.parametrize(("reset", "first"), [("earliest", "a"), ("latest", "b"), ("by_duration:PT1H", "a")])
def test_begins_where_the_group_says(topic: Topic, broker: Broker, reset: str, first: str) -> None:
    group = reset.partition(":")[0]
    set_group(broker.bootstrap, group, share_auto_offset_reset=reset)
    topic.produce("a")
    member = topic.member(group)
    eventually(lambda: _initialized(member, start_offset=-1))
    member.fetch(max_wait_ms=100, min_bytes=1_000_000, max_records=0)
    topic.produce("b")
    assert values(member.fetch(max_wait_ms=5_000))[0] == first


def test_what_was_acknowledged_survives_a_restart(tmp_path: Path) -> None:
    with Broker(directory=tmp_path, allow_insecure=True) as broker:
        topic = Topic(broker, "kept")
        topic.produce(*"abcdef")
        member = topic.member(initialize=True)
        member.acquire(max_wait_ms=5_000)
        assert member.say((0, 1, ACCEPT), (3, 3, REJECT), (4, 4, RELEASE)) == ErrorCode.NONE
        topic.close()
        broker.stop()
        broker.start()
        member = topic.member()
        assert member.acquire(max_wait_ms=10_000) == [(2, 2, 1), (4, 4, 2), (5, 5, 1)]
        topic.close()


def test_only_so_many_records_are_under_way(topic: Topic) -> None:
    for first in range(0, 150, 10):
        topic.produce(*map(str, range(first, first + 10)))
    one, two = topic.member(initialize=True), topic.member()
    assert one.acquire(max_wait_ms=5_000) == [(0, 99, 1)]
    assert two.acquire() == []
    assert one.say((0, 49, ACCEPT)) == ErrorCode.NONE
    assert two.acquire(max_wait_ms=5_000) == [(100, 149, 1)]


def test_deleted_records_are_passed_over(topic: Topic, broker: Broker) -> None:
    topic.produce("a", "b", "c")
    member = topic.member(initialize=True)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    partition = TopicPartition(topic.name, 0, 2)
    admin.delete_records([partition])[partition].result(10)
    assert member.acquire(max_wait_ms=5_000) == [(2, 2, 1)]
    assert member.say((0, 2, ACCEPT)) == ErrorCode.NONE


@pytest.mark.parametrize("failure", [OffsetOutOfRange("retention was faster"), CorruptMessage("a flipped bit")])
def test_what_cannot_be_read_leaves_others_what_they_hold(
    topic: Topic, broker: Broker, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    set_group(broker.bootstrap, "patient", share_record_lock_duration_ms="30000")
    topic.produce("a")
    one, two = topic.member("patient", initialize=True), topic.member("patient")
    assert one.acquire(max_wait_ms=5_000) == [(0, 0, 1)]
    topic.produce("b")
    read = PartitionLog.read
    slowly: list[int] = []

    def fail(self: ColdRead) -> ReadResult:
        raise failure

    def read_from_disk(self: PartitionLog, offset: int, max_bytes: int, **bounds: Any) -> ReadResult | ColdRead:
        if self.topic_partition.topic != topic.name or slowly:
            return read(self, offset, max_bytes, **bounds)
        slowly.append(offset)
        return ColdRead(self.reader, (offset, max_bytes, 0, True))

    monkeypatch.setattr(ColdRead, "run", fail)
    monkeypatch.setattr(PartitionLog, "read", read_from_disk)
    response = two.fetch(max_wait_ms=5_000)
    if isinstance(failure, CorruptMessage):
        assert response.responses[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
        response = two.fetch(max_wait_ms=5_000)
    assert values(response) == ["b"]
    assert slowly == [1]
    assert one.say((0, 0, ACCEPT)) == ErrorCode.NONE


def test_the_records_of_aborted_transactions_are_not_given(topic: Topic, broker: Broker) -> None:
    set_group(broker.bootstrap, "committed", share_isolation_level="read_committed")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic.name})
    producer.init_transactions(10)
    for number, commit in enumerate((False, True, False)):
        producer.begin_transaction()
        producer.produce(topic.name, str(number), partition=0)
        assert producer.flush(10) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(10)
    producer.begin_transaction()
    producer.produce(topic.name, "open", partition=0)
    assert producer.flush(10) == 0
    committed, uncommitted = topic.member("committed", initialize=True), topic.member("any", initialize=True)
    assert values(committed.fetch(max_wait_ms=5_000)) == ["1"]
    assert values(uncommitted.fetch(max_wait_ms=5_000)) == ["0", "1", "2", "open"]
    assert committed.say((2, 2, ACCEPT)) == ErrorCode.NONE  # or it is given again once its lock has expired
    request = committed.fetch_request(max_wait_ms=60_000)
    committed.send(request, 1)
    assert committed.hears_nothing(0.1)
    producer.commit_transaction(10)
    assert values(committed.receive(request, 1)) == ["open"]


# -- key order --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_of_one_key_one_record_is_given_at_a_time(topic: Topic, broker: Broker, compression: str) -> None:
    group = f"by-key-{compression}"
    set_group(broker.bootstrap, group, share_delivery_order="key")
    topic.produce("a1", "a2", "b1", "a3", "c1", "b2", keys="aabacb", compression=compression)
    topic.produce("none1", "none2")
    one, two = topic.member(group, initialize=True), topic.member(group)
    assert values(one.fetch(max_wait_ms=5_000, max_records=2)) == ["a1", "b1"]
    assert values(two.fetch(max_wait_ms=5_000)) == ["c1", "none1", "none2"]
    assert values(one.fetch({0: [(0, 0, ACCEPT), (2, 2, RELEASE)]}, max_wait_ms=5_000)) == ["a2", "b1"]
    request = two.fetch_request(max_wait_ms=60_000)
    two.send(request, 1)
    assert two.hears_nothing(0.1)
    assert one.say((2, 2, ACCEPT)) == ErrorCode.NONE
    assert values(two.receive(request, 1)) == ["b2"]
    one.disconnect()
    assert values(two.fetch(max_wait_ms=5_000)) == ["a2"]


def test_the_order_of_a_group_can_change(topic: Topic, broker: Broker) -> None:
    set_group(broker.bootstrap, "changes", share_delivery_order="any")
    topic.produce("a1", "a2", "b1", keys="aab")
    member = topic.member("changes", initialize=True)
    assert values(member.fetch(max_wait_ms=5_000)) == ["a1", "a2", "b1"]
    set_group(broker.bootstrap, "changes", share_delivery_order="key")
    topic.produce("a3", "c1", keys="ac")
    assert values(member.fetch(max_wait_ms=5_000)) == ["c1"]
    assert member.say((0, 2, ACCEPT)) == ErrorCode.NONE
    assert values(member.fetch(max_wait_ms=5_000)) == ["a3"]


def test_a_large_batch_is_unpacked_beside_the_loop(topic: Topic, broker: Broker) -> None:
    """More records than may be waiting, more bytes than are unpacked on the loop."""
    set_group(broker.bootstrap, "large", share_delivery_order="key")
    count = 5_000
    topic.produce(*(f"{number}" * 5 for number in range(count)), keys="ab" * (count // 2), compression="gzip")
    member = topic.member("large", initialize=True)
    said: list[tuple[int, int, int | list[int]]] = []
    seen: list[int] = []
    while len(seen) < 200:
        ranges = member.acquire({0: said} if said else None, max_wait_ms=5_000)
        offsets = [offset for first, last, _ in ranges for offset in range(first, last + 1)]
        assert len(offsets) <= 2
        seen += offsets
        said = [(offset, offset, ACCEPT) for offset in offsets]
    assert seen == sorted(seen) == list(range(len(seen)))


# -- Kafka 4.2 and 4.3 -----------------------------------------------------------------------------------------------


def test_a_renewed_lock_outlasts_the_others(topic: Topic) -> None:
    topic.produce("a", "b", "c")
    member, other = topic.member(initialize=True), topic.member()
    assert member.acquire(max_wait_ms=5_000) == [(0, 2, 1)]
    for _ in range(4):
        renewed = member.acknowledge({0: [(1, 1, RENEW)]}, renews=True)
        assert renewed.responses[0].partitions[0].error_code == ErrorCode.NONE
        assert renewed.acquisition_lock_timeout_ms == LOCK_MS
        given_to_other = other.acquire(max_wait_ms=LOCK_MS // 2)
        assert all(1 not in range(first, last + 1) for first, last, _ in given_to_other)
    assert member.say((1, 1, ACCEPT)) == ErrorCode.NONE


def test_renewals_come_along_with_a_fetch_that_fetches_nothing(topic: Topic) -> None:
    topic.produce("a", "b")
    member = topic.member(initialize=True)
    assert member.acquire(max_wait_ms=5_000) == [(0, 1, 1)]
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    answer = member.fetch({0: [(0, 1, RENEW)]}, renews=True, **nothing)
    (data,) = answer.responses[0].partitions
    assert (data.acknowledge_error_code, data.acquired_records) == (ErrorCode.NONE, [])
    refused = member.fetch({0: [(0, 1, RENEW)]}, renews=True, epoch=member.epoch)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("renews", [None, False])
def test_only_a_request_that_says_so_renews(topic: Topic, renews: bool | None) -> None:
    topic.produce("a")
    member = topic.member(initialize=True)
    assert member.acquire(max_wait_ms=5_000) == [(0, 0, 1)]
    answer = member.acknowledge({0: [(0, 0, RENEW)]}, renews=renews)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_group_may_be_forbidden_to_renew(topic: Topic) -> None:
    set_group(topic.broker.bootstrap, "unrenewed", **{"share.renew.acknowledge.enable": "false"})
    topic.produce("a")
    member = topic.member("unrenewed", initialize=True)
    assert member.acquire(max_wait_ms=5_000) == [(0, 0, 1)]
    answer = member.acknowledge({0: [(0, 0, RENEW)]}, renews=True)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_RECORD_STATE


def test_strictly_as_many_records_as_wanted(topic: Topic) -> None:
    topic.produce("a", "b", "c", "d", "e")
    one, two = topic.member(initialize=True), topic.member()
    assert one.acquire(max_wait_ms=5_000, max_records=2, strictly=True) == [(0, 1, 1)]
    assert two.acquire(max_wait_ms=5_000, max_records=2, strictly=True) == [(2, 3, 1)]
    assert one.acquire(max_wait_ms=5_000, max_records=9, strictly=True) == [(4, 4, 1)]


def test_a_group_has_limits_of_its_own(topic: Topic) -> None:
    set_group(topic.broker.bootstrap, "once-more", **{"share.delivery.count.limit": "2"})
    topic.produce("a")
    member = topic.member("once-more", initialize=True)
    for count in (1, 2):
        assert member.acquire(max_wait_ms=5_000) == [(0, 0, count)]
        assert member.say((0, 0, RELEASE)) == ErrorCode.NONE
    assert member.acquire() == []


def test_the_lag_counts_what_is_not_finished(topic: Topic) -> None:
    topic.produce("a", "b", "c", "d", "e")
    member = topic.member("lagging", initialize=True)

    def lag() -> tuple[int, int]:
        asked = DescribeShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=[0])
        group = DescribeShareGroupOffsetsRequestGroup(group_id="lagging", topics=[asked])
        (found,) = member.ask(DescribeShareGroupOffsetsRequest(groups=[group]), 1).groups
        (partition,) = found.topics[0].partitions
        return partition.start_offset, partition.lag

    assert lag() == (0, 5)
    assert member.acquire(max_wait_ms=5_000) == [(0, 4, 1)]
    assert member.say((2, 3, ACCEPT)) == ErrorCode.NONE
    assert lag() == (0, 3)
    assert member.say((0, 1, REJECT)) == ErrorCode.NONE
    assert lag() == (4, 1)
    topic.produce("f")
    assert lag() == (4, 2)
