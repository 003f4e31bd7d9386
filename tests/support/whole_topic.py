"""Everything in a topic, read without a group: what is missing is missing in the log, not in how groups are doing."""

import time
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec

from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.schema import Message
from tests.support.raw_client import ClosedError, ask

TIMEOUT_S: Final = 60.0
LOOK_S: Final = 0.2
AS_CONSUMER: Final = -1
AS_ANY_REPLICA: Final = -2
EARLIEST: Final = OffsetSpec.earliest()
LATEST: Final = OffsetSpec.latest()


def read_all(bootstrap: str, topic: str, expected: int, *, timeout_s: float = TIMEOUT_S) -> list[bytes]:
    """The values of all committed records, as soon as there are as many as expected; fails if there never are.

    It reads to the end of every partition, so that what stands there twice is found twice.
    """
    deadline = time.monotonic() + timeout_s
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"all-{topic}",  # asked for by the library; no partition comes from a group
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    values: list[bytes] = []
    problem = "nothing was asked for"
    try:
        positions: dict[int, int] = {}
        while True:
            try:
                ends = _offsets(admin, topic, LATEST)
                starts = _offsets(admin, topic, EARLIEST)
            except KafkaException as refused:
                problem = f"the ends of the partitions are not known: {refused}"
            else:
                if not positions:
                    positions = starts
                    consumer.assign([TopicPartition(topic, number, start) for number, start in starts.items()])
                values += _read_to(consumer, ends, positions, deadline)
                if len(values) >= expected and all(positions[number] >= end for number, end in ends.items()):
                    return values
                problem = f"read up to {positions} of {ends}"
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{len(values)} of {expected} records of {topic} within {timeout_s:.0f} s; {problem}\n"
                    + state_of(bootstrap, topic)
                )
            time.sleep(LOOK_S)
    finally:
        consumer.close()


def read_in_group(
    bootstrap: str, topic: str, group: str, expected: int, *, timeout_s: float = TIMEOUT_S
) -> list[bytes]:
    """The values of all records, read by the only member of a new group; fails if they are not as many as expected."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + timeout_s
    try:
        while len(values) < expected:
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"group {group} has read {len(values)} of {expected} records of {topic} within {timeout_s:.0f} s, "
                    f"assigned {consumer.assignment()}\n" + state_of(bootstrap, topic)
                )
            messages = consumer.consume(1000, timeout=LOOK_S)
            values += [message.value() or b"" for message in messages if message.error() is None]
    finally:
        consumer.close()
    return values


def _offsets(admin: AdminClient, topic: str, which: OffsetSpec) -> dict[int, int]:
    """By partition. Raises KafkaException."""
    partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
    wanted = {TopicPartition(topic, number): which for number in partitions}
    futures = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=10)
    return {at.partition: future.result(15).offset for at, future in futures.items()}


def _read_to(consumer: Consumer, ends: dict[int, int], positions: dict[int, int], deadline: float) -> list[bytes]:
    """Read on until every partition is at its end; moves the positions."""
    values: list[bytes] = []
    while any(positions[number] < end for number, end in ends.items()) and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=LOOK_S):
            error, partition, offset = message.error(), message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if error is None:
                values.append(message.value() or b"")
                positions[partition] = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # behind the markers of transactions, too
                positions[partition] = max(positions[partition], offset)
    return values


def state_of(bootstrap: str, topic: str) -> str:
    """What the brokers of a cluster say of a topic: leaders, who is in sync, and where the log of each replica ends."""
    try:
        metadata = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=10)
    except KafkaException as refused:
        return f"no broker answers: {refused}"
    known = metadata.topics[topic].partitions
    addresses = {number: f"{broker.host}:{broker.port}" for number, broker in metadata.brokers.items()}
    lines = [f"brokers {sorted(addresses)}, controller {metadata.controller_id}"]
    for number, part in sorted(known.items()):
        lines.append(f"{topic}-{number}: leader {part.leader}, replicas {part.replicas}, in sync {part.isrs}")
        if part.leader in addresses:
            lines.append(f"  high watermark {_offset(addresses[part.leader], topic, number, AS_CONSUMER)}")
        lines += [
            f"  broker {replica} has {_size(addresses[replica], topic, number)} bytes, "
            f"up to {_offset(addresses[replica], topic, number, AS_ANY_REPLICA)}"
            for replica in part.replicas
            if replica in addresses
        ]
    return "\n".join([*lines, *_coordinators(metadata, addresses)])


def _coordinators(metadata: ClusterMetadata, addresses: dict[int, str]) -> list[str]:
    offsets = metadata.topics.get("__consumer_offsets")
    lines = [
        "there is no __consumer_offsets"
        if offsets is None
        else "__consumer_offsets is led by "
        + ", ".join(f"{number}: {part.leader}" for number, part in offsets.partitions.items())
    ]
    for number, address in sorted(addresses.items()):
        answer = _answer(address, ListGroupsRequest(), 4)
        groups = (
            answer
            if isinstance(answer, str)
            else ", ".join(f"{group.group_id} {group.group_state}" for group in answer.groups) or "none"
        )
        lines.append(f"groups of broker {number}: {groups}")
    return lines


def _offset(address: str, topic: str, partition: int, replica: int) -> object:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    answer = _answer(address, request, 7)
    if isinstance(answer, str):
        return answer
    found = answer.topics[0].partitions[0]
    return f"error {found.error_code}" if found.error_code else found.offset


def _size(address: str, topic: str, partition: int) -> object:
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[partition])])
    answer = _answer(address, request, 4)
    if isinstance(answer, str):
        return answer
    return sum(part.partition_size for result in answer.results for held in result.topics for part in held.partitions)


def _answer(address: str, request: Message, version: int) -> Any:
    """What a broker answers; a text, if it does not."""
    try:
        return ask(address, request, version)
    except (ClosedError, OSError) as problem:
        return f"({problem})"
