"""The same administrative requests to genuine Kafka and to Ottla: the same answers, word for word.

Topic ids, ports, directories and the order of lists that have none are left out of the comparison. Where Ottla means to
answer otherwise, the request is not here but in `tests/wire/test_admin_requests.py`.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.quota_stories import FILTERS, REFUSED, REMOVED, alteration, first_throttle_times, question
from tests.support.quota_stories import SET as QUOTAS
from tests.support.raw_client import ask

from ottla.errors import ErrorCode
from ottla.protocol.messages import alter_configs as ac
from ottla.protocol.messages import alter_partition_reassignments as ar
from ottla.protocol.messages import create_partitions as cp
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import delete_records as dr
from ottla.protocol.messages import delete_topics as dt
from ottla.protocol.messages import describe_configs as dc
from ottla.protocol.messages import describe_topic_partitions as dtp
from ottla.protocol.messages import elect_leaders as el
from ottla.protocol.messages import incremental_alter_configs as ic
from ottla.protocol.messages import list_config_resources as lc
from ottla.protocol.messages import list_offsets as lo
from ottla.protocol.messages import list_partition_reassignments as lr
from ottla.protocol.messages import metadata as md
from ottla.protocol.messages import offset_for_leader_epoch as oe
from ottla.protocol.messages import unregister_broker as ub
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.schema import Message, Struct, fields_of

TOPIC, BROKER, GROUP = 2, 4, 32
GROUP_SETTINGS = [  # those of streams groups left out, and Ottla's own
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.assignment.interval.ms",
    "share.auto.offset.reset",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.isolation.level",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.renew.acknowledge.enable",
    "share.session.timeout.ms",
]
SET, DELETE, APPEND, SUBTRACT = range(4)


class Pair(NamedTuple):
    genuine: str
    ottla: str

    def ask(self, request: Message, version: int) -> None:
        """Ask both, and compare what changes something: it is asked once."""
        genuine, ottla = (flat(comparable(ask(bootstrap, request, version))) for bootstrap in self)
        assert ottla == genuine

    def look(self, request: Message, version: int) -> None:
        """Ask both, and compare once genuine Kafka's broker has heard from its controller."""
        ottla = flat(comparable(ask(self.ottla, request, version)))
        with suppress(AssertionError):
            eventually(lambda: flat(comparable(ask(self.genuine, request, version))) == ottla, timeout_s=5)
        assert ottla == flat(comparable(ask(self.genuine, request, version)))


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with GenuineKafka() as genuine, OttlaProcess() as ottla:
        both = Pair(genuine.bootstrap, ottla.bootstrap)
        for bootstrap in both:
            made = ct.CreateTopicsRequest(
                topics=[new("a", 2), new("b.c", 1), new("configured", 1, {"retention.ms": "1000"})]
            )
            assert {topic.error_code for topic in ask(bootstrap, made, 7).topics} == {0}
        eventually(lambda: leads_all(genuine.bootstrap, {"a": 2, "b.c": 1, "configured": 1}))
        yield both


def leads_all(bootstrap: str, topics: dict[str, int]) -> bool:
    """Whether the broker has heard that it leads: genuine Kafka's controller answers CreateTopics before that."""
    asked = [
        lo.ListOffsetsTopic(
            name=name,
            partitions=[lo.ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(count)],
        )
        for name, count in topics.items()
    ]
    answer = ask(bootstrap, lo.ListOffsetsRequest(replica_id=-1, topics=asked), 7)
    return all(part.error_code == 0 for topic in answer.topics for part in topic.partitions)


