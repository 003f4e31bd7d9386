"""Records of `__transaction_state`: Kafka's bytes, and back."""

import pytest

from ottla.errors import CorruptMessage
from ottla.ids import PartitionId, ProducerId, TopicName, TopicPartition, TransactionalId
from ottla.transactions.records import (
    Transaction,
    TransactionChanged,
    TransactionForgotten,
    TransactionRecordFormat,
)
from ottla.transactions.states import ALLOWED, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT, TransactionState

T = TransactionalId("pay-1")
NOW = 1_700_000_000_001
PARTITIONS = frozenset(
    TopicPartition(TopicName(topic), PartitionId(partition)) for topic, partition in (("b", 0), ("a", 2), ("a", 1))
)
FULL = Transaction(
    state=PREPARE_COMMIT,
    producer_id=ProducerId(7),
    producer_epoch=32_767,
    timeout_ms=60_000,
    updated_ms=NOW,
    started_ms=NOW - 1,
    partitions=PARTITIONS,
    last_producer_epoch=32_766,
    previous_producer_id=ProducerId(6),
    next_producer_id=ProducerId(8),
    client_version=2,
)
V0, V1 = (TransactionRecordFormat(lambda level=level: level) for level in (0, 1))  # type: ignore[misc]


def test_the_bytes_of_version_0() -> None:
    key, value = V0.encode(TransactionChanged(T, FULL))
    assert key == b"\0\0" + b"\0\5pay-1"
    assert (
        value
        == bytes.fromhex(
            "0000"  # version
            "0000000000000007"  # producer id
            "7fff"  # epoch
            "0000ea60"  # timeout
            "02"  # PrepareCommit
            "00000002"
            "000161" + "00000002" + "00000001" + "00000002"  # topic a, partitions 1 and 2
            "000162" + "00000001" + "00000000"  # topic b, partition 0
            "0000018bcfe56801"  # updated
            "0000018bcfe56800"  # started
        )
    )


def test_version_1_knows_more() -> None:
    assert V1.decode(*V1.encode(TransactionChanged(T, FULL))) == TransactionChanged(T, FULL)
    plain = FULL._replace(
        last_producer_epoch=-1, previous_producer_id=ProducerId(-1), next_producer_id=ProducerId(-1), client_version=0
    )
    assert V0.decode(*V0.encode(TransactionChanged(T, FULL))) == TransactionChanged(T, plain)


def test_an_id_without_transaction_has_no_list_of_partitions() -> None:
    resting = Transaction(EMPTY, ProducerId(7), 0, 60_000, 5)
    _, value = V0.encode(TransactionChanged(T, resting))
    assert value is not None
    assert value[17:21] == b"\xff\xff\xff\xff"
    assert V1.decode(*V1.encode(TransactionChanged(T, resting))) == TransactionChanged(T, resting)
    done = resting._replace(state=COMPLETE_COMMIT)
    assert V1.decode(*V1.encode(TransactionChanged(T, done))) == TransactionChanged(T, done)


def test_a_tombstone_forgets_the_id() -> None:
    key, value = V1.encode(TransactionForgotten(T))
    assert value is None
    assert V1.decode(key, value) == TransactionForgotten(T)


def test_keys_of_other_kinds_are_passed_over() -> None:
    assert V1.decode(b"\0\1whatever", b"") is None


def test_what_kafka_wrote_is_read() -> None:
    """A value as Kafka 4.1 writes it, whose only tagged field is the client's version."""
    value = bytes.fromhex(
        "0001" "0000000000000007" "0003" "0000ea60" "01" "02" "0261" "02" "00000005" "00"
        "0000018bcfe56801" "0000018bcfe56800" "01" "02" "02" "0002"
    )  # fmt: skip
    read = V1.decode(b"\0\0\0\1t", value)
    partition = TopicPartition(TopicName("a"), PartitionId(5))
    expected = Transaction(ONGOING, ProducerId(7), 3, 60_000, NOW, NOW - 1, frozenset((partition,)))
    expected = expected._replace(client_version=2)
    assert read == TransactionChanged(TransactionalId("t"), expected)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0", b""),
        (b"\0\0\0\5pay", b""),
        (b"\0\0\0\1t", b"\0\2"),
        (b"\0\0\0\1t", b"\0\0" + bytes(5)),
        (b"\0\0\0\1t", b"\0\0" + bytes(14) + b"\6" + bytes(20)),
    ],
    ids=["no type", "cut key", "unknown version", "cut value", "unknown state"],
)
def test_damage_is_noticed(key: bytes, value: bytes) -> None:
    with pytest.raises(CorruptMessage):
        V1.decode(key, value)


def test_states_are_numbered_and_named_as_in_kafka() -> None:
    assert [(state.value, state.label) for state in TransactionState] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
    ]
    assert set(ALLOWED) == set(TransactionState)
