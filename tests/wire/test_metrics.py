"""What `metrics.listeners` serves of a real broker: numbers that agree with what was done, and health."""

import asyncio
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from tests.support.console_process import Console
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.quota_stories import CLIENT, alteration
from tests.support.raw_client import RawConnection, ask
from tests.support.share_member import ACCEPT, RELEASE, ShareMember
from tests.support.stories import batch
from tests.support.stories import produce as produce_request

from ottla.broker import Broker as Engine
from ottla.clock import SystemClock
from ottla.config.broker import BrokerConfig
from ottla.console import metrics as console_metrics
from ottla.errors import ErrorCode
from ottla.log.fs import RealFileSystem
from ottla.metadata.quorum import formatting
from ottla.protocol.messages import get_telemetry_subscriptions as gt
from ottla.protocol.messages import incremental_alter_configs as ic
from ottla.protocol.messages import push_telemetry as pt
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.server.metrics.catalog import FAMILIES

CLIENT_METRICS = 16
SET, DELETE = 0, 1
HOSTILE = 'group "x"\nkafka_fake 1\\'

Samples = dict[tuple[str, ...], float]


def samples_of(text: str) -> Samples:
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Measured:
    """A broker, and what its metrics endpoint answers."""

    def __init__(self, **settings: str) -> None:
        self.port = free_port()
        self.broker = OttlaProcess()
        self.broker.properties["metrics.listeners"] = f"http://127.0.0.1:{self.port}"
        self.broker.properties.update({name.replace("_", "."): value for name, value in settings.items()})

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def scrape(self) -> Samples:
        status, body = self.get("/metrics")
        assert status == 200, body
        return samples_of(body)


@pytest.fixture(scope="module")
def measured() -> Iterator[Measured]:
    found = Measured(
        metrics_topics_max="5",
        metrics_groups_max="1",
        log_cleaner_backoff_ms="100",
        producer_id_expiration_check_interval_ms="100",
    )
    with found.broker:
        admin = AdminClient({"bootstrap.servers": found.broker.bootstrap})
        for created in admin.create_topics([NewTopic(name, 2, 1) for name in ("a", "b")]).values():
            created.result(20)
        yield found


def topic_id_of(admin: AdminClient, name: str) -> bytes:
    described = admin.describe_topics(TopicCollection([name]))[name].result(20).topic_id
    return described.get_most_significant_bits().to_bytes(8, "big", signed=True) + (
        described.get_least_significant_bits().to_bytes(8, "big", signed=True)
    )


def initialized(member: ShareMember) -> bool:
    try:
        member.initialize()
    except AssertionError:  # the share coordinator's topic is being made
        return False
    return True


