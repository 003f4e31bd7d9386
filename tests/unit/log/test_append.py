from dataclasses import replace
from struct import pack_into

import pytest
from tests.unit.log.driver import NOW_MS, LogDriver, offsets, read, read_all

from ottla.config.log import TimestampType
from ottla.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordListTooLarge,
    UnsupportedForMessageFormat,
)
from ottla.ids import LeaderEpoch
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import Origin
from ottla.records.batch import Compression, is_intact, iter_batches, read_header
from ottla.records.record import decode_records

EPOCH = LeaderEpoch(0)


def test_offsets_follow_each_other(driver: LogDriver, log: PartitionLog) -> None:
    infos = [driver.append(log, count) for count in (3, 1, 5)]
    assert [(info.first_offset, info.last_offset, info.record_count) for info in infos] == [
        (0, 2, 3),
        (3, 3, 1),
        (4, 8, 5),
    ]
    assert log.log_end_offset == 9
    assert offsets(read_all(log)) == list(range(9))


def test_offset_and_epoch_are_written_into_the_callers_buffer(driver: LogDriver, log: PartitionLog) -> None:
    driver.append(log, 4)
    batch = driver.batch(2)
    log.append_as_leader(batch, LeaderEpoch(7))
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (4, 7)
    assert bytes(read(log, 4).data) == bytes(batch)
    assert log.leader_epochs.entries() == [(0, 0), (7, 4)]


def test_a_read_only_buffer_is_left_alone(driver: LogDriver, log: PartitionLog) -> None:
    batch = bytes(driver.batch(2))
    before = bytes(batch)
    log.append_as_leader(batch, EPOCH)
    log.append_as_leader(batch, EPOCH)
    assert batch == before
    assert log.log_end_offset == 4


