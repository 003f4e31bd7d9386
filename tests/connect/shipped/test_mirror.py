"""Topics, settings and groups of a genuine Kafka copied to Ottla; how offsets are translated."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.connect.api import ConfigError, ConnectError, Progress, Retriable, SourceRecord
from ottla.connect.clients.identities import topic_ids
from ottla.connect.connectors import mirror_requests
from ottla.connect.connectors.mirror import MirrorSource
from ottla.connect.connectors.mirror_settings import MirrorSettings
from ottla.connect.connectors.offset_syncs import OffsetSync, Translation, parsed
from tests.support.broker_process import BrokerProcess
from tests.support.connect_tasks import RunningSource, TaskContext, running
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess

BEGINNING_MS = int(time.time() * 1000)
"""When the records were made: retention, which looks for the first time after 30 s, would delete old ones."""


@pytest.fixture(scope="module")
def there() -> Iterator[BrokerProcess]:
    with GenuineKafka() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        topic = NewTopic("orders", num_partitions=2, config={"retention.ms": "12345678"})
        for answer in admin.create_topics([topic]).values():
            answer.result()
        yield kafka


@pytest.fixture(scope="module")
def here() -> Iterator[BrokerProcess]:
    with OttlaProcess() as ottla:
        yield ottla


def produce(broker: BrokerProcess, topic: str, records: list[SourceRecord]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for each in records:
        headers: Any = [(name, value) for name, value, _ in each.headers]
        partition = each.partition if each.partition is not None else 0
        producer.produce(topic, each.value, each.key, partition, timestamp=each.timestamp or 0, headers=headers)
    producer.flush()


def commit(admin: AdminClient, group: str, place: TopicPartition) -> None:
    """Have a group at a place, once its coordinator has come up."""
    committed = [ConsumerGroupTopicPartitions(group, [place])]

    def done() -> bool:
        (answer,) = admin.alter_consumer_group_offsets(committed, request_timeout=10).values()
        try:
            return all(each.error is None for each in answer.result().topic_partitions or [])
        except KafkaException:  # it has not
            return False

    eventually(done)


def record(number: int, partition: int) -> SourceRecord:
    key, value, timestamp = b"k%d" % number, b"v%d" % number, BEGINNING_MS + number
    return SourceRecord(topic="", key=key, value=value, partition=partition, timestamp=timestamp)


def context(here: BrokerProcess, *records: SourceRecord) -> Any:
    made: Any = TaskContext({str(dict(each.part or {})): each.position or {} for each in records})
    made.client = {"bootstrap.servers": here.bootstrap}
    return made


def config(there: BrokerProcess, **more: str) -> dict[str, str]:
    given = {"source_cluster_bootstrap_servers": there.bootstrap, "source_cluster_alias": "far", "topics": "ord.*"}
    return {name.replace("_", "."): value for name, value in (given | more).items()}


class CopyingSource(RunningSource):
    """What the runtime does: records are produced here before their positions are safe."""

    def __init__(self, source: MirrorSource, here: BrokerProcess) -> None:
        committed = source.committed
        self._left: list[SourceRecord | Progress] = []

        def produced_first(part: Any, position: Any) -> None:
            fresh, self._left = self._left, []
            records = [each for each in fresh if isinstance(each, SourceRecord)]
            for topic in {each.topic for each in records}:
                produce(here, topic, [each for each in records if each.topic == topic])
            for last in {str(each.part): each for each in fresh}.values():
                assert last.part is not None
                assert last.position is not None
                committed(last.part, last.position)

        source.committed = produced_first  # type: ignore[method-assign]
        super().__init__(source, None)
        steps: Iterator[Any] = self._steps

        def kept() -> Iterator[Any]:
            for yielded in steps:
                self._left = list(yielded or [])
                yield yielded

        self._steps = kept()


def test_records_come_as_they_are_with_topics_and_settings(there: BrokerProcess, here: BrokerProcess) -> None:
    produce(there, "orders", [record(n, n % 2) for n in range(10)])
    with running(MirrorSource, config(there), context=context(here)) as source:
        records = source.take(10)
        assert {each.topic for each in records} == {"far.orders"}
        for partition in range(2):
            found = [(each.key, each.value, each.timestamp) for each in records if each.partition == partition]
            assert found == [(b"k%d" % n, b"v%d" % n, BEGINNING_MS + n) for n in range(10) if n % 2 == partition]
    described = AdminClient({"bootstrap.servers": here.bootstrap}).list_topics("far.orders").topics["far.orders"]
    assert len(described.partitions) == 2
    last = [each for each in records if each.partition == 1][2]
    first = [each for each in records if each.partition == 0][-1]
    with running(MirrorSource, config(there), context=context(here, last, first)) as source:
        assert [each.value for each in source.take(2)] == [b"v7", b"v9"]


def test_groups_move_to_where_they_were(there: BrokerProcess, here: BrokerProcess) -> None:
    far, near = (AdminClient({"bootstrap.servers": each.bootstrap}) for each in (there, here))
    for answer in far.create_topics([NewTopic("payments", num_partitions=1)]).values():
        answer.result()
    produce(there, "payments", [record(n, 0) for n in range(5)])
    commit(far, "billing", TopicPartition("payments", 0, 5))
    settings = config(
        there, topics="payments", sync_group_offsets_enabled="true", sync_group_offsets_interval_seconds="1"
    )
    made = MirrorSource(MirrorSettings.model_validate(settings), context(here))
    copying = CopyingSource(made, here)

    def moved() -> bool:
        copying.step()
        (answer,) = near.list_consumer_group_offsets([ConsumerGroupTopicPartitions("billing")]).values()
        offsets = [(each.topic, each.offset) for each in answer.result().topic_partitions or []]
        return offsets == [("far.payments", 5)]

    try:
        eventually(moved, timeout_s=60)
    finally:
        copying.stop()


@pytest.mark.parametrize(
    "kept",
    [pytest.param(True, id="with the topic of pairs", marks=pytest.mark.soak), pytest.param(False, id="without")],
)
def test_groups_that_are_behind_are_moved_after_a_restart_too(
    there: BrokerProcess, here: BrokerProcess, kept: bool
) -> None:
    """Groups at 5,000 and 9,000 of 10,001 had no offsets here at all after a restart of the worker."""
    far, near = (AdminClient({"bootstrap.servers": each.bootstrap}) for each in (there, here))
    topic, alias = f"ledger-{kept}", f"far-{kept}"
    syncs = f"mm2-offset-syncs.{alias}.internal"
    for answer in far.create_topics([NewTopic(topic, num_partitions=1)]).values():
        answer.result()
    settings = config(
        there,
        topics=topic,
        source_cluster_alias=alias,
        sync_group_offsets_enabled="true",
        sync_group_offsets_interval_seconds="1",
        consumer_max_poll_records="500",
    )
    producer = Producer({"bootstrap.servers": there.bootstrap})
    for number in range(10_001):
        producer.produce(topic, b"v%d" % number, partition=0)
    producer.flush()

    def copying(*last: SourceRecord) -> tuple[CopyingSource, Any]:
        made = context(here, *last)
        return CopyingSource(MirrorSource(MirrorSettings.model_validate(settings), made), here), made

    first, _ = copying()
    try:
        records = first.until(lambda found: len(found) == 10_001)

        def at_end() -> bool:
            first.step()
            return any(each.there == 10_001 for each in syncs_of(here, syncs))

        eventually(at_end, timeout_s=60)
    finally:
        first.stop()
    pairs = syncs_of(here, syncs)
    assert pairs[-1].there == 10_001
    assert pairs[-1].here >= 10_001
    if not kept:
        near.delete_topics([syncs])[syncs].result(60)
    groups = {"slow": 5_000, "quick": 9_000, "done": 10_001}
    for group, offset in groups.items():
        committed = [ConsumerGroupTopicPartitions(f"{group}-{kept}", [TopicPartition(topic, 0, offset)])]
        (answer,) = far.alter_consumer_group_offsets(committed).values()
        answer.result(60)
    second, _ = copying(records[-1])

    def moved() -> dict[str, int]:
        second.step()
        found = {}
        for group in groups:
            (answer,) = near.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"{group}-{kept}")]).values()
            for each in answer.result(60).topic_partitions or []:
                found[group] = each.offset
        return found if len(found) == 3 else {}

    try:
        at = eventually(moved, timeout_s=60)
    finally:
        second.stop()
    assert at["done"] == pairs[-1].here
    for group in ("slow", "quick"):
        assert at[group] <= groups[group], "nothing is missed"
        if kept:
            assert at[group] == max((each.here for each in pairs if each.there <= groups[group]), default=0)


def syncs_of(broker: BrokerProcess, topic: str) -> list[OffsetSync]:
    """What is in a topic of pairs, in its order."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[OffsetSync] = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return found
        sync = parsed(message.key(), message.value())
        assert sync is not None
        found.append(sync)