def produce(measured: Measured, topic: str, count: int, value: bytes = b"v" * 100, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": measured.broker.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(20) == 0


def test_records_bytes_requests_and_lag_are_what_was_done(measured: Measured) -> None:
    before = measured.scrape()
    produce(measured, "a", 100)
    consumer = Consumer({"bootstrap.servers": measured.broker.bootstrap, "group.id": HOSTILE, "client.id": "reader"})
    consumer.assign([TopicPartition("a", 0, 0)])
    assert len(consumer.consume(40, timeout=20)) == 40
    consumer.commit(offsets=[TopicPartition("a", 0, 40)], asynchronous=False)
    consumer.close()
    long = Consumer({"bootstrap.servers": measured.broker.bootstrap, "group.id": "long" * 5_000})
    long.commit(offsets=[TopicPartition("a", 0, 40)], asynchronous=False)
    long.close()
    lag = ("kafka_consumergroup_lag", f"consumergroup={HOSTILE}", "partition=0", "topic=a")
    eventually(lambda: measured.scrape().get(lag) == 10)
    after = measured.scrape()
    topics = "kafka_server_brokertopicmetrics"
    assert after[f"{topics}_messagesin_total", "topic=a"] == 100
    assert 10_000 < after[f"{topics}_bytesin_total", "topic=a"] < 20_000
    assert after[f"{topics}_bytesout_total", "topic=a"] > 4_000
    assert after[f"{topics}_messagesin_total",] - before[f"{topics}_messagesin_total",] >= 100
    assert after["kafka_topic_partition_current_offset", "partition=1", "topic=a"] == 50
    assert after["kafka_log_log_size", "partition=0", "topic=a"] > 5_000
    assert after["kafka_server_replicamanager_leadercount",] == after["kafka_server_replicamanager_partitioncount",]
    produced = sum(
        value
        for key, value in after.items()
        if key[:2] == ("kafka_network_requestmetrics_requests_total", "request=Produce")
    )
    assert produced == after["kafka_network_requestmetrics_totaltimems_count", "request=Produce"] > 0
    assert after["kafka_network_requestmetrics_totaltimems", "quantile=0.99", "request=Produce"] > 0
    assert after["ottla_group_commit_seconds_count", f"directory={measured.broker.log_dir}"] > 0
    assert after["kafka_controller_kafkacontroller_activecontrollercount",] == 1
    assert after["kafka_controller_kafkacontroller_offlinepartitionscount",] == 0
    assert not any("kafka_fake" in key[0] for key in after)
    assert max(len(label) for key in after for label in key) < 300
    assert after["ottla_metrics_left_out", "what=groups"] == 1


def test_series_of_topics_are_bounded_and_sums_do_not_fall(measured: Measured) -> None:
    left_out = "ottla_metrics_left_out", "what=topics"
    before = measured.scrape()[left_out]
    admin = AdminClient({"bootstrap.servers": measured.broker.bootstrap})
    names = [f"many-{number}" for number in range(8)]
    for created in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        created.result(20)
    produce(measured, "many-0", 10)
    eventually(lambda: measured.scrape()[left_out] >= 4)
    found = measured.scrape()
    assert len({key for key in found if key[0] == "kafka_topic_partitions"}) <= 5
    for deleted in admin.delete_topics(names).values():
        deleted.result(20)
    eventually(lambda: measured.scrape()[left_out] <= max(before, 1))
    total = ("kafka_server_brokertopicmetrics_messagesin_total",)
    assert measured.scrape()[total] >= found[total] >= 10, "a sum that falls counts as a reset"


def test_errors_and_throttled_requests_are_counted(measured: Measured) -> None:
    limit = alteration((((CLIENT, "eager"),), (("producer_byte_rate", 1_000.0),)))
    (answer,) = ask(measured.broker.bootstrap, limit, 1).entries
    assert answer.error_code == 0
    data = batch(b"x" * 40_000)
    with RawConnection(measured.broker.bootstrap, client_id="eager") as connection:
        refused = connection.ask(produce_request([("no-such-topic", 0, data)]), 9)
        assert refused.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused.throttle_time_ms > 0
        key = "ottla_throttled_requests_total", "kind=producer_byte_rate"
        found = eventually(lambda: samples if key in (samples := measured.scrape()) else {})
    error = "error=UNKNOWN_TOPIC_OR_PARTITION", "request=Produce"
    assert found["kafka_network_requestmetrics_errors_total", *error] >= 1
    assert found[key] == 1
    assert found["ottla_throttle_seconds_total", "kind=producer_byte_rate"] > 1
    assert found["ottla_throttled_clients", "kind=producer_byte_rate"] == 1


def test_a_transaction_whose_producer_is_silent_hangs(measured: Measured) -> None:
    producer = Producer({"bootstrap.servers": measured.broker.bootstrap, "transactional.id": "silent"})
    producer.init_transactions(20)
    producer.begin_transaction()
    hours_ago = int(time.time() - 7_200) * 1_000  # for the broker, the time of the last record is when it came
    producer.produce("silent", b"x", timestamp=hours_ago)
    assert producer.flush(20) == 0
    found = eventually(lambda: samples if (samples := measured.scrape())["ottla_hanging_transactions",] else {})
    assert found["ottla_open_transactions",] == 1
    assert found["kafka_server_replicamanager_partitionswithlatetransactionscount",] == 1
    assert found["kafka_server_replicamanager_produceridcount",] >= 1
    assert found["ottla_memory_bytes", "owner=idempotent producers"] > 1_000
    producer.abort_transaction(20)
    eventually(lambda: measured.scrape()["ottla_hanging_transactions",] == 0)


def test_records_that_members_of_a_share_group_hold_and_are_given_again(measured: Measured) -> None:
    admin = AdminClient({"bootstrap.servers": measured.broker.bootstrap})
    admin.create_topics([NewTopic("shared", 1, 1)])["shared"].result(20)
    topic_id = UUID(bytes=topic_id_of(admin, "shared"))
    with ShareMember(measured.broker.bootstrap, "sharers", topic_id) as member:
        eventually(lambda: initialized(member))
        produce(measured, "shared", 6, partitions=1)
        assert sum(last + 1 - first for first, last, _ in member.acquire(max_wait_ms=5_000)) == 6
        group = ("group=sharers",)
        found = eventually(
            lambda: (
                samples
                if (samples := measured.scrape()).get(("ottla_share_group_records_in_flight", *group)) == 6
                else {}
            )
        )
        assert found["ottla_share_group_deliveries_total", *group] == 6
        assert found["ottla_share_group_redeliveries_total", *group] == 0
        assert member.say((0, 1, ACCEPT), (2, 5, RELEASE)) == ErrorCode.NONE
        assert member.acquire(max_wait_ms=5_000) != []
        eventually(lambda: measured.scrape()["ottla_share_group_redeliveries_total", *group] == 4)
        assert measured.scrape()["ottla_share_group_records_in_flight", *group] == 4


def ask_for_metrics(measured: Measured, how: int) -> None:
    every = ic.AlterableConfig(name="interval.ms", config_operation=how, value="100")
    metrics = ic.AlterableConfig(name="metrics", config_operation=how, value="*")
    resource = ic.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configs=[every, metrics])
    request = ic.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = ask(measured.broker.bootstrap, request, 1).responses
    assert answer.error_code == 0, answer