def test_what_clients_may_not_send(driver: LogDriver, log: PartitionLog) -> None:
    two = bytes(driver.batch()) * 2
    control = driver.batch(control=True, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    shifted = bytearray(driver.batch())
    pack_into(">q", shifted, 0, 5)
    unsequenced = driver.batch(producer_id=1, producer_epoch=0)
    gap = driver.batch(2, last_offset=5)
    for refused in (two, control, shifted, unsequenced, gap, b""):
        with pytest.raises(InvalidRecord):
            log.append_as_leader(refused, EPOCH)
    assert log.log_end_offset == 0
    assert log.size_bytes == 0


def test_coordinators_may_append_several_batches(driver: LogDriver, log: PartitionLog) -> None:
    driver.append(log)
    info = log.append_as_leader(bytes(driver.batch(2)) + bytes(driver.batch(3)), EPOCH, origin=Origin.COORDINATOR)
    assert (info.first_offset, info.last_offset, info.record_count) == (1, 5, 5)
    assert offsets(read_all(log)) == list(range(6))


def test_corrupt_batches_are_refused(driver: LogDriver, log: PartitionLog) -> None:
    batch = driver.batch(2)
    for at in (21, 60, len(batch) - 1):
        flipped = bytearray(batch)
        flipped[at] ^= 1
        with pytest.raises(CorruptMessage, match="CRC"):
            log.append_as_leader(flipped, EPOCH)
    for cut in (1, 12, 60, 61, len(batch) - 1):
        with pytest.raises(InvalidRecord):
            log.append_as_leader(bytes(batch[:cut]), EPOCH)
        with pytest.raises(CorruptMessage):
            log.append_as_leader(bytes(batch[:cut]), EPOCH, origin=Origin.COORDINATOR)
    old = bytearray(batch)
    old[16] = 1
    with pytest.raises(InvalidRecord):
        log.append_as_leader(old, EPOCH)
    with pytest.raises(UnsupportedForMessageFormat):
        log.append_as_leader(old, EPOCH, origin=Origin.COORDINATOR)
    negative = bytearray(batch)
    pack_into(">i", negative, 8, -100)
    with pytest.raises(CorruptMessage):
        log.append_as_leader(negative, EPOCH)
    assert log.size_bytes == 0


def test_sizes_are_limited(driver: LogDriver) -> None:
    log = driver.open(clean=True, max_message_bytes=500, segment_bytes=700)
    with pytest.raises(MessageTooLarge, match=r"max\.message\.bytes"):
        driver.append(log, value_bytes=600)
    driver.append(log, value_bytes=300)
    with pytest.raises(RecordListTooLarge):
        log.append_as_leader(bytes(driver.batch(value_bytes=300)) * 3, EPOCH, origin=Origin.COORDINATOR)
    assert log.log_end_offset == 1
    log.release()


def test_timestamps_are_limited(driver: LogDriver) -> None:
    log = driver.open(clean=True, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    driver.append(log, timestamp_ms=NOW_MS - 1000)
    driver.append(log, timestamp_ms=NOW_MS + 500)
    driver.append(log, timestamp_ms=-1)
    with pytest.raises(InvalidTimestamp):
        driver.append(log, timestamp_ms=NOW_MS - 1001)
    with pytest.raises(InvalidTimestamp):
        driver.append(log, timestamp_ms=NOW_MS + 501)
    with pytest.raises(InvalidTimestamp):
        driver.append(log, log_append_time_ms=NOW_MS)
    log.release()


def test_append_time_is_stamped(driver: LogDriver) -> None:
    log = driver.open(clean=True, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    info = driver.append(log, 3, timestamp_ms=5)
    assert info.log_append_time_ms == NOW_MS
    data = read(log, 0).data
    header = next(iter_batches(data))
    assert is_intact(data, header)
    assert header.is_log_append_time
    assert [record.timestamp_ms for record in read_all(log)] == [NOW_MS] * 3
    log.release()


@pytest.mark.parametrize("codec", Compression)
def test_the_topics_compression_replaces_the_producers(driver: LogDriver, codec: Compression) -> None:
    name = "uncompressed" if codec is Compression.NONE else codec.name.lower()
    log = driver.open(clean=True, compression_type=name)
    for sent in Compression:
        driver.append(log, 3, compression=sent, producer_id=sent.value, producer_epoch=0, base_sequence=0)
    data = read(log, 0).data
    headers = list(iter_batches(data))
    assert [header.compression for header in headers] == [codec] * 5
    assert [header.producer_id for header in headers] == [0, 1, 2, 3, 4]
    assert [header.base_offset for header in headers] == [0, 3, 6, 9, 12]
    assert all(is_intact(data, header) for header in headers)
    assert offsets(read_all(log)) == list(range(15))
    log.release()


def test_a_compacted_topic_wants_keys(driver: LogDriver) -> None:
    log = driver.open(clean=True, compact=True)
    driver.append(log, 2, compression=Compression.ZSTD)
    with pytest.raises(InvalidRecord, match="key"):
        driver.append(log, 2, key=None)
    assert log.log_end_offset == 2
    log.release()


# --- producers ---------------------------------------------------------------------------------------------------


def test_the_last_five_batches_are_known_again(driver: LogDriver, log: PartitionLog) -> None:
    sent = [driver.append(log, 2, producer_id=4, producer_epoch=0, base_sequence=2 * i) for i in range(7)]
    size = log.size_bytes
    for number in range(2, 7):
        again = driver.append(log, 2, producer_id=4, producer_epoch=0, base_sequence=2 * number)
        assert again.duplicate
        assert (again.first_offset, again.last_offset) == (sent[number].first_offset, sent[number].last_offset)
    assert log.size_bytes == size
    with pytest.raises(OutOfOrderSequence):
        driver.append(log, 2, producer_id=4, producer_epoch=0, base_sequence=2)


def test_sequences_may_not_skip(driver: LogDriver, log: PartitionLog) -> None:
    driver.append(log, 2, producer_id=4, producer_epoch=0, base_sequence=10)  # unknown producers begin anywhere
    with pytest.raises(OutOfOrderSequence, match="13 after 11"):
        driver.append(log, 1, producer_id=4, producer_epoch=0, base_sequence=13)
    driver.append(log, 1, producer_id=4, producer_epoch=0, base_sequence=12)
    driver.append(log, 1, producer_id=5, producer_epoch=0, base_sequence=0)
    assert log.log_end_offset == 4


def test_sequences_wrap(driver: LogDriver, log: PartitionLog) -> None:
    driver.append(log, 2, producer_id=4, producer_epoch=0, base_sequence=2**31 - 2)
    driver.append(log, 1, producer_id=4, producer_epoch=0, base_sequence=0)
    driver.append(log, 2, producer_id=6, producer_epoch=0, base_sequence=2**31 - 1)
    driver.append(log, 1, producer_id=6, producer_epoch=0, base_sequence=1)
    assert log.log_end_offset == 6


def test_epochs_fence(driver: LogDriver, log: PartitionLog) -> None:
    driver.append(log, 1, producer_id=4, producer_epoch=3, base_sequence=0)
    with pytest.raises(InvalidProducerEpoch):
        driver.append(log, 1, producer_id=4, producer_epoch=2, base_sequence=1)
    with pytest.raises(OutOfOrderSequence):
        driver.append(log, 1, producer_id=4, producer_epoch=4, base_sequence=1)
    driver.append(log, 1, producer_id=4, producer_epoch=4, base_sequence=0)
    assert log.producer_state.producers[4].epoch == 4


def test_producers_are_remembered_across_restarts(driver: LogDriver, log: PartitionLog) -> None:
    first = driver.append(log, 3, producer_id=4, producer_epoch=1, base_sequence=0)
    for reopened in (driver.reopen, driver.crash):
        log = reopened(log)
        again = driver.append(log, 3, producer_id=4, producer_epoch=1, base_sequence=0)
        assert again.duplicate
        assert again.first_offset == first.first_offset
        with pytest.raises(OutOfOrderSequence):
            driver.append(log, 3, producer_id=4, producer_epoch=1, base_sequence=5)
    driver.append(log, 3, producer_id=4, producer_epoch=1, base_sequence=3)


# --- followers ---------------------------------------------------------------------------------------------------


def test_a_follower_keeps_offsets_and_epochs(driver: LogDriver, log: PartitionLog) -> None:
    for count, epoch in ((3, 0), (2, 0), (4, 5)):
        driver.append(log, count, epoch=epoch, producer_id=1, producer_epoch=0, base_sequence=log.log_end_offset)
    data = bytes(read(log, 0).data)
    follower = replace_directory(driver, "follower").open(clean=True)
    info = follower.append_as_follower(data + data[:30])
    assert (info.first_offset, info.last_offset, info.record_count) == (0, 8, 9)
    assert bytes(read(follower, 0).data) == data
    assert follower.leader_epochs.entries() == [(0, 0), (5, 5)]
    assert follower.producer_state.producers[1].last_sequence == 8
    with pytest.raises(OffsetOutOfRange):
        follower.append_as_follower(data)
    assert follower.append_as_follower(b"").record_count == 0
    damaged = bytearray(driver.batch(1))
    pack_into(">q", damaged, 0, 9)
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessage):
        follower.append_as_follower(damaged)
    follower.release()


def test_a_follower_may_skip_offsets(driver: LogDriver, log: PartitionLog) -> None:
    batch = bytearray(driver.batch(1))
    pack_into(">q", batch, 0, 100)
    log.append_as_follower(batch)
    assert log.log_end_offset == 101
    assert offsets([*decode_records(read(log, 0).data)]) == [100]


def replace_directory(driver: LogDriver, name: str) -> LogDriver:
    other = LogDriver(driver.directory.parent / name, driver.fs, driver.clock)
    other.config = replace(driver.config)
    return other


def test_a_follower_takes_more_at_once_than_a_segment_may_hold_by_now(driver: LogDriver) -> None:
    log = driver.open(clean=True, segment_bytes=1000)
    copied = bytearray()
    for number in range(30):
        batch = driver.batch(1)
        batch[:8] = number.to_bytes(8, "big")
        copied += batch
    assert len(copied) > 1000
    log.append_as_follower(copied)
    assert log.log_end_offset == 30
    assert offsets(read_all(log)) == list(range(30))
    log.release()