def new(
    name: str,
    count: int = -1,
    configs: dict[str, str | None] | None = None,
    *,
    factor: int = -1,
    assignments: tuple[tuple[int, list[int]], ...] = (),
) -> ct.CreatableTopic:
    return ct.CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=factor,
        assignments=[
            ct.CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
            for number, replicas in assignments
        ],
        configs=[ct.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


IGNORED = {"port", "host", "cluster_id", "throttle_time_ms", "documentation", "total_bytes", "usable_bytes"}
# Kafka 4.3 sets min.insync.replicas for the whole cluster when it is formatted; Ottla has a setting of its own.
NOT_COMPARED = {"min.insync.replicas", "flush.before.ack"}


def comparable(value: Any) -> Any:
    """Nested tuples of everything that has to be equal; lists are sorted, ids only told from the null one."""
    if isinstance(value, (Message, Struct)):
        return tuple(
            (field.name, comparable(getattr(value, field.name)))
            for field in fields_of(type(value))
            if field.name not in IGNORED
        )
    if isinstance(value, list):
        kept = [item for item in value if getattr(item, "name", None) not in NOT_COMPARED]
        return tuple(sorted((comparable(item) for item in kept), key=repr))
    if isinstance(value, UUID):
        return "no id" if value == NULL_UUID else "some id"
    return value


def flat(value: Any, path: str = "") -> list[str]:
    """A line for every value, so that a failed comparison shows what differs."""
    if isinstance(value, tuple):
        if value and isinstance(value[0], str) and len(value) == 2:
            return flat(value[1], f"{path}.{value[0]}")
        return [line for number, item in enumerate(value) for line in flat(item, f"{path}[{number}]")] or [
            f"{path}: none"
        ]
    return [f"{path}: {value!r}"]


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_refused_topics(pair: Pair, version: int) -> None:
    topics = [
        new("a", 2),
        new("b_c"),
        new("b/c"),
        new(""),
        new("."),
        new("x" * 250),
        new("no.partitions", 0),
        new("fewer.partitions", -2),
        new("no.replicas", 1, factor=0),
        new("three.replicas", 1, factor=3),
        new("fewer.replicas", 1, factor=-2),
        new("counted.and.placed", 2, assignments=((0, [1]),)),
        new("factor.and.placed", factor=1, assignments=((0, [1]),)),
        new("gap", assignments=((1, [1]),)),
        new("nobody", assignments=((0, [2]),)),
        new("double", assignments=((0, [1, 1]),)),
        new("empty", assignments=((0, []),)),
        new("twice.placed", assignments=((0, [1]), (0, [1]))),
        new("twice"),
        new("twice"),
        new("__cluster_metadata"),
        new("unknown", configs={"nope": "1"}),
        new("letters", configs={"retention.ms": "abc"}),
        new("low", configs={"retention.ms": "-5"}),
        new("policy", configs={"cleanup.policy": "foo"}),
        new("null", configs={"retention.ms": None}),
        new("lags", configs={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}),
        new("tiered", configs={"remote.storage.enable": "true"}),
        new("compression", configs={"compression.type": "lzo"}),
        new("level", configs={"compression.gzip.level": "12"}),
        new("throttled", configs={"follower.replication.throttled.replicas": "x"}),
        new("ratio", configs={"min.cleanable.dirty.ratio": "2"}),
        new("maybe", configs={"preallocate": "maybe"}),
    ]
    pair.ask(ct.CreateTopicsRequest(topics=topics), version)


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_validated_topics(pair: Pair, version: int) -> None:
    topics = [
        new("plain", 2, factor=1),
        new("defaults"),
        new("both", configs={"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.25"}),
        new("placed", assignments=((1, [1]), (0, [1]))),
        new("loose", configs={"cleanup.policy": "", "retention.bytes": "-7"}),
    ]
    pair.ask(ct.CreateTopicsRequest(topics=topics, validate_only=True), version)


@pytest.mark.parametrize("version", [1, 4, 5, 6])
def test_refused_deletions(pair: Pair, version: int) -> None:
    names = ["missing", "no/name", "twice", "twice"]
    if version < 6:
        pair.ask(dt.DeleteTopicsRequest(topic_names=names, timeout_ms=1000), version)
        return
    states = [dt.DeleteTopicState(name=name, topic_id=NULL_UUID) for name in names]
    states += [dt.DeleteTopicState(name=None, topic_id=UUID(int=5)), dt.DeleteTopicState(name=None, topic_id=NULL_UUID)]
    states += [dt.DeleteTopicState(name="a", topic_id=UUID(int=6))]
    pair.ask(dt.DeleteTopicsRequest(topics=states, timeout_ms=1000), version)


def test_a_topics_life(pair: Pair) -> None:
    pair.ask(ct.CreateTopicsRequest(topics=[new("short", 1, {"segment.ms": "5000"})]), 7)
    for count, replicas, validate_only in (
        (1, None, False),
        (0, None, False),
        (3, [[1]], False),
        (2, [[7]], False),
        (2, [[1, 1]], False),
        (2, [], False),
        (2, [[1]], True),
        (2, [[1]], False),
        (4, None, False),
        (-1, None, False),
    ):
        assignments = None if replicas is None else [cp.CreatePartitionsAssignment(broker_ids=ids) for ids in replicas]
        topic = cp.CreatePartitionsTopic(name="short", count=count, assignments=assignments)
        pair.ask(cp.CreatePartitionsRequest(topics=[topic], timeout_ms=5000, validate_only=validate_only), 3)
    twice = [cp.CreatePartitionsTopic(name="short", count=count, assignments=None) for count in (5, 6)]
    pair.ask(cp.CreatePartitionsRequest(topics=twice, timeout_ms=5000, validate_only=False), 3)
    pair.ask(dt.DeleteTopicsRequest(topic_names=["short"], timeout_ms=5000), 5)


@pytest.mark.parametrize("version", range(14))
def test_metadata(pair: Pair, version: int) -> None:
    names = ["a", "a", "configured", "no/name", ""]
    if version >= 4:
        names += ["missing", "__consumer_offsets", "__transaction_state"]
    more: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
    if version >= 8:
        more["include_topic_authorized_operations"] = True
    if 8 <= version <= 10:
        more["include_cluster_authorized_operations"] = True
    topics = [md.MetadataRequestTopic(name=name) for name in names]
    pair.look(md.MetadataRequest(topics=topics, **more), version)
    if version >= 12:
        for name in (None, "", "a"):
            unknown = [md.MetadataRequestTopic(topic_id=UUID(int=5), name=name), md.MetadataRequestTopic(name="a")]
            pair.look(md.MetadataRequest(topics=unknown, **more), version)


def test_topics_in_pieces(pair: Pair) -> None:
    for names, limit, cursor in (
        (["a", "missing", "no/name"], 2000, None),
        (["configured", "a"], 1, None),
        (["configured", "a"], 2, ("a", 1)),
        (["configured", "a"], 2, ("configured", 0)),
        (["a"], 0, None),
        (["a"], -5, None),
        (["a"], 2, ("zz", 0)),
        (["a"], 2, ("a", 99)),
        (["a", "configured"], 2, ("a", -1)),
    ):
        request = dtp.DescribeTopicPartitionsRequest(
            topics=[dtp.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None if cursor is None else dtp.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        pair.look(request, 0)


@pytest.mark.parametrize("version", [1, 3, 4])
def test_described_settings(pair: Pair, version: int) -> None:
    for kind, name, keys in (
        (TOPIC, "configured", None),
        (TOPIC, "a", []),
        (TOPIC, "a", ["retention.ms", "nope"]),
        (TOPIC, "missing", None),
        (TOPIC, "no/name", None),
        (TOPIC, "", None),
        (GROUP, "", None),
        (GROUP, "g", [*GROUP_SETTINGS, "nope"]),
        (
            BROKER,
            "1",
            ["log.retention.ms", "log.retention.hours", "log.roll.ms", "num.partitions", "log.cleanup.policy"],
        ),
    ):
        resource = dc.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        pair.look(dc.DescribeConfigsRequest(resources=[resource], include_synonyms=True), version)


def test_changed_settings(pair: Pair) -> None:
    edits: list[tuple[int, str, list[tuple[str, int, str | None]]]] = [
        (TOPIC, "a", [("retention.ms", SET, "2000"), ("cleanup.policy", APPEND, "compact")]),
        (TOPIC, "a", [("cleanup.policy", SUBTRACT, "delete")]),
        (TOPIC, "a", [("cleanup.policy", SUBTRACT, "compact")]),
        (TOPIC, "a", [("cleanup.policy", DELETE, None)]),
        (TOPIC, "a", [("retention.ms", APPEND, "1")]),
        (TOPIC, "a", [("retention.ms", SET, None)]),
        (TOPIC, "a", [("retention.ms", SET, "x")]),
        (TOPIC, "a", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]),
        (TOPIC, "a", [("nope", SET, "1")]),
        (TOPIC, "a", [("nope", DELETE, None)]),
        (TOPIC, "a", []),
        (TOPIC, "missing", [("retention.ms", SET, "1")]),
        (TOPIC, "missing", []),
        (TOPIC, "no/name", [("retention.ms", SET, "1")]),
        (TOPIC, "", [("retention.ms", SET, "1")]),
        (BROKER, "", [("log.retention.ms", SET, "100000")]),
        (BROKER, "1", [("log.retention.ms", SET, "200000")]),
        (BROKER, "1", [("node.id", SET, "3")]),
        (BROKER, "2", [("log.retention.ms", SET, "3")]),
        (BROKER, "x", [("log.retention.ms", SET, "3")]),
        (BROKER, "1", [("log.retention.ms", SET, "q")]),
        (BROKER, "1", [("log.segment.bytes", SET, "3")]),
        (BROKER, "", [("log.cleanup.policy", APPEND, "compact")]),
        (BROKER, "", [("log.retention.ms", APPEND, "1")]),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")]),
        (
            GROUP,
            "g/h",
            [("consumer.session.timeout.ms", SET, "50000"), ("share.isolation.level", SET, "read_committed")],
        ),
        (GROUP, "g/h", [("consumer.session.timeout.ms", SET, "x")]),
        (GROUP, "g/h", [("consumer.session.timeout.ms", SET, "0")]),
        (GROUP, "g/h", [("consumer.session.timeout.ms", SET, "44999")]),
        (GROUP, "g/h", [("consumer.session.timeout.ms", SET, "60001")]),
        (GROUP, "g/h", [("consumer.session.timeout.ms", APPEND, "1")]),
        (GROUP, "g/h", [("consumer.session.timeout.ms", SET, None)]),
        (GROUP, "g/h", [("consumer.heartbeat.interval.ms", SET, "4999")]),
        (GROUP, "g/h", [("consumer.heartbeat.interval.ms", SET, "15001")]),
        (GROUP, "g/h", [("share.record.lock.duration.ms", SET, "999")]),
        (GROUP, "g/h", [("share.record.lock.duration.ms", SET, "1000")]),
        (GROUP, "g/h", [("share.record.lock.duration.ms", SET, "60001")]),
        (GROUP, "g/h", [("share.session.timeout.ms", SET, "60001")]),
        (GROUP, "g/h", [("share.heartbeat.interval.ms", SET, "1")]),
        (GROUP, "g/h", [("share.isolation.level", SET, "READ_COMMITTED")]),
        (GROUP, "g/h", [("share.auto.offset.reset", SET, "EARLIEST")]),
        (GROUP, "g/h", [("share.auto.offset.reset", SET, "by_duration:-PT1H")]),
        (GROUP, "g/h", [("share.auto.offset.reset", SET, "by_duration:PT1.5S")]),
        (GROUP, "g/h", [("nope", SET, "1")]),
        (GROUP, "g/h", [("nope", DELETE, None)]),
        (GROUP, "g/h", [("share.isolation.level", DELETE, None)]),
        (99, "a", [("x", SET, "1")]),
        (0, "a", [("x", SET, "1")]),
    ]
    for kind, name, changes in edits:
        resource = ic.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                ic.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ],
        )
        pair.ask(ic.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    resources = [
        dc.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in (
            (TOPIC, "a", ["retention.ms", "cleanup.policy"]),
            (TOPIC, "configured", ["retention.ms", "cleanup.policy"]),
            (GROUP, "g/h", GROUP_SETTINGS),
            (BROKER, "", None),
            (BROKER, "1", ["log.retention.ms", "log.retention.hours", "log.retention.minutes", "log.cleanup.policy"]),
        )
    ]
    pair.look(dc.DescribeConfigsRequest(resources=resources, include_synonyms=True), 4)


def test_replaced_settings(pair: Pair) -> None:
    for kind, name, configs in (
        (TOPIC, "configured", {"segment.ms": "5000"}),
        (TOPIC, "configured", {"segment.ms": None}),
        (TOPIC, "configured", {"nope": "1"}),
        (TOPIC, "missing", {"segment.ms": "1"}),
        (TOPIC, "configured", {}),
        (BROKER, "1", {"node.id": "3"}),
        (GROUP, "i", {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}),
        (GROUP, "i", {"consumer.heartbeat.interval.ms": "7000"}),
        (GROUP, "i", {"nope": "1"}),
        (8, "1", {"root": "INFO"}),
        (99, "x", {}),
    ):
        resource = ac.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[ac.AlterableConfig(name=key, value=value) for key, value in configs.items()],
        )
        pair.ask(ac.AlterConfigsRequest(resources=[resource], validate_only=False), 2)


