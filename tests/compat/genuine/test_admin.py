"""Each call of `ottla.admin`, against Ottla and against genuine Kafka."""

import asyncio
import inspect
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from starlette.testclient import TestClient
from tests.compat.cli.program import OttlaProgram
from tests.support import stories
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.raw_client import ask
from tests.support.share_groups import topic_id
from tests.support.streams_member import Member, counting
from tests.support.tool_server import kafka_tool
from tests.support.transaction_stories import Teller

from ottla.admin import (
    Admin,
    AsyncAdmin,
    AuthenticationFailed,
    BrokerUnavailable,
    Deliveries,
    EntityQuotas,
    NotFound,
    Partition,
    QuotaEntity,
    RequestRefused,
    Subscription,
    UnsupportedRequest,
)
from ottla.console.access.access import Access, Settings
from ottla.console.access.audit import AuditTrail
from ottla.console.app import application
from ottla.console.lookups import partition_of
from ottla.errors import ErrorCode
from ottla.protocol.messages import read_share_group_state as read
from ottla.protocol.messages import write_share_group_state as write
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.heartbeat.interval.ms": "100",
    "group.streams.min.heartbeat.interval.ms": "100",
}
HOUR_MS = 3_600_000


@pytest.fixture(scope="module", params=[GenuineKafka, OttlaProcess], ids=["genuine", "ottla"])
def process(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with request.param(properties=SETTINGS) as process:
        teller = Teller(process.bootstrap)
        teller.ready()
        teller.create("t", 2)
        yield process


@pytest.fixture
def admin(process: BrokerProcess) -> Iterator[Admin]:
    with Admin(process.bootstrap) as admin:
        yield admin


@pytest.fixture
def is_genuine(process: BrokerProcess) -> bool:
    return isinstance(process, GenuineKafka)


def test_the_cluster(admin: Admin, process: BrokerProcess) -> None:
    teller = Teller(process.bootstrap)
    teller.create("ends", 2)
    teller.fill("ends", stories.batch(b"first"), partition=1)
    empty, full = Partition("ends", 0), Partition("ends", 1)
    cluster = admin.describe_cluster(["ends", "none"])
    assert (cluster.controller, cluster.racks) == (1, {1: None})
    assert str(cluster.brokers[1].address) == process.bootstrap
    assert cluster.assignments == {empty: (1,), full: (1,)}
    state = cluster.partitions[empty]
    assert (state.leader, state.in_sync) == (1, (1,))
    assert cluster.assignments.keys() <= admin.describe_cluster().assignments.keys()
    wanted = {1: [empty, full], 7: [empty]}
    assert admin.list_log_ends(cluster, wanted) == {1: {empty: 0, full: 1}}
    replicas = admin.describe_replicas(cluster, wanted)
    assert {at: found.size_bytes > 0 for at, found in replicas.items()} == {(1, empty): False, (1, full): True}
    assert {Path(found.directory) for found in replicas.values()} == {process.log_dir}
    assert admin.list_leader_ends(cluster, [empty, full, Partition("none", 0)]) == {empty: 0, full: 1}
    ((directory,),) = admin.describe_log_directories(cluster).values()
    assert Path(directory.path) == process.log_dir
    assert directory.replicas >= 2
    assert (directory.total_bytes or 0) > (directory.usable_bytes or 0) > 0
    assert (directory.moving_bytes, directory.problem) == (0, None)


def test_the_controllers(admin: Admin, process: BrokerProcess, *, is_genuine: bool) -> None:
    ottla = OttlaProgram(process.bootstrap)
    if not is_genuine:
        with pytest.raises(UnsupportedRequest):
            admin.describe_quorum()
        said = ottla("quorum", "status", code=1).stderr
        assert "no quorum of controllers: broker 1 keeps its metadata itself, in its log directory" in said
        return
    quorum = admin.describe_quorum()
    assert (quorum.leader, [(each.node_id, each.lag) for each in quorum.voters]) == (1, [(1, 0)])
    shown = ottla.json("quorum", "status")
    (leader,) = shown["replicas"]
    assert (shown["leader"], shown["max_voter_lag"]) == (1, 0)
    assert (leader["node"], leader["role"], leader["lag"]) == (1, "leader", 0)
    assert leader["listeners"][0].startswith("CONTROLLER://127.0.0.1:")
    kafkas = ["--bootstrap-server", process.bootstrap, "describe"]
    printed = kafka_tool("MetadataQuorumCommand", *kafkas, "--status").stdout
    facts = {name: value.strip() for name, _, value in (line.partition(":") for line in printed.splitlines())}
    assert (facts["LeaderId"], facts["LeaderEpoch"]) == ("1", str(shown["epoch"]))
    assert int(facts["HighWatermark"]) >= shown["high_watermark"] > 0
    assert json.loads(facts["CurrentVoters"])[0]["endpoints"] == leader["listeners"]
    row = kafka_tool("MetadataQuorumCommand", *kafkas, "--replication").stdout.splitlines()[1].split()
    assert row[:2] == ["1", leader["directory_id"] or "AAAAAAAAAAAAAAAAAAAAAA"]
    refused = ottla("quorum", "remove", "1", "--yes", "--directory-id", "AAAAAAAAAAAAAAAAAAAABQ", code=1).stderr
    assert "controller 1 keeps its vote" in refused


def test_a_transaction_that_its_coordinator_knows(admin: Admin, process: BrokerProcess) -> None:
    teller = Teller(process.bootstrap)
    teller.add("takes part", teller.new("app"), [("t", 0)])
    (listed,) = admin.list_transactions(states=["Ongoing"])
    assert listed == admin.describe_transaction("app")
    assert (listed.transactional_id, listed.coordinator, listed.is_open) == ("app", 1, True)
    assert listed.partitions == {Partition("t", 0)}
    assert admin.list_transactions(longer_than_ms=HOUR_MS) == []
    assert [(each.partition, each.records) for each in admin.list_held_back(listed)] == [(Partition("t", 0), 0)]
    admin.abort_transaction("app")
    assert eventually(lambda: not admin.describe_transaction("app").is_open)
    with pytest.raises(NotFound, match="transactional id 'nobody' does not exist"):
        admin.describe_transaction("nobody")


def test_a_transaction_that_hangs(admin: Admin, process: BrokerProcess) -> None:
    teller = Teller(process.bootstrap)
    teller.create("hanging", 1)
    producer = teller.new("lost")
    batch = stories.batch(
        b"hangs",
        timestamp_ms=stories.NOW_MS - HOUR_MS,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )
    request = stories.produce([("hanging", 0, batch)], transactional_id="lost")
    assert ask(process.bootstrap, request, 9).responses[0].partition_responses[0].error_code == 0
    place = Partition("hanging", 0)
    (opened,) = admin.list_open_transactions([place, Partition("none", 0)])
    assert (opened.partition, opened.first_offset, opened.producer_id) == (place, 0, producer.id)
    (hanging,) = admin.find_hanging_transactions([place], time.time_ns() // 1_000_000)
    assert (hanging.transaction, hanging.transactional_id) == (opened, "lost")
    assert admin.find_owner(opened) is None
    admin.abort_hanging_transaction(opened)
    assert admin.list_open_transactions([place]) == []


def test_reassignments(admin: Admin) -> None:
    place = Partition("t", 0)
    assert admin.list_reassignments() == {}
    refused = admin.alter_reassignments({place: [7], Partition("t", 1): None})
    assert refused[place].code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused[Partition("t", 1)].code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert admin.alter_reassignments({place: [1]}) == {}


def test_where_replicas_lie(admin: Admin, process: BrokerProcess) -> None:
    cluster = admin.describe_cluster(["t"])
    place = Partition("t", 0)
    assert admin.place_replicas(cluster, {1: {place: str(process.log_dir)}}) == {}
    assert admin.place_replicas(cluster, {1: {place: "/nowhere"}})[place].code == ErrorCode.LOG_DIR_NOT_FOUND
    with pytest.raises(NotFound, match="broker 7, for which a directory is given, is not running"):
        admin.place_replicas(cluster, {7: {place: "/"}})


def test_share_groups(admin: Admin, process: BrokerProcess) -> None:
    def beat(epoch: int) -> int:
        return _beat(process.bootstrap, "sharing", epoch)

    ask(process.bootstrap, FindCoordinatorRequest(coordinator_keys=["sharing"]), 4)
    assert eventually(lambda: beat(0) == 0)
    assert [(each.group, each.state) for each in admin.list_share_groups()] == [("sharing", "Stable")]
    assert "sharing" in [each.group for each in admin.list_groups()]
    (member,) = admin.describe_share_group("sharing").members
    assert (member.member, member.client, member.topics) == ("m", "c", ("t",))
    assert eventually(lambda: beat(0) == 0 and admin.describe_share_group("sharing").readers(Partition("t", 1)) == 1)
    assert admin.delete_groups(["sharing"])["sharing"].code == ErrorCode.NON_EMPTY_GROUP
    assert beat(-1) == 0
    eventually(lambda: admin.alter_share_group_offsets("sharing", {Partition("t", 1): 1}) is None)
    assert admin.list_share_group_offsets("sharing")[Partition("t", 1)].start == 1
    moved = [Partition("t", 1), Partition("none", 0)]
    assert admin.list_share_deliveries("sharing", moved) == {Partition("t", 1): []}
    _note_deliveries(process.bootstrap)
    teller = Teller(process.bootstrap)
    for value in (b"a", b"b", b"c", b"d"):
        teller.fill("t", stories.batch(value), partition=1)
    access = Access(Settings(process.bootstrap, {}))
    with TestClient(application(access), base_url="http://127.0.0.1") as client:
        assert "/share-keys/sharing" in client.get("/groups/sharing").text
        by_key = client.get("/share-keys/sharing").text
        assert "3 of 3 records were looked at" in by_key
        assert client.get("/share-keys/nothing").status_code == 404
    access.close()
    assert admin.list_share_deliveries("sharing", moved) == {
        Partition("t", 1): [Deliveries(1, 3, "available", 2), Deliveries(4, 4, "archived", 5)]
    }
    assert (admin.list_share_group_offsets("sharing")[Partition("t", 1)].start) == 1
    assert admin.delete_groups(["sharing", "nothing"]).keys() == {"nothing"}
    with pytest.raises(NotFound):
        admin.describe_share_group("sharing")


def _beat(bootstrap: str, group: str, epoch: int) -> int:
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=epoch, subscribed_topic_names=["t"]
    )
    return int(ask(bootstrap, request, 1, client_id="c").error_code)


def _note_deliveries(bootstrap: str) -> None:
    """What the leader of the partition writes down when members have released or rejected records."""
    known = topic_id(bootstrap, "t")
    partition = read.PartitionData(partition=1, leader_epoch=-1)
    asked = read.ReadShareGroupStateRequest(
        group_id="sharing", topics=[read.ReadStateData(topic_id=known, partitions=[partition])]
    )
    (found,) = ask(bootstrap, asked, 0).results[0].partitions
    kept = write.PartitionData(
        partition=1,
        state_epoch=found.state_epoch,
        leader_epoch=0,
        start_offset=1,
        state_batches=[
            write.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in ((1, 3, 0, 2), (4, 4, 4, 5))
        ],
    )
    noted = write.WriteShareGroupStateRequest(
        group_id="sharing", topics=[write.WriteStateData(topic_id=known, partitions=[kept])]
    )
    assert [each.error_code for each in ask(bootstrap, noted, 0).results[0].partitions] == [0]


def test_streams_groups(admin: Admin, process: BrokerProcess) -> None:
    member = Member(process.bootstrap, "words", "one")
    member.join(counting("words", "t"))
    assert [each.group for each in admin.list_streams_groups()] == ["words"]
    group = admin.describe_streams_group("words")
    assert [each.member for each in group.members] == [member.who]
    assert group.topology_epoch is not None
    assert "t" in {topic for each in group.subtopologies for topic in each.inputs}
    assert admin.list_group_offsets("words") == {}
    with pytest.raises(NotFound):
        admin.describe_streams_group("nothing")


def test_features(admin: Admin) -> None:
    features = admin.describe_features()
    found = features["transaction.version"]
    assert found.lowest <= found.level <= found.highest
    admin.update_features({"transaction.version": found.highest}, dry_run=True)
    with pytest.raises(RequestRefused, match="no level was changed"):
        admin.update_features({"transaction.version": found.highest + 1})
    with pytest.raises(NotFound, match="there is no feature 'nonsense'"):
        admin.update_features({"nonsense": 1})
    assert admin.describe_features() == features


def test_telemetry(admin: Admin, *, is_genuine: bool) -> None:
    wanted = Subscription("all", ("org.apache.kafka.", "x."), 60_000, ("client_id=app.*",))
    admin.alter_subscription(wanted)
    assert eventually(lambda: admin.list_subscriptions() == [wanted])
    admin.delete_subscription("all")
    assert eventually(lambda: admin.list_subscriptions() == [])
    with pytest.raises(NotFound, match="there is no subscription 'all'"):
        admin.delete_subscription("all")
    if is_genuine:
        with pytest.raises(UnsupportedRequest, match="does not serve DescribeTelemetry"):
            admin.list_telemetry_clients()
    else:
        assert admin.list_telemetry_clients() == []


def test_quotas(admin: Admin, *, is_genuine: bool) -> None:
    entity = QuotaEntity("alice", "")
    admin.alter_quotas(entity, {"producer_byte_rate": 5e6}, validate_only=True)
    assert admin.list_quotas() == []
    admin.alter_quotas(entity, {"producer_byte_rate": 5e6, "request_percentage": 12.5})
    admin.alter_quotas(QuotaEntity(ip="10.0.0.1"), {"connection_creation_rate": 7})
    wanted = {"producer_byte_rate": 5e6, "request_percentage": 12.5}
    address = EntityQuotas(QuotaEntity(ip="10.0.0.1"), {"connection_creation_rate": 7.0})
    assert eventually(lambda: admin.list_quotas() == [address, EntityQuotas(entity, wanted)])
    with pytest.raises(RequestRefused, match=r"quotas of user 'alice', any client id are not changed: .*Invalid"):
        admin.alter_quotas(entity, {"connection_creation_rate": 1})
    admin.alter_quotas(entity, dict.fromkeys(wanted))
    admin.alter_quotas(QuotaEntity(ip="10.0.0.1"), {"connection_creation_rate": None})
    assert eventually(lambda: admin.list_quotas() == [])
    if is_genuine:
        with pytest.raises(UnsupportedRequest, match="does not serve DescribeQuotaUsage"):
            admin.list_quota_use()
    else:
        assert admin.list_quota_use() == []


def test_the_history_of_a_group(admin: Admin, *, is_genuine: bool) -> None:
    with pytest.raises(UnsupportedRequest if is_genuine else NotFound, match=r"DescribeGroupHistory|does not exist"):
        admin.describe_group_history("nobody")


def test_the_same_with_an_event_loop(process: BrokerProcess) -> None:
    def methods(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}

    assert methods(AsyncAdmin) == methods(Admin)

    async def story() -> None:
        async with AsyncAdmin(process.bootstrap) as admin:
            cluster, features = await asyncio.gather(admin.describe_cluster(["t"]), admin.describe_features())
            assert len(cluster.partitions) == 2
            assert "transaction.version" in features
            with pytest.raises(NotFound, match="transactional id 'nobody' does not exist"):
                await admin.describe_transaction("nobody")
        async with AsyncAdmin("127.0.0.1:9") as admin:
            with pytest.raises(BrokerUnavailable, match="cannot be reached"):
                await admin.describe_features()

    asyncio.run(story())


def test_a_broker_that_asks_for_a_password() -> None:
    """Genuine Kafka with SASL; blocking and with an event loop. SCRAM is held against its RFC in tests/unit/client."""
    process = GenuineKafka()
    secured = f"127.0.0.1:{free_port()}"
    controller = f"CONTROLLER://127.0.0.1:{free_port()}"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    process.properties = {
        "controller.quorum.voters": controller.replace("CONTROLLER://", "1@"),
        "listeners": f"PLAINTEXT://{process.bootstrap},SASL_PLAINTEXT://{secured},{controller}",
        "advertised.listeners": f"PLAINTEXT://{process.bootstrap},SASL_PLAINTEXT://{secured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{login} username="admin" password="secret" user_admin="secret";'
        ),
    }
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "admin"}
    right, wrong = {**properties, "sasl.password": "secret"}, {**properties, "sasl.password": "guess"}

    async def story() -> None:
        async with AsyncAdmin(secured, properties=right) as admin:
            assert await admin.describe_features()
        async with AsyncAdmin(secured, properties=wrong) as admin:
            with pytest.raises(AuthenticationFailed, match="does not authenticate this client"):
                await admin.describe_features()

    with process:
        with Admin(secured, properties=right) as admin:
            assert admin.describe_features()
        with (
            Admin(secured, properties=wrong) as admin,
            pytest.raises(AuthenticationFailed, match="does not authenticate this client"),
        ):
            admin.describe_features()
        asyncio.run(story())


