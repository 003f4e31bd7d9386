"""Random transactions in one log, read as a client of committed records reads, from every offset and in small bites."""

import shutil
import tempfile
from pathlib import Path
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.log.driver import NOW_MS, Disk, LogDriver, SetClock

from ottla.ids import LeaderEpoch, Offset
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import Origin
from ottla.log.segment_list import ReadResult
from ottla.records.batch import iter_batches
from ottla.records.control import ControlType, EndTransaction, decode_end_transaction, encode_end_transaction
from ottla.records.record import decode_records

PRODUCERS: Final = st.integers(1, 3)


class Transactions(RuleBasedStateMachine):
    """`fate` is what becomes of the record at an offset: True committed, False aborted, None not decided."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.driver = LogDriver(self.directory / "t-0", Disk(), SetClock())

    @initialize(small_segments=st.booleans())
    def open(self, small_segments: bool) -> None:
        self.log: PartitionLog = self.driver.open(segment_bytes=2_000 if small_segments else 1 << 20)
        self.fate: dict[int, bool | None] = {}
        self.open_since: dict[int, int] = {}
        self.records_of: dict[int, list[int]] = {}
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}

    def teardown(self) -> None:
        self.log.release()
        shutil.rmtree(self.directory)

    @rule(count=st.integers(1, 3))
    def write(self, count: int) -> None:
        info = self.driver.append(self.log, count)
        self.fate.update(dict.fromkeys(range(info.first_offset, info.last_offset + 1), True))

    @rule(producer=PRODUCERS, count=st.integers(1, 3))
    def write_in_transaction(self, producer: int, count: int) -> None:
        sequence = self.sequences.get(producer, 0)
        epoch = self.epochs.get(producer, 0)
        info = self.driver.append(
            self.log, count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        self.sequences[producer] = sequence + count
        self.open_since.setdefault(producer, info.first_offset)
        written = range(info.first_offset, info.last_offset + 1)
        self.records_of.setdefault(producer, []).extend(written)
        self.fate.update(dict.fromkeys(written))

    @rule(producer=PRODUCERS, committed=st.booleans(), bump=st.booleans())
    def end(self, producer: int, committed: bool, bump: bool) -> None:
        """Also of producers that have no transaction here; with the epoch of the next one, or not."""
        epoch = self.epochs.get(producer, 0) + bump
        if bump:
            self.epochs[producer] = epoch
            self.sequences[producer] = 0
        marker = EndTransaction(ControlType.COMMIT if committed else ControlType.ABORT, 1, NOW_MS)
        batch = encode_end_transaction(marker, producer_id=producer, producer_epoch=epoch)
        self.log.append_as_leader(batch, LeaderEpoch(0), origin=Origin.COORDINATOR)
        self.open_since.pop(producer, None)
        self.fate.update(dict.fromkeys(self.records_of.pop(producer, ()), committed))

    @rule(crash=st.booleans())
    def start_again(self, crash: bool) -> None:
        self.log = self.driver.crash(self.log) if crash else self.driver.reopen(self.log)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @invariant()
    def readers_of_committed_records_see_them_all_and_nothing_else(self) -> None:
        log = self.log
        log.high_watermark = log.log_end_offset
        stable = log.last_stable_offset
        assert stable == min(self.open_since.values(), default=log.log_end_offset)
        committed = [offset for offset in sorted(self.fate) if self.fate[offset] and offset < stable]
        for start in {0, stable // 2, max(stable - 3, 0)}:
            for max_bytes in (1, 700, 1 << 20):
                assert self.read(start, max_bytes) == [offset for offset in committed if offset >= start]

    def read(self, offset: int, max_bytes: int) -> list[int]:
        """The offsets that a client shows, which knows nothing but what it is given: see `Fetcher` of any of them."""
        seen: list[int] = []
        stable = self.log.last_stable_offset
        while offset < stable:
            result = self.log.read(offset, max_bytes, upper_bound=stable, min_one_message=True)
            assert isinstance(result, ReadResult)
            aborted = self.log.aborted_transactions(offset, stable, result.data)
            waiting = sorted((each.first_offset, each.producer_id) for each in aborted)
            skipped: set[int] = set()
            for header in iter_batches(result.data):
                while waiting and waiting[0][0] <= header.last_offset:
                    skipped.add(waiting.pop(0)[1])
                if header.is_control:
                    marker = decode_end_transaction(result.data, header)
                    if marker is not None and marker.is_abort:
                        skipped.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in skipped):
                    records = decode_records(result.data, header)
                    seen += [record.offset for record in records if record.offset >= offset]
                next_offset = header.next_offset
            offset = Offset(next_offset)
        return seen


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
