"""What cannot be used: dead letters, tolerance, retries, failures, and secrets that stay secret."""

import json
import urllib.request
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.cli.app import run
from ottla.cli.connect import redrive as connect_redrive
from ottla.connect.rest.client import RestError
from ottla.connect.runtime.metrics_catalog import FAMILIES
from ottla.testing import Broker, ConnectWorker
from tests.connect.connectors import COLLECTED, Fragile
from tests.support.connect import messages_of
from tests.support.eventually import eventually

Samples = dict[tuple[str, ...], float]

SINK = {"connector.class": "tests.connect.connectors.Fragile", "topics": "in"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def worker(broker: Broker) -> Iterator[ConnectWorker]:
    COLLECTED.clear()
    names = ("group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic")
    own = uuid.uuid4().hex
    settings = {name: f"{name}-{own}" for name in names}
    with ConnectWorker(broker.bootstrap, {**settings, "metrics.listeners": "http://127.0.0.1:0"}) as worker:
        yield worker


def read(worker: ConnectWorker, path: str) -> str:
    assert worker.server is not None
    (port,) = worker.server.metrics_ports
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        body: bytes = answer.read()
    return body.decode()


def scrape(worker: ConnectWorker) -> Samples:
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(read(worker, "/metrics"))
        for sample in family.samples
    }


def produce(broker: Broker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, headers=[("own", b"1")])
    assert producer.flush(20) == 0