def test_single_offsets_of_a_group_are_forgotten(admin: Admin, process: BrokerProcess) -> None:
    client = AdminClient({"bootstrap.servers": process.bootstrap})
    kept = [TopicPartition("t", 0, 5), TopicPartition("t", 1, 7)]

    def committed() -> bool:  # by a coordinator that has come up
        (answer,) = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("readers", kept)]).values()
        return all(each.error is None for each in answer.result(10).topic_partitions or [])

    eventually(committed, timeout_s=60)
    admin.delete_group_offsets("readers", [("t", 0)])
    assert admin.list_group_offsets("readers") == {Partition("t", 1): 7}
    admin.delete_group_offsets("readers", [("t", 0), ("nowhere", 0)])
    admin.delete_group_offsets("nobody", [("t", 0)])
    assert admin.list_group_offsets("readers") == {Partition("t", 1): 7}


def test_the_console_shows_it(process: BrokerProcess) -> None:
    consumer = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "seen", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    consumer.close()
    with Admin(process.bootstrap) as admin:
        assert admin.list_offsets_of_groups(["seen", "unseen"])["seen"] == {Partition("t", 0): 0}
        assert admin.list_offsets_of_groups(["seen"], [Partition("t", 1)]) == {"seen": {}}
    access = Access(Settings(process.bootstrap, {}))
    with TestClient(application(access), base_url="http://127.0.0.1") as client:
        assert "Brokers" in client.get("/").text
        assert "/topics/t" in client.get("/topics").text
        page = client.get("/topics/t").text
        assert "retention.ms" in page
        assert page.count("<tr>") > 30
        assert client.get("/topics/t/records/search").text.rstrip().endswith("event: end\ndata:")
        assert "seen" in client.get("/groups").text
        assert "Why it rebalanced" in client.get("/groups/seen").text
        assert client.get("/groups/unseen").status_code == 404
    access.close()