@pytest.fixture
def subscribed(measured: Measured) -> Iterator[None]:
    """Clients that connect meanwhile are asked for their metrics; librdkafka logs that."""
    ask_for_metrics(measured, SET)
    yield
    ask_for_metrics(measured, DELETE)


@pytest.mark.usefixtures("subscribed")
def test_metrics_of_clients_are_shown(measured: Measured) -> None:
    producer = Producer({"bootstrap.servers": measured.broker.bootstrap, "client.id": "shows itself"})

    def pushed() -> Samples:
        producer.produce("shown", b"x")
        assert producer.flush(20) == 0
        return {key: value for key, value in measured.scrape().items() if "client_id=shows itself" in key}

    found = eventually(pushed, interval_s=0.2)
    assert any(key[0] == "ottla_client_producer_connection_creation_total" for key in found)
    assert all(any(label.startswith("client_instance_id=") for label in key) for key in found)
    assert any("latency" in key[0] for key in found)
    page = json.loads(measured.get("/debug")[1])
    (client,) = [each for each in page["client_metrics"] if each["client_id"] == "shows itself"]
    assert "rdkafka" in client["software"]
    assert client["series"] >= len(found) > 5


@pytest.mark.usefixtures("subscribed")
def test_hostile_metrics_of_clients_cost_little_and_are_left_out(measured: Measured) -> None:
    before = measured.scrape()
    fields = b"\x08\x01" * 125_000  # 250 KB in fields of two bytes each, none of which is known
    bodies = [b"\x0a" + length(fields) + fields, b"\xff" * 1_000, bytes(300_000)]
    delays = []
    with RawConnection(measured.broker.bootstrap) as other, RawConnection(measured.broker.bootstrap) as hostile:
        for number in range(30):
            instance = uuid4()
            asked = hostile.ask(gt.GetTelemetrySubscriptionsRequest(client_instance_id=instance), 0)
            push = pt.PushTelemetryRequest(
                client_instance_id=instance,
                subscription_id=asked.subscription_id,
                terminating=False,
                compression_type=0,
                metrics=bodies[number % 3],
            )
            hostile.send(push, 0)
            began = time.monotonic()
            other.ask(MetadataRequest(topics=[]), 12)
            delays.append(time.monotonic() - began)
            assert hostile.receive(push, 0).error_code == ErrorCode.NONE
    assert sorted(delays)[27] < 0.05, "nine tenths of another client's answers"
    left_out = "ottla_client_metrics_left_out_total", "what=pushes"
    eventually(lambda: measured.scrape()[left_out] >= before[left_out] + 20)


def length(data: bytes) -> bytes:
    """A length of protobuf, up to 2 MB."""
    return bytes([len(data) & 0x7F | 0x80, len(data) >> 7 & 0x7F | 0x80, len(data) >> 14])


