"""Requests of ZooKeeper clusters, which kio does not have: bytes drawn by hand from Kafka 3.9's definitions."""

from __future__ import annotations

import uuid

import pytest

from ottla.protocol import codec, compiled
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from ottla.protocol.schema import Message

TOPIC_ID = uuid.UUID(bytes=bytes(range(16)))


def i32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def i64(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def leader_and_isr_state(version: int) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        topic_name="t" if version < 2 else "",
        partition_index=2,
        controller_epoch=6,
        leader=1,
        leader_epoch=9,
        isr=[1],
        partition_epoch=4,
        replicas=[1, 3],
        adding_replicas=[3] if version >= 3 else [],
        is_new=version >= 1,
        leader_recovery_state=1 if version >= 6 else 0,
    )


def update_metadata_state(version: int) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        topic_name="t" if version < 5 else "",
        partition_index=2,
        controller_epoch=6,
        leader=1,
        leader_epoch=9,
        isr=[1],
        zk_version=4,
        replicas=[1, 3],
        offline_replicas=[3] if version >= 4 else [],
    )


CASES: list[tuple[Message, int, bytes]] = [
    (
        LeaderAndIsrRequest(
            controller_id=5,
            controller_epoch=6,
            ungrouped_partition_states=[leader_and_isr_state(0)],
            live_leaders=[LeaderAndIsrLiveLeader(broker_id=1, host_name="h", port=9092)],
        ),
        0,
        i32(5) + i32(6)
        + i32(1) + b"\0\1t" + i32(2) + i32(6) + i32(1) + i32(9) + i32(1) + i32(1) + i32(4) + i32(2) + i32(1) + i32(3)
        + i32(1) + i32(1) + b"\0\1h" + i32(9092),
    ),
    (
        LeaderAndIsrRequest(
            controller_id=5,
            controller_epoch=6,
            broker_epoch=77,
            type=1,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name="t", topic_id=TOPIC_ID, partition_states=[leader_and_isr_state(7)]
                )
            ],
            live_leaders=[LeaderAndIsrLiveLeader(broker_id=1, host_name="h", port=9092)],
        ),
        7,
        i32(5) + b"\0" + i32(6) + i64(77) + b"\1"
        + b"\2" + b"\2t" + TOPIC_ID.bytes
        + b"\2" + i32(2) + i32(6) + i32(1) + i32(9) + b"\2" + i32(1) + i32(4) + b"\3" + i32(1) + i32(3)
        + b"\2" + i32(3) + b"\1" + b"\1" + b"\1" + b"\0"
        + b"\0"
        + b"\2" + i32(1) + b"\2h" + i32(9092) + b"\0"
        + b"\0",
    ),
    (
        LeaderAndIsrResponse(
            error_code=1, partition_errors=[LeaderAndIsrPartitionError(topic_name="t", partition_index=2, error_code=3)]
        ),
        4,
        b"\0\1" + b"\2" + b"\2t" + i32(2) + b"\0\3" + b"\0" + b"\0",
    ),
    (
        LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrTopicError(
                    topic_id=TOPIC_ID,
                    partition_errors=[LeaderAndIsrPartitionError(partition_index=2, error_code=3)],
                )
            ]
        ),
        7,
        b"\0\0" + b"\2" + TOPIC_ID.bytes + b"\2" + i32(2) + b"\0\3" + b"\0" + b"\0" + b"\0",
    ),
    (
        UpdateMetadataRequest(
            controller_id=5,
            controller_epoch=6,
            ungrouped_partition_states=[update_metadata_state(0)],
            live_brokers=[UpdateMetadataBroker(id=1, v0_host="h", v0_port=9092)],
        ),
        0,
        i32(5) + i32(6)
        + i32(1) + b"\0\1t" + i32(2) + i32(6) + i32(1) + i32(9) + i32(1) + i32(1) + i32(4) + i32(2) + i32(1) + i32(3)
        + i32(1) + i32(1) + b"\0\1h" + i32(9092),
    ),
    (
        UpdateMetadataRequest(
            controller_id=5,
            type=1,
            controller_epoch=6,
            broker_epoch=77,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name="t", topic_id=TOPIC_ID, partition_states=[update_metadata_state(8)]
                )
            ],
            live_brokers=[
                UpdateMetadataBroker(
                    id=1,
                    endpoints=[UpdateMetadataEndpoint(port=9092, host="h", listener="L", security_protocol=2)],
                    rack=None,
                )
            ],
        ),
        8,
        i32(5) + b"\0" + i32(6) + i64(77)
        + b"\2" + b"\2t" + TOPIC_ID.bytes
        + b"\2" + i32(2) + i32(6) + i32(1) + i32(9) + b"\2" + i32(1) + i32(4) + b"\3" + i32(1) + i32(3)
        + b"\2" + i32(3) + b"\0"
        + b"\0"
        + b"\2" + i32(1) + b"\2" + i32(9092) + b"\2h" + b"\2L" + b"\0\2" + b"\0" + b"\0" + b"\0"
        + b"\1\0\1\1",
    ),
    (UpdateMetadataResponse(error_code=3), 8, b"\0\3\0"),
    (
        StopReplicaRequest(
            controller_id=5,
            controller_epoch=6,
            delete_partitions=True,
            ungrouped_partitions=[StopReplicaPartitionV0(topic_name="t", partition_index=2)],
        ),
        0,
        i32(5) + i32(6) + b"\1" + i32(1) + b"\0\1t" + i32(2),
    ),
    (
        StopReplicaRequest(
            controller_id=5,
            controller_epoch=6,
            broker_epoch=77,
            topics=[StopReplicaTopicV1(name="t", partition_indexes=[2])],
        ),
        2,
        i32(5) + i32(6) + i64(77) + b"\0" + b"\2" + b"\2t" + b"\2" + i32(2) + b"\0" + b"\0",
    ),
    (
        StopReplicaRequest(
            controller_id=5,
            controller_epoch=6,
            broker_epoch=77,
            topic_states=[
                StopReplicaTopicState(
                    topic_name="t",
                    partition_states=[
                        StopReplicaPartitionState(partition_index=2, leader_epoch=9, delete_partition=True)
                    ],
                )
            ],
        ),
        4,
        i32(5) + b"\0" + i32(6) + i64(77) + b"\2" + b"\2t" + b"\2" + i32(2) + i32(9) + b"\1" + b"\0" + b"\0" + b"\0",
    ),
    (
        StopReplicaResponse(
            partition_errors=[StopReplicaPartitionError(topic_name="t", partition_index=2, error_code=3)]
        ),
        4,
        b"\0\0" + b"\2" + b"\2t" + i32(2) + b"\0\3" + b"\0" + b"\0",
    ),
    (ControlledShutdownRequest(broker_id=5, broker_epoch=77), 3, i32(5) + i64(77) + b"\0"),
    (
        ControlledShutdownResponse(remaining_partitions=[RemainingPartition(topic_name="t", partition_index=2)]),
        3,
        b"\0\0" + b"\2" + b"\2t" + i32(2) + b"\0" + b"\0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "version", "expected"), CASES, ids=[f"{type(case[0]).__name__}-{case[1]}" for case in CASES]
)
def test_bytes(message: Message, version: int, expected: bytes) -> None:
    for module in (codec, compiled):
        assert b"".join(module.encode(message, version)) == expected
        assert module.decode(type(message), expected, version) == message
