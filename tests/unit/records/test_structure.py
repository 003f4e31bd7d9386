"""The walk over a batch's records: in C and in Python, at once and chunk by chunk, always with one result."""

import os
import runpy
import sys
import threading
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sanitizer import run_sanitized
from tests.unit.records.structure_inputs import INT64_MAX, chunks, mutilated, sound

from ottla.records import _native, structure, structure_twin
from ottla.records.record import Record, append_record, iter_slices
from ottla.records.structure import INTERFACE, Fault, Problem

ALWAYS = (-INT64_MAX - 1, INT64_MAX)
BOTH = [_native, structure_twin]


def encoded(*records: Record, deltas: list[int] | None = None) -> bytearray:
    out = bytearray()
    for number, record in enumerate(records):
        append_record(out, deltas[number] if deltas else number, record.timestamp_ms, record)
    return out


def test_the_compiled_module_is_used() -> None:
    assert structure.IS_NATIVE
    assert _native.INTERFACE == INTERFACE


@given(st.integers(0, 2**32), st.booleans())
def test_c_and_python_agree_on_any_bytes(seed: int, whole: bool) -> None:
    random = Random(seed)
    batch = sound(random) if whole else mutilated(random)
    results = []
    for module in BOTH:
        results.append(module.scan(batch.records, *batch.expected))
        scanner = module.Scanner(*batch.expected)
        feeding = [scanner.feed(chunk) for chunk in chunks(random, batch.records)]
        results.append(scanner.finish())
        assert all(feeding) or results[-1][0]
    problem, walked, *_ = results[0]
    if problem:
        assert [(bool(result[0]), result[1]) for result in results] == [(True, walked)] * 4
    else:
        assert results == [results[0]] * 4
    if whole:
        assert (problem, walked) == (Problem.NONE, batch.count)
        assert len(list(iter_slices(batch.records, batch.count))) == batch.count


@pytest.mark.parametrize("module", BOTH)
def test_timestamps_and_keys(module: object) -> None:
    rows = [Record(0, 10, b"k", b"v"), Record(0, 5, None, b"v"), Record(0, 99, b"k", None), Record(0, -101, None, None)]
    data = encoded(*rows)
    scan = module.scan  # type: ignore[attr-defined]
    assert scan(data, 4, 100, *ALWAYS, False) == (0, 4, 199, 0, ())
    assert scan(data, 4, 100, *ALWAYS, True) == (0, 4, 199, 2, ((1, Fault.NO_KEY), (3, Fault.NO_KEY)))
    assert scan(data, 4, 100, 106, 150, False)[3:] == (2, ((1, Fault.TIMESTAMP), (2, Fault.TIMESTAMP)))
    assert scan(data, 4, 100, 106, 150, True)[3:] == (
        3,
        ((1, Fault.NO_KEY), (2, Fault.TIMESTAMP), (3, Fault.NO_KEY)),
    )


@pytest.mark.parametrize("module", BOTH)
@pytest.mark.parametrize(
    ("data", "count", "problem", "record"),
    [
        (bytes.fromhex("01"), 1, Problem.LENGTH, 0),
        (bytes.fromhex("ffffffffff00"), 1, Problem.VARINT, 0),
        (encoded(Record(0, 0, b"", b""), Record(0, 0, b"", b""), deltas=[0, 0]), 2, Problem.OFFSET, 1),
        (bytes.fromhex("0c 00 00 00 05 08 00"), 1, Problem.FIELD, 0),
        (bytes.fromhex("0c 00 00 00 01 01 01"), 1, Problem.HEADERS, 0),
        (bytes.fromhex("0c 00 00 00 01 01 02"), 1, Problem.HEADERS, 0),
        (bytes.fromhex("10 00 00 00 01 01 02 01 00"), 1, Problem.HEADER_KEY, 0),
        (bytes.fromhex("0e 00 00 00 01 01 00 00"), 1, Problem.REST_OF_RECORD, 0),
        (bytes.fromhex("0c 00 00 00 01 01 00 00"), 1, Problem.REST_OF_BATCH, 1),
        (bytes.fromhex("0c 00 00 00 01 01 00"), 1_000_000, Problem.ENDS_EARLY, 1),
        (b"", 1, Problem.ENDS_EARLY, 0),
        (b"", 0, Problem.NONE, 0),
    ],
)
def test_each_problem(module: object, data: bytes, count: int, problem: Problem, record: int) -> None:
    found = module.scan(data, count, 0, *ALWAYS, False)  # type: ignore[attr-defined]
    assert found[:2] == (problem, record)


@pytest.mark.parametrize("module", BOTH)
def test_a_batch_may_be_cut_anywhere(module: object) -> None:
    data = bytes(encoded(Record(0, 300, b"key", b"v" * 200, (("h", None), ("i", b"x" * 70))), Record(0, 1, None, None)))
    for more, problem in [(b"", Problem.NONE), (b"\0", Problem.REST_OF_BATCH)]:
        for cut in range(len(data) + 1):
            scanner = module.Scanner(2, 0, *ALWAYS, False)  # type: ignore[attr-defined]
            scanner.feed(data[:cut])
            scanner.feed(data[cut:])
            scanner.feed(more)
            assert scanner.finish()[:3] == (problem, 2, 300)


@pytest.mark.parametrize("module", BOTH)
def test_a_count_that_no_batch_has_is_refused(module: object) -> None:
    for count in (-1, 1 << 31):
        with pytest.raises(ValueError, match="count of records"):
            module.scan(b"", count, 0, *ALWAYS, False)  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="count of records"):
            module.Scanner(count, 0, *ALWAYS, False)  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", BOTH)
def test_named_faults_are_bounded(module: object) -> None:
    data = encoded(*[Record(0, 0, None, None)] * 3000)
    *_, faults, named = module.scan(data, 3000, 0, *ALWAYS, True)  # type: ignore[attr-defined]
    assert faults == 3000
    assert named == tuple((number, Fault.NO_KEY) for number in range(structure.MAX_FAULTS))


def test_a_scanner_that_is_being_fed_refuses_other_threads() -> None:
    data = encoded(*[Record(0, 0, None, b"v")] * 1_000_000)
    scanner = _native.Scanner(1_000_000, 0, *ALWAYS, False)
    refusals: list[str] = []
    begun = threading.Event()

    def feed() -> None:
        begun.set()
        scanner.feed(data)

    thread = threading.Thread(target=feed)
    thread.start()
    begun.wait()
    while thread.is_alive() and not refusals:
        try:
            scanner.feed(b"")
        except RuntimeError as error:
            refusals.append(str(error))
    thread.join()
    assert scanner.finish()[:2] == (0, 1_000_000)


def test_the_c_code_under_the_address_sanitizer(tmp_path: Path) -> None:
    source = Path(structure.__file__).with_name("_native.c")
    runs = os.environ.get("OTTLA_FUZZ_RUNS", "3000")
    printed = run_sanitized(source, tmp_path, Path(__file__).with_name("fuzz_native.py"), "1", runs)
    assert f"{runs} batches" in printed


@pytest.mark.parametrize(
    "native", [None, SimpleNamespace(INTERFACE=INTERFACE + 1)], ids=["missing", "of other sources"]
)
def test_without_the_compiled_module_its_twin_is_used(native: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ottla.records._native", native)
    monkeypatch.delattr("ottla.records._native")
    if native is not None:
        monkeypatch.setattr("ottla.records._native", native, raising=False)
    found = runpy.run_path(structure.__file__)
    assert (found["IS_NATIVE"], found["scan"]) == (False, structure_twin.scan)
