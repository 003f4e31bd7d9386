"""Compaction against a model, and against a disk that crashes in the midst of it."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.log.cleaning import Cleaner, batches, contents, put

from ottla.config.log import LogConfig
from ottla.ids import BrokerId, PartitionId, TopicName, TopicPartition
from ottla.log.cleaner import CleanerLimits
from ottla.log.directories import LogDirectories
from ottla.log.partition_log import PartitionLog
from ottla.testing.faulty_fs import Crashed, FaultyFS, Survival
from ottla.testing.manual_clock import ManualClock

TP = TopicPartition(TopicName("flights"), PartitionId(0))
DELETE_RETENTION_MS = 10_000

Entry = tuple[int, str, str | None]

KEYS = st.sampled_from(["a", "b", "c", "d", "a key that is longer than a digest"])
BATCHES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.text("xyz", max_size=20))), min_size=1, max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), BATCHES),
        st.tuples(st.just("roll"), st.just([])),
        st.tuples(st.just("wait"), st.integers(1, DELETE_RETENTION_MS)),
        st.tuples(st.just("clean"), st.just([])),
        st.tuples(st.just("restart"), st.sampled_from([Survival.NOTHING, Survival.RANDOM])),
    ),
    max_size=30,
)


class Model:
    """Every record ever put, and what compaction may and must have done to it."""

    def __init__(self) -> None:
        self.records: list[Entry] = []
        self.batch_of: list[int] = []
        self.met_ms: dict[int, int] = {}
        """By batch: when a round has first met a tombstone in it."""
        self.gone: set[int] = set()

    def put(self, records: list[tuple[str, str | None]]) -> None:
        batch = len(self.records)
        for key, value in records:
            self.records.append((len(self.records), key, value))
            self.batch_of.append(batch)

    def clean(self, end: int, now_ms: int) -> None:
        """A round over all offsets below `end`."""
        newest = {key: offset for offset, key, _ in self.records[:end]}
        for offset, key, value in self.records[:end]:
            batch = self.batch_of[offset]
            expired = value is None and batch in self.met_ms and now_ms >= self.met_ms[batch] + DELETE_RETENTION_MS
            if newest[key] > offset or expired:
                self.gone.add(offset)
        for offset, _, value in self.records[:end]:
            if value is None and offset not in self.gone:
                self.met_ms.setdefault(self.batch_of[offset], now_ms)

    def left(self) -> list[Entry]:
        return [entry for entry in self.records if entry[0] not in self.gone]


class Machine:
    """A log directory on a faulty disk, with a cleaner."""

    def __init__(self, seed: int, *, map_bytes: int, segment_bytes: int, lag_ms: int = 0) -> None:
        self.clock = ManualClock()
        self.fs = FaultyFS(seed=seed, clock=self.clock, block_bytes=64)
        self.fs.make_directory("/data")
        self.fs.sync_directory("/")
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=100,
            segment_index_bytes=10_000,
            compact=True,
            delete=False,
            delete_retention_ms=DELETE_RETENTION_MS,
            min_compaction_lag_ms=lag_ms,
        )
        self.limits = CleanerLimits(dedupe_buffer_bytes=map_bytes, io_buffer_bytes=150)
        self.open()
        self.directories.create_log(TP, None, self.config)
        self.log.flush()

    @property
    def log(self) -> PartitionLog:
        log = self.directories.get(TP)
        assert log is not None
        return log

    def open(self) -> None:
        self.directories = LogDirectories([Path("/data")], fs=self.fs, clock=self.clock)
        self.directories.acquire(cluster_id="c", node_id=BrokerId(1))
        self.directories.load_all(lambda _: self.config)
        (directory,) = self.directories.directories
        self.cleaner = Cleaner(self.fs, self.clock)
        self.cleaner.limits = self.limits
        self.cleaner.checkpoint = directory.read_cleaner_offsets().get(TP)

    def commit(self) -> None:
        self.log.flush()
        self.log.high_watermark = self.log.log_end_offset

    def clean(self) -> bool:
        (directory,) = self.directories.directories
        directory.prepare_checkpoints().write()
        worked = self.cleaner.run(self.log)
        if worked and self.cleaner.checkpoint is not None:
            directory.write_cleaner_offsets({TP: self.cleaner.checkpoint})
        return worked

    def restart(self, survival: Survival) -> None:
        self.fs.crash(survival)
        self.open()
        self.log.high_watermark = self.log.recovery_point


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, seed=st.integers(0, 2**16), segment_bytes=st.sampled_from([400, 2000, 1 << 20]))
def test_what_is_left_is_what_the_rules_say(steps: list[tuple[str, object]], seed: int, segment_bytes: int) -> None:
    machine = Machine(seed, map_bytes=1 << 20, segment_bytes=segment_bytes)
    model = Model()
    for name, argument in steps:
        if name == "put":
            assert isinstance(argument, list)
            put(machine.log, argument, machine.clock.now_ms())
            model.put(argument)
            machine.commit()
        elif name == "roll":
            machine.log.roll()
            machine.commit()
        elif name == "wait":
            assert isinstance(argument, int)
            machine.clock.advance(ms=argument)
        elif name == "clean":
            synced = machine.log.recovery_point  # as of the last checkpoint, after a crash
            end = max(found.base_offset for found in machine.log.segments if found.base_offset <= synced)
            if machine.clean():
                model.clean(end, machine.clock.now_ms())
        else:
            assert isinstance(argument, Survival)
            machine.restart(argument)
        assert contents(machine.log) == model.left()
        assert machine.log.log_end_offset == len(model.records)
    ends = [(header.base_offset, header.last_offset) for header, _ in batches(machine.log)]
    assert ends == sorted(ends)
    first_of = {offset: model.batch_of[offset] for offset in range(len(model.records))}
    assert all(first_of[base] == base for base, _ in ends), "batches keep their base offsets"


@settings(max_examples=15, deadline=None)
@given(count=st.integers(1000, 3000), seed=st.integers(0, 2**16), batch_size=st.integers(20, 400))
def test_a_small_map_reaches_the_same_end(count: int, seed: int, batch_size: int) -> None:
    """The keys come from a seed: thousands of choices by Hypothesis would take longer than the compaction."""
    keys = Random(seed)
    records: list[tuple[str, str | None]] = [(str(keys.randint(0, 2000)), "v") for _ in range(count)]
    machine = Machine(1, map_bytes=0, segment_bytes=20_000)
    newest: dict[str, int] = {}
    for start in range(0, len(records), batch_size):
        put(machine.log, records[start : start + batch_size], machine.clock.now_ms())
    for offset, (key, _) in enumerate(records):
        newest[key] = offset
    machine.log.roll()
    machine.commit()
    for _ in range(20):
        if not machine.clean():
            break
    assert [offset for offset, _, _ in contents(machine.log)] == sorted(newest.values())


@pytest.mark.parametrize(
    ("survival", "seed"),
    [*((survival, 0) for survival in Survival), *((Survival.SCATTERED, seed) for seed in range(1, 4))],
)
def test_a_crash_at_any_operation_leaves_the_old_log_or_the_new_one(survival: Survival, seed: int) -> None:
    """Every file operation of a round, and of the recovery after it, is once the last before the lights go out."""
    changes = 0
    outcomes: set[bool] = set()
    while True:
        machine = Machine(1000 * seed + changes, map_bytes=1 << 20, segment_bytes=1200)
        for number in range(12):
            put(machine.log, [("a", str(number)), (f"k{number % 5}", "x" * 30)], machine.clock.now_ms())
            if number % 3 == 2:
                machine.log.roll()
        put(machine.log, [("k0", None)], machine.clock.now_ms())
        machine.log.roll()
        machine.commit()
        before = contents(machine.log)
        newest = {key: offset for offset, key, _ in before}
        machine.fs.crash_after(changes)
        try:
            machine.clean()
        except Crashed:
            crashed = True
        else:
            crashed = False
        for recovery_changes in (changes % 7, None):
            machine.fs.crash(survival)
            if recovery_changes is not None:
                machine.fs.crash_after(recovery_changes)
            try:
                machine.open()
            except Crashed:
                continue
            break
        machine.fs.heal()
        log = machine.log
        log.high_watermark = log.recovery_point
        after = contents(log)
        assert set(after) <= set(before), f"changes={changes}"
        assert [offset for offset, _, _ in after] == sorted({offset for offset, _, _ in after})
        assert {key: offset for offset, key, _ in after} == newest, f"a key is lost, changes={changes}"
        assert log.log_end_offset == 25
        outcomes.add(len(after) == len(newest))
        names = [name for name, _, _ in machine.fs.names("/data/flights-0")]
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        machine.clean()  # the next round finds nothing in its way
        put(log, [("a", "again")], machine.clock.now_ms())
        machine.commit()
        assert {key: offset for offset, key, _ in contents(log)} == {**newest, "a": 25}
        if not crashed:
            break
        changes += 1
    assert changes > 30
    assert outcomes == {False, True}