def test_dead_letters_say_why_and_go_back(
    broker: Broker, worker: ConnectWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    produce(broker, "letters", b"{", b'{"bad": 1}', b'{"good": 1}')
    config = {
        **SINK,
        "topics": "letters",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dead",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    worker.put("tolerant", config)
    eventually(lambda: [record.value for record in COLLECTED] == [{"good": 1}])
    dead = eventually(lambda: messages_of(broker.bootstrap, "dead", 2))
    facts = [{name: value.decode() for name, value in message.headers()} for message in dead]
    assert [each["__connect.errors.stage"] for each in facts] == ["VALUE_CONVERTER", "TASK_PUT"]
    assert [each["__connect.errors.offset"] for each in facts] == ["0", "1"]
    assert facts[1]["__connect.errors.topic"] == "letters"
    assert facts[1]["__connect.errors.connector.name"] == "tolerant"
    assert facts[1]["__connect.errors.exception.message"] == "it is bad"
    assert facts[1]["own"] == "1"
    arguments = ["connect", "redrive", "tolerant", "--yes", "--url", worker.url, "-b", broker.bootstrap]
    assert run(arguments) == 0
    assert "sent 2 records" in capsys.readouterr().err
    assert run(arguments) == 0  # they fail again, and are dead letters again
    again = eventually(lambda: messages_of(broker.bootstrap, "letters", 5))
    assert [message.headers() for message in again[3:5]] == [[("own", b"1")]] * 2


def test_a_dead_letter_goes_back_once_if_two_people_send_it(
    broker: Broker, worker: ConnectWorker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    produce(broker, "twice", b'{"bad": 1}', b'{"bad": 2}', b'{"bad": 3}')
    config = {
        **SINK,
        "topics": "twice",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dead-twice",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    worker.put("twice", config)
    eventually(lambda: messages_of(broker.bootstrap, "dead-twice", 3))
    worker.request("PUT", "/connectors/twice/stop")
    arguments = ["connect", "redrive", "twice", "--url", worker.url, "-b", broker.bootstrap]

    def while_the_first_one_thinks(*_: object, yes: bool) -> None:
        if not yes:
            assert run([*arguments, "--yes", "--max", "2"]) == 0
            assert "sent 2 records" in capsys.readouterr().err

    monkeypatch.setattr(connect_redrive, "confirm", while_the_first_one_thinks)
    assert run(arguments) == 0
    assert "sent 1 record" in capsys.readouterr().err
    found = eventually(lambda: messages_of(broker.bootstrap, "twice", 6))  # once the commit's marker is written
    assert [message.value() for message in found][3:] == [b'{"bad": 1}', b'{"bad": 2}', b'{"bad": 3}']
    assert run([*arguments, "--yes"]) == 0
    assert "no dead letter of twice is left" in capsys.readouterr().err


def test_without_tolerance_the_task_fails_and_keeps_its_place(broker: Broker, worker: ConnectWorker) -> None:
    produce(broker, "strict", b'{"n": 1}')
    worker.put("strict", {**SINK, "topics": "strict"})
    eventually(lambda: len(COLLECTED) == 1)
    eventually(lambda: worker.request("GET", "/connectors/strict/offsets")["offsets"])
    produce(broker, "strict", b"{")
    (task,) = worker.wait("strict", "FAILED")["tasks"]
    assert "strict-0 at offset 1 was refused (value converter)" in task["trace"]
    assert "errors.tolerance=all" in task["trace"]
    place = {"kafka_topic": "strict", "kafka_partition": 0}
    assert worker.request("GET", "/connectors/strict/offsets")["offsets"] == [
        {"partition": place, "offset": {"kafka_offset": 1}}
    ]
    worker.put("strict", {**SINK, "topics": "strict", "errors.tolerance": "all"})
    worker.wait("strict", "RUNNING")
    produce(broker, "strict", b'{"n": 2}')
    eventually(lambda: [record.value["n"] for record in COLLECTED] == [1, 2])


def test_metrics_count_records_errors_and_dead_letters(broker: Broker, worker: ConnectWorker) -> None:
    numbers = {"connector.class": "tests.connect.connectors.Numbers", "topic": "counted", "count": "30"}
    worker.put("counts", {**numbers, "key.converter": "org.apache.kafka.connect.storage.StringConverter"})
    produce(broker, "measured", b"{", b'{"bad": 1}', b'{"good": 1}', b'{"good": 2}')
    dead = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "measured-dead"}
    worker.put("tolerant", {**SINK, "topics": "measured", **dead})
    worker.put("strict", {**SINK, "topics": "measured"})
    worker.wait("strict", "FAILED")

    def found() -> Samples:
        return scrape(worker)

    sink, source = ("connector=tolerant", "task=0"), ("connector=counts", "task=0")
    send = ("kafka_connect_sink_task_sink_record_send_total", *sink)
    write = ("kafka_connect_source_task_source_record_write_total", *source)
    commit = ("kafka_connect_sink_task_offset_commit_completion_total", *sink)
    eventually(lambda: found().get(send) == 2 and found().get(write) == 30 and found().get(commit))
    samples = found()
    assert samples["kafka_connect_sink_task_sink_record_read_total", *sink] == 4
    assert samples["kafka_connect_sink_task_sink_record_send_rate", *sink] > 0
    assert samples["kafka_connect_sink_task_put_batch_max_time_ms", *sink] > 0
    assert samples["kafka_connect_sink_task_partition_count", *sink] == 1
    assert samples["kafka_connect_task_error_total_record_failures", *sink] == 2
    assert samples["kafka_connect_task_error_total_records_skipped", *sink] == 2
    assert samples["kafka_connect_task_error_deadletterqueue_produce_requests", *sink] == 2
    assert samples["kafka_connect_task_error_deadletterqueue_produce_failures", *sink] == 0
    assert samples["kafka_connect_source_task_source_record_poll_total", *source] == 30
    assert samples["kafka_connect_connector_task_offset_commit_success_percentage", *source] == 1
    assert samples["kafka_connect_worker_connector_count",] == 3
    assert samples["kafka_connect_worker_task_count",] == 2
    assert samples["kafka_connect_connector_status", "connector=strict", "status=failed", "task=0"] == 1
    assert samples["kafka_connect_worker_connector_failed_task_count", "connector=strict"] == 1
    assert samples["kafka_connect_worker_connector_running_task_count", "connector=tolerant"] == 1
    assert samples["kafka_connect_worker_rebalance_rebalancing",] == 0
    declared = {family.name for family in FAMILIES}
    assert {key[0] for key in samples if not key[0].startswith(("process_", "python_"))} <= declared
    ready = json.loads(read(worker, "/health/ready"))
    assert (ready["ready"], ready["reasons"]) == (True, [])
    assert ready["warnings"] == ["task strict-0 has failed: its status has the reason"]
    assert read(worker, "/health/live") == "alive\n"


def test_what_may_work_later_is_tried_again(broker: Broker, worker: ConnectWorker) -> None:
    Fragile.attempts = 0
    produce(broker, "later", b'{"n": 1}', b'{"n": 2}')
    worker.put("later", {**SINK, "topics": "later", "fail": "later"})
    eventually(lambda: [record.value["n"] for record in COLLECTED] == [1, 2])
    assert Fragile.attempts == 3


def test_secrets_are_neither_stored_nor_shown(
    broker: Broker, worker: ConnectWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_PASSWORD", "sesame-open")
    config = {**SINK, "topics": "bugs", "password": "${env:TEST_PASSWORD}"}
    with pytest.raises(RestError) as refused:
        worker.put("bugs", {**config, "fail": "config"})
    assert refused.value.status == 400
    assert "the password [hidden] is wrong" in refused.value.body["message"]
    produce(broker, "bugs", b"{}")
    worker.put("bugs", {**config, "fail": "bug"})
    (task,) = worker.wait("bugs", "FAILED")["tasks"]
    assert task["trace"].startswith("RuntimeError: no idea what [hidden] is for (unexpected")
    assert "\n" not in task["trace"], "no traceback"
    assert "Traceback (most recent call last)" in str(worker.request("GET", "/connectors/bugs/logs"))
    assert worker.request("GET", "/connectors/bugs/config")["password"] == "${env:TEST_PASSWORD}"
    assert worker.request("GET", "/connectors/bugs/tasks")[0]["config"]["password"] == "${env:TEST_PASSWORD}"
    assert "sesame" not in str(worker.request("GET", "/connectors/bugs/logs"))
    assert worker.server is not None
    for topic in ("config.storage.topic", "status.storage.topic"):
        stored = messages_of(broker.bootstrap, worker.settings[topic], 1)
        assert stored
        assert all(b"sesame" not in (message.value() or b"") for message in stored)