def test_listed_resources(pair: Pair) -> None:
    for group, configs in (("j", {"consumer.session.timeout.ms": "50000"}), ("k", {})):
        resource = ac.AlterConfigsResource(
            resource_type=GROUP,
            resource_name=group,
            configs=[ac.AlterableConfig(name=key, value=value) for key, value in configs.items()],
        )
        pair.ask(ac.AlterConfigsRequest(resources=[resource], validate_only=False), 2)
    for version, kinds in ((0, []), (1, [BROKER, 8]), (1, [16, 32]), (1, [99]), (1, [0])):
        pair.look(lc.ListConfigResourcesRequest(resource_types=kinds), version)


def test_elections(pair: Pair) -> None:
    asked = [el.TopicPartitions(topic="a", partitions=[0, 9]), el.TopicPartitions(topic="missing", partitions=[0])]
    for version, election in ((0, 0), (1, 0), (2, 1), (2, 5)):
        pair.ask(el.ElectLeadersRequest(election_type=election, topic_partitions=asked), version)


def test_deleted_records_of_empty_partitions(pair: Pair) -> None:
    topics = [
        dr.DeleteRecordsTopic(
            name=name,
            partitions=[dr.DeleteRecordsPartition(partition_index=number, offset=offset) for number, offset in parts],
        )
        for name, parts in (("a", [(0, 0), (1, -1), (9, 0)]), ("missing", [(0, 0)]))
    ]
    pair.ask(dr.DeleteRecordsRequest(topics=topics, timeout_ms=3000), 2)
    beyond = dr.DeleteRecordsTopic(
        name="a",
        partitions=[
            dr.DeleteRecordsPartition(partition_index=number, offset=offset) for number, offset in ((0, 5), (1, -2))
        ],
    )
    pair.ask(dr.DeleteRecordsRequest(topics=[beyond], timeout_ms=3000), 2)
    policies = {"kept-compact": "compact", "kept-both": "compact,delete"}
    made = [new(name, 1, {"cleanup.policy": policy}) for name, policy in policies.items()]
    pair.ask(ct.CreateTopicsRequest(topics=made), 7)
    kept = [
        dr.DeleteRecordsTopic(name=name, partitions=[dr.DeleteRecordsPartition(partition_index=0, offset=0)])
        for name in policies
    ]
    pair.look(dr.DeleteRecordsRequest(topics=kept, timeout_ms=3000), 2)  # which may be asked twice
    pair.ask(dt.DeleteTopicsRequest(topic_names=list(policies), timeout_ms=3000), 5)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_ends_of_epochs_of_empty_partitions(pair: Pair, version: int) -> None:
    asked = [
        oe.OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
        for partition, current, epoch in ((0, -1, 0), (1, 5, 0), (1, 0, 7), (9, -1, 0))
    ]
    topics = [
        oe.OffsetForLeaderTopic(topic="a", partitions=asked),
        oe.OffsetForLeaderTopic(topic="x", partitions=asked[:1]),
    ]
    pair.look(oe.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), version)


