"""What `metrics.listeners` serves of a real broker: numbers that agree with what was done, and health."""

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.raw_client import RawConnection

from ottla.protocol.messages.metadata import MetadataRequest
from ottla.server.metrics.catalog import FAMILIES

HOSTILE = 'group "x"\nkafka_fake 1\\'

Samples = dict[tuple[str, ...], float]


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
        return {
            (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(body)
            for sample in family.samples
        }


@pytest.fixture(scope="module")
def measured() -> Iterator[Measured]:
    found = Measured(metrics_topics_max="3", metrics_groups_max="1")
    with found.broker:
        admin = AdminClient({"bootstrap.servers": found.broker.bootstrap})
        for created in admin.create_topics([NewTopic(name, 2, 1) for name in ("a", "b")]).values():
            created.result(20)
        yield found


def produce(measured: Measured, topic: str, count: int, value: bytes = b"v" * 100) -> None:
    producer = Producer({"bootstrap.servers": measured.broker.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, value, partition=number % 2)
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
    admin = AdminClient({"bootstrap.servers": measured.broker.bootstrap})
    names = [f"many-{number}" for number in range(5)]
    for created in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        created.result(20)
    produce(measured, "many-0", 10)
    left_out = "ottla_metrics_left_out", "what=topics"
    eventually(lambda: measured.scrape()[left_out] >= 4)
    found = measured.scrape()
    assert len({key for key in found if key[0] == "kafka_topic_partitions"}) <= 3
    for deleted in admin.delete_topics(names).values():
        deleted.result(20)
    eventually(lambda: measured.scrape()[left_out] <= 1)
    total = ("kafka_server_brokertopicmetrics_messagesin_total",)
    assert measured.scrape()[total] >= found[total] >= 10, "a sum that falls counts as a reset"


def test_every_metric_that_a_broker_serves_is_declared(measured: Measured) -> None:
    declared = {family.name for family in FAMILIES}
    served = {key[0].removesuffix("_count").removesuffix("_sum") for key in measured.scrape()}
    stray = {name for name in served if not name.startswith(("process_", "python_")) and name not in declared}
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
