"""Framed metadata records, for tests."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ottla.cluster.metadata_log.state import ClusterState
from ottla.protocol import metadata_records as records
from ottla.protocol.schema import Message

NEWEST = {
    records.RegisterBrokerRecord: 4,
    records.BrokerRegistrationChangeRecord: 3,
    records.PartitionRecord: 2,
    records.PartitionChangeRecord: 2,
}
TOPIC = UUID(int=1000)
DISK = UUID(int=77)


def framed(*found: Message) -> list[bytes]:
    """Each record as its newest version stands in the log."""
    return [records.encode_record(record, NEWEST.get(type(record), 0)) for record in found]


def state_of(found: Iterable[Message]) -> ClusterState:
    state = ClusterState("cluster")
    state.replay_all(framed(*found))
    return state


def broker(number: int, *, fenced: bool = False, **more: Any) -> records.RegisterBrokerRecord:
    """Broker `number` in epoch 10 + its number, on one disk."""
    values: dict[str, Any] = {
        "broker_id": number,
        "incarnation_id": UUID(int=500 + number),
        "broker_epoch": 10 + number,
        "end_points": [records.Endpoint(name="SASL", host="h", port=9000 + number, security_protocol=3)],
        "features": [],
        "rack": "r",
        "fenced": fenced,
        "log_dirs": [DISK],
    }
    return records.RegisterBrokerRecord(**{**values, **more})


def topic(name: str = "t", topic_id: UUID = TOPIC) -> records.TopicRecord:
    return records.TopicRecord(name=name, topic_id=topic_id)


def partition(number: int, *replicas: int, **more: Any) -> records.PartitionRecord:
    """Led by the first of its replicas, all in sync, in leader epoch 5 and partition epoch 9."""
    values: dict[str, Any] = {
        "partition_id": number,
        "topic_id": TOPIC,
        "replicas": list(replicas),
        "isr": list(replicas),
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": replicas[0],
        "leader_epoch": 5,
        "partition_epoch": 9,
        "directories": [DISK] * len(replicas),
    }
    return records.PartitionRecord(**{**values, **more})


def change(number: int, **more: Any) -> records.PartitionChangeRecord:
    return records.PartitionChangeRecord(**{"partition_id": number, "topic_id": TOPIC, **more})
