"""The newest records of a coordinator's log: given only them, a machine knows what it knows when given all."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordination.newest import NewestRecords
from ottla.errors import CorruptMessage
from ottla.groups.offsets.committed import OffsetStore
from ottla.groups.offsets.records import OffsetCommitted, OffsetDeleted
from ottla.groups.records import GroupRecordFormat
from ottla.ids import GroupId, PartitionId, TopicName
from ottla.records.batch import Compression, iter_batches
from ottla.records.control import ControlType, EndTransaction, decode_end_transaction, encode_end_transaction
from ottla.records.record import Record, decode_records, encode_batch

G, T = GroupId("g"), TopicName("t")
FORMAT = GroupRecordFormat()
PARTITIONS = st.integers(0, 2)
PRODUCERS = st.sampled_from([-1, -1, 5, 6])
STEPS: st.SearchStrategy[Any] = st.one_of(
    st.tuples(st.just("commit"), PRODUCERS, st.lists(PARTITIONS, min_size=1, max_size=3)),
    st.tuples(st.just("delete"), st.just(-1), st.lists(PARTITIONS, min_size=1, max_size=1)),
    st.tuples(st.sampled_from(["committed", "aborted"]), st.sampled_from([5, 6]), st.just([])),
)


def log_of(steps: list[tuple[str, int, list[int]]]) -> bytes:
    """Each step a batch, or a marker."""
    log = bytearray()
    offset = 0
    for number, (kind, producer, partitions) in enumerate(steps):
        if kind in ("committed", "aborted"):
            control = ControlType.COMMIT if kind == "committed" else ControlType.ABORT
            batch = encode_end_transaction(
                EndTransaction(control, 0, number), producer_id=producer, producer_epoch=0, base_offset=offset
            )
            offset += 1
        else:
            records: list[Record] = []
            for partition in partitions:
                at = PartitionId(partition)
                deletion = OffsetDeleted(G, T, at)
                key, value = FORMAT.encode(
                    deletion if kind == "delete" else OffsetCommitted(G, T, at, number, -1, "m" * (number * 40), 7)
                )
                records.append(Record(offset + len(records), 1_000 + number * 90, key, value))
            producing: dict[str, Any] = {}
            if producer >= 0:
                producing = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            compression = Compression.GZIP if number % 3 == 2 else Compression.NONE
            batch = encode_batch(records, base_offset=offset, compression=compression, **producing)
            offset += len(records)
        log += batch
    return bytes(log)


def apply(store: OffsetStore, offset: int, producer: int, key: bytes, value: bytes | None) -> None:
    record = FORMAT.decode(key, value)
    if isinstance(record, OffsetDeleted):
        store.replay_deletion(record)
    else:
        assert isinstance(record, OffsetCommitted)
        store.replay_commit(record, offset, producer)


def replay_all(log: bytes) -> OffsetStore:
    store = OffsetStore()
    for header in iter_batches(log):
        marker = decode_end_transaction(log, header) if header.is_control else None
        if marker is not None:
            store.end_transaction(header.producer_id, committed=not marker.is_abort)
            continue
        for record in decode_records(log, header):
            assert record.key is not None
            producer = header.producer_id if header.is_transactional else -1
            apply(store, record.offset, producer, record.key, record.value)
    return store


def replay_newest(log: bytes, slice_bytes: int) -> OffsetStore:
    newest = NewestRecords()
    position = next_offset = 0
    while position < len(log):
        position, next_offset = newest.take(log, position, slice_bytes)
    headers = list(iter_batches(log))
    assert next_offset == (headers[-1].next_offset if headers else 0)
    store = OffsetStore()
    for offset, producer, key, value in newest.records():
        apply(store, offset, producer, key, value)
    return store


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=25), st.sampled_from([1, 300, 10**6]))
def test_nothing_is_lost_by_leaving_out_what_was_superseded(
    steps: list[tuple[str, int, list[int]]], slice_bytes: int
) -> None:
    log = log_of(steps)
    all_of_it, newest = replay_all(log), replay_newest(log, slice_bytes)
    assert newest.of_group(G) == all_of_it.of_group(G)
    for partition in range(3):
        at = (T, PartitionId(partition))
        assert newest.is_pending(G, at) == all_of_it.is_pending(G, at)  # type: ignore[arg-type]
    for producer in (5, 6):  # whatever is open still is the same
        for store in (newest, all_of_it):
            store.end_transaction(producer, committed=True)
    assert newest.of_group(G) == all_of_it.of_group(G)


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=150), st.none() | st.binary(max_size=20_000), st.integers(0, 2**40), st.booleans()
        ),
        min_size=1,
        max_size=80,
    )
)
def test_it_reads_records_as_the_slow_decoder_does(rows: list[tuple[bytes, bytes | None, int, bool]]) -> None:
    records = [
        Record(40 + number, at, None if keyless and not key else key, value, (("h", b"v"),) if keyless else ())
        for number, (key, value, at, keyless) in enumerate(rows)
    ]
    batch = bytes(encode_batch(records, base_offset=40))
    newest = NewestRecords()
    newest.take(batch, 0, 1)
    expected = {record.key: (record.offset, record.value) for record in decode_records(batch) if record.key is not None}
    assert {record.key: (record.offset, record.value) for record in newest.records()} == expected


def test_records_that_do_not_fit_their_batch_are_refused() -> None:
    batch = bytearray(encode_batch([Record(0, 0, b"key", b"value")], base_offset=0))
    for position, byte in ((61, 0x70), (65, 0x7E), (69, 0x7E), (57 + 3, 2)):
        broken = bytearray(batch)
        broken[position] = byte
        with pytest.raises(CorruptMessage):
            NewestRecords().take(bytes(broken), 0, 1)


@pytest.mark.parametrize(
    "records",
    [
        [Record(0, 0, b"k", b"v" * 9_000)],
        [Record(0, 0, b"k" * 200, b"v" * 200)],
        [Record(number, number * 2**33, b"k%d" % number, None) for number in range(80)],
        [Record(0, 0, None, b"lost"), Record(1, 0, b"k", b"v")],
    ],
    ids=["long value", "long key", "many records, late timestamps", "no key"],
)
def test_lengths_of_several_bytes_are_read(records: list[Record]) -> None:
    newest = NewestRecords()
    newest.take(bytes(encode_batch(records)), 0, 1)
    kept = {record.key: (record.offset, record.value) for record in newest.records()}
    assert kept == {record.key: (record.offset, record.value) for record in records if record.key is not None}


def test_records_without_a_key_do_not_count_beside_a_transaction() -> None:
    newest = NewestRecords()
    producing: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log = encode_batch([Record(0, 0, b"k", b"pending")], **producing)
    log += encode_batch([Record(1, 0, None, b"lost"), Record(2, 0, b"k", b"v")])
    newest.take(bytes(log), 0, 10**6)
    assert [(record.producer_id, record.value) for record in newest.records()] == [(-1, b"v"), (5, b"pending")]


def test_a_marker_that_compaction_has_taken_ends_no_transaction() -> None:
    newest = NewestRecords()
    producing: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    log = encode_batch([Record(0, 0, b"k", b"pending")], base_sequence=0, **producing)
    log += encode_batch([], base_offset=1, last_offset=1, control=True, **producing)
    assert newest.take(bytes(log), 0, 10**6) == (len(log), 2)
    assert [(record.producer_id, record.value) for record in newest.records()] == [(5, b"pending")]