def test_nothing_is_reassigned(pair: Pair) -> None:
    """One broker has nowhere to move partitions to; every way to ask is answered alike but for the words."""
    cases: list[tuple[str, int, list[int] | None]] = [
        ("a", 0, [1]),
        ("a", 0, [2]),
        ("a", 0, [1, 2]),
        ("a", 0, [1, 1]),
        ("a", 0, [-1]),
        ("a", 0, []),
        ("a", 0, None),
        ("a", 9, [1]),
        ("missing", 0, [1]),
        ("missing", 0, None),
    ]
    for version in (0, 1):
        for topic, number, replicas in cases:
            part = ar.ReassignablePartition(partition_index=number, replicas=replicas)
            request = ar.AlterPartitionReassignmentsRequest(
                topics=[ar.ReassignableTopic(name=topic, partitions=[part])]
            )
            codes = [
                (answer.error_code, [each.error_code for name in answer.responses for each in name.partitions])
                for answer in (ask(bootstrap, request, version) for bootstrap in pair)
            ]
            assert codes[1] == codes[0], (topic, number, replicas)
    pair.look(lr.ListPartitionReassignmentsRequest(topics=None), 0)
    asked = lr.ListPartitionReassignmentsTopics(name="a", partition_indexes=[0, 1])
    pair.look(lr.ListPartitionReassignmentsRequest(topics=[asked]), 0)


