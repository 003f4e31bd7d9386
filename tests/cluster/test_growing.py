"""A broker that was alone becomes a node of a quorum in place, and is alone again."""

from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from ottla.admin import Admin, QuotaEntity
from ottla.metadata.lone_broker import MOVED, MOVING
from ottla.metadata.store.embedded import FILE_NAME
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port

TOPIC = "t"


def _produce(node: OttlaProcess, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True, "log_level": 0})
    producer.produce(TOPIC, value, partition=1)
    assert producer.flush(30) == 0


def _seen(node: OttlaProcess, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([TOPIC])
    values: list[bytes | None] = []

    def all_there() -> bool:
        values.extend(each.value() for each in consumer.consume(10, timeout=0.2))
        return len(values) >= count

    try:
        eventually(all_there, timeout_s=60)
    finally:
        consumer.close()
    return values


def _has_all(node: OttlaProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    topic = ConfigResource("topic", TOPIC)
    assert admin.describe_configs([topic])[topic].result(30)["retention.ms"].value == "-1"
    with Admin(node.bootstrap) as others:
        assert [each.quotas for each in others.list_quotas()] == [{"producer_byte_rate": 1e9}]


def test_topics_settings_and_offsets_are_there_before_and_after(tmp_path: Path) -> None:
    alone = OttlaProcess(tmp_path, properties={"node.id": "4"})
    with alone:
        admin = AdminClient({"bootstrap.servers": alone.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 2, 1, config={"retention.ms": "-1"})])[TOPIC].result(30)
        with Admin(alone.bootstrap) as others:
            others.alter_quotas(QuotaEntity(user="alice"), {"producer_byte_rate": 1e9})
        _produce(alone, b"alone")
        assert _seen(alone, 1) == [b"alone"]
    controller = f"127.0.0.1:{free_port()}"
    voting = OttlaProcess(
        tmp_path,
        properties={
            "node.id": "4",
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"{controller},127.0.0.1:{free_port()}",
        },
    )
    voting.properties = {
        **voting.properties,
        "listeners": f"PLAINTEXT://{voting.bootstrap},CONTROLLER://{controller}",
    }
    with voting:
        _has_all(voting)
        _produce(voting, b"voting")
        assert _seen(voting, 1) == [b"voting"], "the group goes on where it was"
    kept = {path.name for path in voting.log_dir.iterdir() if path.name.startswith(FILE_NAME)}
    assert (MOVED in kept, FILE_NAME in kept, MOVING in kept) == (True, False, False)
    again = OttlaProcess(tmp_path, properties={"node.id": "4"})
    with again:
        _has_all(again)
        _produce(again, b"again")
        assert _seen(again, 1) == [b"again"]