def test_the_console_changes_a_cluster(process: BrokerProcess) -> None:
    access = Access(Settings(process.bootstrap, {}, changes=True, trail=AuditTrail(lambda lines: None)))
    with TestClient(application(access), base_url="http://127.0.0.1", headers={"Origin": "http://127.0.0.1"}) as client:
        token = access.viewer({}).token  # type: ignore[union-attr]

        def done(path: str, **form: str) -> str:
            answer = client.post(path, data={"csrf": token, **form})
            assert answer.status_code == 200, answer.text
            return answer.text.partition('role="status">')[2].partition("<")[0]

        assert done("/create-topic", name="changed", partitions="1") == "Topic changed has been created."
        assert done("/topics/changed/partitions", count="2") == "changed has 2 partitions now."
        producer = Producer({"bootstrap.servers": process.bootstrap})
        for _ in range(10):
            producer.produce("changed", "x", partition=0)
        assert producer.flush(20) == 0
        consumer = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "changing"})
        consumer.commit(offsets=[TopicPartition("changed", 0, 7)], asynchronous=False)
        consumer.close()
        assert "retention.ms of changed is 60000" in done(
            "/topics/changed/settings", name="retention.ms", value="60000", confirm="changed"
        )
        assert "the default again" in done(
            "/topics/changed/settings", name="retention.ms", default="1", confirm="changed"
        )
        assert "7 records would be read again" in client.get("/seek-group/changing?to=earliest").text
        assert done("/seek-group/changing", offsets="changed:0:2") == "1 position of changing moved."
        assert "lag goes from 8 to 0" in client.get("/seek-group/changing?to=latest").text
        assert "4 records" in client.get("/topics/changed/trim?before=offset&offset=4&partition=0").text
        assert "4 records" in done("/topics/changed/trim", offsets="changed:0:4", confirm="changed")
        assert "deleted, with 1 position" in done("/delete-group/changing", confirm="changing")
        assert "deleted, with 6 records" in done("/topics/changed/delete", confirm="changed")
    access.close()


