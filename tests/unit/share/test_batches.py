"""Which batches a share group may have, and batches of some records only."""

from ottla.records.batch import Compression, is_intact, iter_batches, read_header
from ottla.records.control import ControlType, EndTransaction, encode_end_transaction
from ottla.records.record import Record, decode_records, encode_batch, iter_slices, unpack_records
from ottla.share.batches import Aborted, batch_of, batches_with, fetched_batch
from ottla.share.partition import Acquired, Fetched


def batch(first: int, count: int, *, producer: int = -1, transactional: bool = False) -> bytearray:
    records = [Record(first + at, 1_000 + at, b"k%d" % at, b"v%d" % at, (("h", b"x"),)) for at in range(count)]
    return encode_batch(records, producer_id=producer, producer_epoch=0, transactional=transactional)


def test_aborted_and_control_batches_are_not_for_members() -> None:
    aborted = [Aborted(producer_id=7, first_offset=10, last_offset=20)]

    def deliverable(data: bytearray) -> bool:
        return fetched_batch(read_header(data), aborted).deliverable

    assert not deliverable(batch(12, 3, producer=7, transactional=True))
    assert not deliverable(batch(10, 3, producer=7, transactional=True))
    assert deliverable(batch(5, 3, producer=7, transactional=True)), "an earlier transaction"
    assert deliverable(batch(21, 3, producer=7, transactional=True)), "a later one"
    assert deliverable(batch(12, 3, producer=8, transactional=True)), "another producer"
    assert deliverable(batch(12, 3, producer=7)), "outside of transactions"
    marker = EndTransaction(ControlType.COMMIT, 0, 1_000)
    assert not deliverable(encode_end_transaction(marker, producer_id=9, producer_epoch=0, base_offset=15))
    assert fetched_batch(read_header(batch(5, 3)), []) == Fetched(5, 7, True)


def test_only_batches_with_acquired_records_are_sent() -> None:
    parts = [batch(first, 5) for first in range(0, 25, 5)]
    data = b"".join(parts)
    assert bytes(batches_with(data, [Acquired(7, 12, 1)])) == bytes(parts[1] + parts[2])
    assert bytes(batches_with(data, [Acquired(0, 1, 1), Acquired(14, 15, 2)])) == bytes(parts[0] + parts[2] + parts[3])
    assert bytes(batches_with(data, [])) == b""
    assert bytes(batches_with(data, [Acquired(0, 24, 1)])) == data


def test_a_batch_of_some_records_says_the_same_of_them() -> None:
    for compression in (Compression.NONE, Compression.LZ4):
        records = [Record(100 + at, 5_000 + 3 * at, b"k", b"v" * at, (("h", b"x"),)) for at in range(10)]
        whole = encode_batch(records, compression=compression, producer_id=4, producer_epoch=2, base_sequence=9)
        header = read_header(whole)
        unpacked = bytes(unpack_records(whole, header))
        pieces = [unpacked[piece.start : piece.end] for piece in iter_slices(unpacked, 10)]
        some = batch_of(header, [pieces[2], pieces[7]])
        (found,) = iter_batches(some)
        assert is_intact(some, found)
        assert (found.base_offset, found.last_offset, found.record_count) == (100, 109, 2)
        assert found.compression is Compression.NONE
        assert list(decode_records(some)) == [records[2], records[7]]