def test_a_group_goes_back_to_the_last_place_that_is_known() -> None:
    translation = Translation()
    assert translation.here(5) is None
    translation.add(10, 110)
    translation.add(20, 121)
    translation.add(20, 125)
    assert [translation.here(each) for each in (9, 10, 19, 20, 1000)] == [None, 110, 110, 125, 125]
    for number in range(100, 5000):
        translation.add(number, number + 1000)
    assert translation.here(4999) == 5999
    assert translation.here(150) in range(110, 1151), "not beyond what was read there"


def test_a_topic_that_is_not_there_is_named(there: BrokerProcess, here: BrokerProcess) -> None:
    settings = MirrorSettings.model_validate(config(there, topics="ordres"))
    with pytest.raises(ConfigError, match=r"has no topic that fits topics: is it orders\?"):
        MirrorSource.check(settings, context(here))


def test_one_group_that_cannot_be_moved_stops_no_other(there: BrokerProcess, here: BrokerProcess) -> None:
    far, near = (AdminClient({"bootstrap.servers": each.bootstrap}) for each in (there, here))
    for answer in far.create_topics([NewTopic("refunds", num_partitions=1)]).values():
        answer.result()
    produce(there, "refunds", [record(n, 0) for n in range(5)])
    groups = ["a-with-members", "b-without"]
    for group in groups:
        commit(far, group, TopicPartition("refunds", 0, 5))
    settings = config(
        there, topics="refunds", sync_group_offsets_enabled="true", sync_group_offsets_interval_seconds="1"
    )
    copying = CopyingSource(MirrorSource(MirrorSettings.model_validate(settings), context(here)), here)
    member = Consumer({"bootstrap.servers": here.bootstrap, "group.id": groups[0], "session.timeout.ms": 60_000})
    member.subscribe(["far.refunds"])

    def moved() -> bool:
        copying.step()
        member.poll(0)
        (answer,) = near.list_consumer_group_offsets([ConsumerGroupTopicPartitions(groups[1])]).values()
        return [(each.topic, each.offset) for each in answer.result().topic_partitions or []] == [("far.refunds", 5)]

    try:
        eventually(lambda: copying.step() is not None and bool(member.poll(0.1) or member.assignment()), timeout_s=60)
        eventually(moved, timeout_s=60)
    finally:
        member.close()
        copying.stop()