def test_a_log_that_is_not_compacted_yet_is_in_debt(measured: Measured) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "1"}
    admin = AdminClient({"bootstrap.servers": measured.broker.bootstrap})
    admin.create_topics([NewTopic("debt", 1, 1, config=config)])["debt"].result(20)
    producer = Producer({"bootstrap.servers": measured.broker.bootstrap})

    def owes() -> Samples:
        producer.produce("debt", b"v" * 1_000, key=b"k")
        assert producer.flush(20) == 0
        found = measured.scrape()
        return found if ("ottla_compaction_dirty_bytes", "partition=0", "topic=debt") in found else {}

    found = eventually(owes, interval_s=0.15)
    assert found["ottla_compaction_dirty_bytes", "partition=0", "topic=debt"] >= 1_000
    assert found["ottla_compaction_dirty_ratio", "partition=0", "topic=debt"] == 1
    assert found["ottla_compaction_debt_bytes",] >= 1_000
    assert found["ottla_compaction_debt_logs",] >= 1


def test_every_metric_that_a_broker_serves_is_declared(measured: Measured) -> None:
    declared = {family.name for family in FAMILIES}
    served = {key[0].removesuffix("_count").removesuffix("_sum") for key in measured.scrape()}
    stray = {
        name
        for name in served
        if not name.startswith(("process_", "python_", "ottla_client_")) and name not in declared
    }
    assert stray - {"kafka_server_socketservermetrics_connection"} == set()
    assert len(declared) > 40


def test_a_broker_that_serves_is_live_and_ready(measured: Measured) -> None:
    assert measured.get("/health/live") == (200, "the broker serves clients\n")
    status, body = measured.get("/health/ready")
    assert (status, json.loads(body)) == (200, {"ready": True, "reasons": [], "warnings": []})


def test_the_debug_page_is_for_this_machine_and_no_web_page(measured: Measured) -> None:
    produce(measured, "b", 10)
    status, body = measured.get("/debug")
    assert status == 200
    page: dict[str, Any] = json.loads(body)
    assert page["tasks"]["count"] > 0
    assert any(client["client_id"] == "rdkafka" for client in page["busiest_clients"])
    assert page["slowest_requests"]
    assert page["threads"]
    assert measured.get("/debug", Host="rebound.example")[0] == 403


