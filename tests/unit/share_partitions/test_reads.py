"""What a member could be given: in the order of keys, while compaction takes records away."""

from collections.abc import Sequence
from unittest.mock import Mock

from ottla.ids import Offset
from ottla.log.segment_list import ReadResult
from ottla.records.batch import iter_batches
from ottla.records.record import Record, decode_records, encode_batch
from ottla.share.partition import Limits, SharePartition
from ottla.share.state import SharePartitionState
from ottla.share_partitions.reads import KEPT_BYTES, KeptBatches, SlowRead, Terms, look

TERMS = Terms("m", 30.0, 500, 500, 1 << 20, at_least_one=True, committed_only=False)


class Log:
    """A log of batches that can be compacted."""

    def __init__(self, *batches: Sequence[Record]) -> None:
        self.batches = [encode_batch(batch) for batch in batches]
        self.log_start_offset = 0
        self.reads = 0

    @property
    def high_watermark(self) -> int:
        return next(iter_batches(self.batches[-1])).next_offset

    def read(self, offset: int, max_bytes: int, *, upper_bound: int, min_one_message: bool) -> ReadResult:
        self.reads += 1
        found = [batch for batch in self.batches if next(iter_batches(batch)).last_offset >= offset]
        data = found[0] if found else bytearray()
        for batch in found[1:]:
            if len(data) + len(batch) <= max_bytes:
                data = data + batch
        return ReadResult(bytes(data), Offset(0), 0)

    def compact(self, *gone: int) -> None:
        kept = []
        for batch in self.batches:
            header = next(iter_batches(batch))
            records = [record for record in decode_records(batch) if record.offset not in gone]
            kept.append(encode_batch(records, base_offset=header.base_offset, last_offset=header.last_offset))
        self.batches = kept


def records(first: int, keys: str) -> list[Record]:
    return [Record(first + at, 1_000, key.encode(), b"v" * 10) for at, key in enumerate(keys)]


def machine() -> SharePartition:
    return SharePartition(
        SharePartitionState(0, 0), start_offset=0, log_end_offset=0, limits=Limits(2_000, 5), key_ordered=True
    )


def take(partition: SharePartition, log: Log, kept: KeptBatches, terms: Terms = TERMS) -> list[int]:
    found = look(partition, Mock(log=log), kept, terms)
    assert not isinstance(found, SlowRead)
    if found is None:
        return []
    taken = found.take(terms.max_records)
    sent = [record.offset for header in iter_batches(taken.records) for record in decode_records(taken.records, header)]
    acquired = [offset for one in taken.acquired for offset in range(one.first, one.last + 1)]
    assert sent == acquired, "what is acquired is sent, and nothing else"
    return acquired


def test_records_are_sent_in_batches_of_their_own() -> None:
    partition, log, kept = machine(), Log(records(0, "aab"), records(3, "cb")), KeptBatches()
    assert take(partition, log, kept, TERMS._replace(max_records=2)) == [0, 2]
    assert take(partition, log, kept) == [3]
    assert take(partition, log, kept) == []
    assert log.reads == 1, "batches are kept"


def test_no_more_is_given_than_fits() -> None:
    partition, log, kept = machine(), Log(records(0, "abc")), KeptBatches()
    assert take(partition, log, kept, TERMS._replace(max_bytes=1)) == [0], "one in any case"
    assert take(partition, log, kept, TERMS._replace(max_bytes=1, at_least_one=False)) == []
    assert take(partition, log, kept) == [1, 2]


def test_when_compaction_takes_what_was_next_what_follows_is_given() -> None:
    partition, log, kept = machine(), Log(records(0, "aaaa")), KeptBatches()
    assert partition.ready(1) == []
    look(partition, Mock(log=log), kept, TERMS)  # learns the keys
    kept.clear()
    log.compact(0, 1, 2)
    assert take(partition, log, kept) == [3]


def test_what_was_read_just_now_is_kept_however_large_it_is() -> None:
    large = [[Record(at, 1_000, b"k%d" % at, b"v" * (KEPT_BYTES // 3))] for at in range(8)]
    partition, log, kept = machine(), Log(*large), KeptBatches()
    found = look(partition, Mock(log=log), kept, TERMS)
    for _ in range(40):
        if not isinstance(found, SlowRead):
            break
        found.keep(found.run())
        found = look(partition, Mock(log=log), kept, TERMS)
    assert found is not None
    assert not isinstance(found, SlowRead)