def test_aborted_records_do_not_come(there: BrokerProcess, here: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": there.bootstrap, "transactional.id": "aborting"})
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.produce("transfers", b"%d" % number)
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    with running(MirrorSource, config(there, topics="transfers"), context=context(here)) as source:
        assert [each.value for each in source.take(2)] == [b"0", b"2"]
        assert source.step() == []


def test_a_topic_that_was_made_again_is_not_read_on_as_if_it_were_the_old_one(
    there: BrokerProcess, here: BrokerProcess
) -> None:
    far = AdminClient({"bootstrap.servers": there.bootstrap})

    def make() -> bool:
        (answer,) = far.create_topics([NewTopic("again", num_partitions=1)]).values()
        return answer.exception() is None

    make()
    produce(there, "again", [record(n, 0) for n in range(3)])
    with running(MirrorSource, config(there, topics="again"), context=context(here)) as source:
        last = source.take(3)[-1]
    deleted = topic_ids(far, ["again"])
    far.delete_topics(["again"])["again"].result()
    eventually(make)
    eventually(lambda: topic_ids(far, ["again"]) not in ({}, deleted))  # brokers serve the old one a moment longer
    produce(there, "again", [record(n, 0) for n in range(10, 16)])
    with (
        running(MirrorSource, config(there, topics="again"), context=context(here, last)) as source,
        pytest.raises(ConnectError, match="topic again of the other cluster was deleted and created anew"),
    ):
        source.until(bool)


@pytest.mark.parametrize(
    ("topic", "target", "round_"),
    [
        ("orders", "", False),
        ("near.orders", "", False),
        ("near.orders", "near", True),
        ("third.near.orders", "near", True),
        ("near.far.orders", "", True),
        ("crm.far.events", "", False),
        ("far.orders", "", False),
    ],
)
def test_what_has_come_round_is_not_copied_again(topic: str, target: str, round_: bool) -> None:
    given = {"source.cluster.bootstrap.servers": "x", "source.cluster.alias": "far", "topics": ".*"}
    settings = MirrorSettings.model_validate(given | {"target.cluster.alias": target})
    assert settings.has_come_round(topic, {"orders", topic}) is round_


def test_a_cluster_is_not_copied_into_itself(here: BrokerProcess) -> None:
    settings = config(here, topics="orders", replication_policy_class="IdentityReplicationPolicy")
    with (
        running(MirrorSource, settings, context=context(here)) as source,
        pytest.raises(ConfigError, match="is this cluster, and with IdentityReplicationPolicy"),
    ):
        source.step()


def test_a_login_that_is_refused_is_told_of(here: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_requests, "TIMEOUT_S", 2)
    settings = config(
        here,
        source_cluster_security_protocol="SASL_PLAINTEXT",  # which this broker does not speak
        source_cluster_sasl_mechanism="PLAIN",
        source_cluster_sasl_username="me",
        source_cluster_sasl_password="wrong",
    )
    with pytest.raises(
        ConnectError, match=r"refuses the login: .*; check source\.cluster\.security\.protocol"
    ) as caught:
        MirrorSource.check(MirrorSettings.model_validate(settings), context(here))
    assert not isinstance(caught.value, Retriable)
    settings["source.cluster.bootstrap.servers"] = "127.0.0.1:1"
    with pytest.raises(Retriable, match=r"no answer from 127\.0\.0\.1:1"):
        MirrorSource.check(MirrorSettings.model_validate(settings), context(here))