def test_top_shows_a_broker_at_work(measured: Measured) -> None:
    ottla = Path(sys.executable).with_name("ottla")
    arguments = ["top", f"http://127.0.0.1:{measured.port}", "--once", "--every", "0.1"]
    done = subprocess.run([ottla, *arguments, "--json"], capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(done.stdout)
    assert found["requests"] >= 0
    assert any(each["topic"] == "b" for each in found["topics"])
    assert "requests/s" in subprocess.run([ottla, *arguments], capture_output=True, text=True, check=True).stdout
    nobody = subprocess.run(
        [ottla, "top", f"http://127.0.0.1:{free_port()}", "--once"], capture_output=True, text=True, check=False
    )
    assert nobody.returncode == 1
    assert "start it with metrics.listeners" in nobody.stderr


def test_a_console_counts_its_viewers_and_searches(measured: Measured) -> None:
    produce(measured, "looked-at", 10)
    port = free_port()
    console = Console(measured.broker.bootstrap, "--metrics-listeners", f"http://127.0.0.1:{port}")
    address = f"http://127.0.0.1:{port}"

    def found() -> Samples:
        return samples_of(urllib.request.urlopen(f"{address}/metrics", timeout=20).read().decode())

    try:
        watching = urllib.request.Request(f"{console.url}/topics", headers={"Accept": "text/event-stream"})
        with urllib.request.urlopen(watching, timeout=20) as events:
            events.readline()
            assert b"looked-at" in console.body("/topics/looked-at/records/search")
            assert console.status("/topics/no-such") == 404
            samples = eventually(lambda: got if (got := found())["ottla_console_viewers",] == 1 else {})
        assert samples["ottla_console_searches_total", "kind=search"] == 1
        assert samples["ottla_console_running_searches", "kind=search"] == 0
        assert samples["ottla_console_requests_total", "status=404"] == 1
        assert samples["ottla_console_sessions",] == 0
        eventually(lambda: found()["ottla_console_viewers",] == 0)
        declared = {family.name for family in console_metrics.FAMILIES}
        assert {key[0] for key in found() if not key[0].startswith(("process_", "python_"))} <= declared
        for path in ("/health/live", "/health/ready"):
            assert urllib.request.urlopen(f"{address}{path}", timeout=20).status == 200
    finally:
        console.close()


def test_scrapes_delay_nobody(measured: Measured) -> None:
    stop = threading.Event()

    def scrape_on_and_on() -> None:
        while not stop.is_set():
            measured.get("/metrics")

    threads = [threading.Thread(target=scrape_on_and_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    delays = []
    with RawConnection(measured.broker.bootstrap) as connection:
        for _ in range(100):
            began = time.monotonic()
            connection.ask(MetadataRequest(topics=[]), 12)
            delays.append(time.monotonic() - began)
    stop.set()
    for thread in threads:
        thread.join()
    assert sorted(delays)[90] < 0.05, "nine tenths of another client's answers"


def test_a_port_that_is_taken_stops_the_start_with_a_sentence() -> None:
    taken = Measured()
    taken.broker.properties["metrics.listeners"] = f"http://{taken.broker.bootstrap}"
    with pytest.raises(Exception, match=r"metrics\.listeners: cannot listen at|ended"), taken.broker:
        pass


class ControllerAlone:
    """One of two voters, in this process, without a broker."""

    def __init__(self, directory: Path, number: int, ports: Mapping[int, int]) -> None:
        self.port = free_port()
        self._settings = {
            "process.roles": "controller",
            "node.id": str(number),
            "listeners": f"CONTROLLER://127.0.0.1:{ports[number]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{port}" for each, port in ports.items()),
            "controller.quorum.fetch.timeout.ms": "1000",
            "log.dirs": str(directory / str(number)),
            "metrics.listeners": f"http://127.0.0.1:{self.port}",
        }

    def open(self) -> Engine:
        config = BrokerConfig(self._settings)
        formatting.format_node(RealFileSystem(), SystemClock(), config, formatting.Wishes("4L6g3nShT-eMCtK--X86sw"))
        return Engine(config)

    async def get(self, path: str) -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        return await asyncio.to_thread(ask)

    async def until_ready(self, status: int) -> str:
        async with asyncio.timeout(60):
            while True:
                found, body = await self.get("/health/ready")
                if found == status:
                    return body
                await asyncio.sleep(0.05)

    async def scrape(self) -> Samples:
        return samples_of((await self.get("/metrics"))[1])


def test_controllers_alone_show_the_quorum(tmp_path: Path) -> None:
    ports = {number: free_port() for number in (1, 2)}
    nodes = {number: ControllerAlone(tmp_path, number, ports) for number in ports}
    raft, controller = "kafka_server_raftmetrics", "kafka_controller_kafkacontroller"

    async def story() -> None:
        async with nodes[1].open():
            async with nodes[2].open():
                for node in nodes.values():
                    await node.until_ready(200)
                assert await nodes[1].get("/health/live") == (200, "the controller takes part in the quorum\n")
                async with asyncio.timeout(60):
                    found = {number: await node.scrape() for number, node in nodes.items()}
                    while sum(each[f"{controller}_activecontrollercount",] for each in found.values()) != 1:
                        found = {number: await node.scrape() for number, node in nodes.items()}
                leader = int(found[1][f"{raft}_current_leader",])
                assert found[leader][f"{raft}_current_state", "state=leader"] == 1
                assert found[3 - leader][f"{raft}_current_state", "state=follower"] == 1
                assert {each[f"{raft}_number_of_voters",] for each in found.values()} == {2}
                assert found[leader]["ottla_quorum_voter_lag_records", f"voter={3 - leader}"] >= 0
                assert found[leader][f"{raft}_high_watermark",] > 0
                assert found[leader][f"{controller}_fencedbrokercount",] == 0
                page = json.loads((await nodes[leader].get("/debug"))[1])
                assert page["controller"]["is_active"]
                voters = page["controller"]["voters"]
                assert voters["1"]["listeners"] == [f"CONTROLLER://127.0.0.1:{ports[1]}"]
                assert [voters[str(number)]["lag_records"] is None for number in (leader, 3 - leader)] == [True, False]
                assert page["controller"]["metadata_log"]["high_watermark"] > 0
                assert page["tasks"]["count"] > 0
                requests = [key for key in found[leader] if key[0] == "kafka_network_requestmetrics_requests_total"]
                assert any("request=Fetch" in key for key in requests)
                declared = {family.name for family in FAMILIES}
                served = {key[0].removesuffix("_count").removesuffix("_sum") for key in found[leader]}
                own = {name for name in served if not name.startswith(("process_", "python_"))}
                assert own - declared <= {"kafka_server_socketservermetrics_connection"}
            reasons = json.loads(await nodes[1].until_ready(503))["reasons"]
            assert reasons == [
                "the quorum of controllers has no leader: see whether most of the controllers run and reach each other"
            ]

    asyncio.run(story())