def test_brokers_that_are_not_registered(pair: Pair) -> None:
    for number in (0, 7, -1):
        pair.ask(ub.UnregisterBrokerRequest(broker_id=number), 0)


def test_a_broker_that_is_alive_stays(pair: Pair) -> None:
    """Kafka would forget the only broker there is, which then serves nobody."""
    answer = ask(pair.ottla, ub.UnregisterBrokerRequest(broker_id=1), 0)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == "Broker 1 is alive. Stop it: its registration ends with its session."


def test_quotas(pair: Pair) -> None:
    """Filters are asked while quotas are set, changed and removed; those that throttle are of nobody's here."""
    pair.ask(alteration(*QUOTAS, validate_only=True), 1)
    pair.look(question(), 1)
    pair.ask(alteration(*QUOTAS), 1)
    for version in (0, 1):
        for refused in REFUSED:
            pair.ask(alteration(refused), version)
        for components in FILTERS:
            for strict in (False, True):
                pair.look(question(*components, strict=strict), version)
    pair.ask(alteration(*REMOVED), 1)
    pair.look(question(), 1)
    pair.ask(alteration(QUOTAS[0], QUOTAS[0], REFUSED[0], ((("user", "alice"),), (("producer_byte_rate", 5.0),))), 1)
    pair.look(question(), 1)
    pair.ask(alteration(*((entity, tuple((key, None) for key, _ in ops)) for entity, ops in QUOTAS)), 1)