def _hang(bootstrap: str, teller: Teller) -> None:
    """A transaction that no coordinator knows, of an hour ago, in `hangs`."""
    teller.create("hangs", 1)
    producer = teller.new("hung")
    batch = stories.batch(
        b"hangs",
        timestamp_ms=stories.NOW_MS - HOUR_MS,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )
    ask(bootstrap, stories.produce([("hangs", 0, batch)], transactional_id="hung"), 9)


def test_the_console_reads_and_writes_records(process: BrokerProcess) -> None:
    access = Access(Settings(process.bootstrap, {}, changes=True, trail=AuditTrail(lambda lines: None)))
    with TestClient(application(access), base_url="http://127.0.0.1", headers={"Origin": "http://127.0.0.1"}) as client:
        token = access.viewer({}).token  # type: ignore[union-attr]

        def done(path: str, **form: str) -> str:
            answer = client.post(path, data={"csrf": token, **form})
            assert answer.status_code == 200, answer.text
            return answer.text

        def found(**query: str) -> str:
            return client.get("/topics/written/records/search", params=query).text

        done("/create-topic", name="written", partitions="3")
        for number in range(4):
            done("/topics/written/produce", key=f"k{1 + number % 2}", value=f'{{"n": {number}}}', headers="h: x")
        held = {partition_of(key, 3, "murmur2") for key in (b"k1", b"k2")}
        again = done(f"/topics/written/records/{partition_of(b'k1', 3, 'murmur2')}/0/again")
        assert "at offset " in again
        assert "retention.ms keeps records for 7 days" in again
        shown = found(look="key", columns="value.n", **{"for": "k1", "from": "oldest"})
        assert [each.split("<")[0] for each in shown.split('<td class="text">')[1:]] == ["0", "2", "0"]
        assert "; 2 keys" in found(**{"from": "latest"})
        lines = client.get("/topics/written/records/export/jsonl", params={"all": "1", "filter": "value.n >= 2"}).text
        assert {json.loads(line)["value"]["n"] for line in lines.splitlines()} == {2, 3}
        producer = Producer({"bootstrap.servers": process.bootstrap, "transactional.id": "writes"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("written", "open", partition=min(held))
        assert producer.flush(20) == 0
        assert eventually(lambda: "5 records, 6 of 6 offsets" in found())  # what is not committed holds up no search
        producer.abort_transaction(30)
        assert eventually(lambda: "5 records, 7 of 7 offsets" in found())
    access.close()


def test_the_console_shows_transactions_the_cluster_and_users(process: BrokerProcess, *, is_genuine: bool) -> None:
    teller = Teller(process.bootstrap)
    teller.create("held", 1)
    producer = teller.new("holds/back")
    teller.add("takes part", producer, [("held", 0)])
    batch = stories.batch(
        b"held", producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=0, transactional=True
    )
    ask(process.bootstrap, stories.produce([("held", 0, batch)], transactional_id="holds/back"), 9)
    consumer = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "waits", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("held", 0, 0)], asynchronous=False)
    consumer.close()
    access = Access(Settings(process.bootstrap, {}, changes=True, trail=AuditTrail(lambda lines: None)))
    with TestClient(application(access), base_url="http://127.0.0.1", headers={"Origin": "http://127.0.0.1"}) as client:
        assert "holds/back" in client.get("/transactions").text
        page = client.get("/transactions/holds%2Fback").text
        assert '<span class="warning">1</span>' in page
        assert "/groups/waits" in page
        assert client.get("/transactions/nobody").status_code == 404
        assert "No transaction is hanging" in client.get("/hanging-transactions").text
        cluster = client.get("/cluster").text
        assert str(process.log_dir) in cluster
        assert "All replicas are in sync" in cluster
        assert "No partition is being moved" in cluster
        assert ("1, which is active" if is_genuine else "Broker 1 is the controller") in cluster
        security = client.get("/security").text
        assert "The cluster refuses: access rules cannot be listed" in security
        assert "There is no such quota" in security
        assert 'class="differs"' not in client.get("/topics/t/compare").text
        assert client.get("/topics/t/compare?with=held").text.count("<tr") > 30
        assert client.get("/topics/t/size").status_code == 200
        assert "Lag in records" in client.get("/groups/waits").text
        ask(process.bootstrap, FindCoordinatorRequest(coordinator_keys=["shares"]), 4)
        assert eventually(lambda: _beat(process.bootstrap, "shares", 0) == 0)
        assert eventually(lambda: "Deliveries" in client.get("/groups/shares").text)
        assert _beat(process.bootstrap, "shares", -1) == 0
        token = access.viewer({}).token  # type: ignore[union-attr]
        refused = client.post("/abort-transaction/holds%2Fback", data={"csrf": token, "confirm": "holds"})
        assert refused.status_code == 400
        done = client.post("/abort-transaction/holds%2Fback", data={"csrf": token, "confirm": "holds/back"})
        assert "The transaction of holds/back is aborted" in done.text
        _hang(process.bootstrap, teller)
        access.viewer({}).view.forget()  # type: ignore[union-attr]
        assert "/abort-hanging-transaction" in client.get("/hanging-transactions").text
        form = {"csrf": token, "topic": "hangs", "partition": "0", "first_offset": "0", "confirm": "hangs-0"}
        assert "readers of committed records go on" in client.post("/abort-hanging-transaction", data=form).text
        assert client.post("/abort-hanging-transaction", data=form).status_code == 404
    access.close()
    with Admin(process.bootstrap) as admin:
        assert admin.delete_groups(["shares"]) == {}