def test_throttle_times(pair: Pair) -> None:
    """The same requests on both until each kind of quota is used up: as many are allowed, and throttled as long."""
    genuine, ottla = (first_throttle_times(bootstrap) for bootstrap in pair)
    assert ottla.keys() == genuine.keys()
    for kind, (allowed, throttle_ms) in genuine.items():
        assert ottla[kind][0] == allowed, kind
        assert ottla[kind][1] == pytest.approx(throttle_ms, abs=300), kind  # a genuine broker may be slow meanwhile


@pytest.mark.parametrize("resource", ["1", ""])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("background.threads", "12"),
        ("background.threads", "21"),
        ("background.threads", "4"),
        ("num.io.threads", "0"),
        ("log.cleaner.backoff.ms", "1000"),
        ("unheard.of", "1"),
        ("node.id", "5"),
        ("authorizer.class.name", "x"),
        ("ssl.keystore.location", "/x"),
        ("listener.name.plaintext.max.connections", "5"),
    ],
)
def test_settings_without_effect_are_changed_and_refused_alike(
    pair: Pair, name: str, value: str, resource: str
) -> None:
    requests: list[tuple[Message, int]] = [
        (
            ic.IncrementalAlterConfigsRequest(
                resources=[
                    ic.AlterConfigsResource(
                        resource_type=BROKER,
                        resource_name=resource,
                        configs=[ic.AlterableConfig(name=name, config_operation=SET, value=value)],
                    )
                ],
                validate_only=True,
            ),
            1,
        )
    ]
    if resource:  # else genuine Kafka sees its own setting of min.insync.replicas go
        requests.append(
            (
                ac.AlterConfigsRequest(
                    resources=[
                        ac.AlterConfigsResource(
                            resource_type=BROKER,
                            resource_name=resource,
                            configs=[ac.AlterableConfig(name=name, value=value)],
                        )
                    ],
                    validate_only=True,
                ),
                2,
            )
        )
    for request, version in requests:
        pair.ask(request, version)
