"""The code in C that decodes batches, and its twin in Python: equal, and safe with whatever comes."""

import os
from pathlib import Path
from random import Random

import pytest
from tests.support.sanitizer import run_sanitized

from ottla.errors import CorruptMessage
from ottla.records.batch import iter_batches
from ottla.records.record import Record, encode_batch
from ottla.spark import decoding, decoding_twin
from ottla.spark.chunk import Chunk, Rows, chunks


def chunk_of(records: bytes) -> Chunk:
    (chunk,) = chunks(memoryview(records), list(iter_batches(records)), 1 << 30)
    return chunk


def some_batches(random: Random) -> bytes:
    def field() -> bytes | None:
        return random.choice([None, b"", random.randbytes(random.choice([1, 60, 70, 9_000]))])

    found, offset = [], random.randrange(1 << 40)
    for _ in range(random.randrange(1, 5)):
        records = []
        for _ in range(random.randrange(1, 20)):
            stamp = random.choice([-1, 0, 1_760_000_000_000, (1 << 63) // 1_000 - 1, (1 << 63) // 1_000])
            headers = ((("name", b"value"),) * random.randrange(3)) if random.random() < 0.3 else ()
            records.append(Record(offset, stamp, field(), field(), headers))
            offset += random.choice([1, 1, 1, 200])
        found.append(bytes(encode_batch(records)))
    return b"".join(found)


def as_lists(rows: Rows | None) -> object:
    if rows is None:
        return None
    at = rows.header_at
    places = None if at is None or (at < 0).all() else at.tolist()
    return rows.offsets.tolist(), rows.micros, rows.kinds.tolist(), rows.keys, rows.values, places


@pytest.mark.parametrize("seed", range(60))
def test_c_and_python_give_the_same_rows(seed: int) -> None:
    assert decoding.IS_NATIVE
    random = Random(seed)
    chunk = chunk_of(some_batches(random))
    first, last = chunk.headers[0].base_offset, chunk.headers[-1].last_offset
    first, end = random.choice([first, first + 5]), random.choice([last + 1, last - 4, first])
    in_c, in_python = decoding.decode(chunk, first, end), decoding_twin.decode(chunk, first, end)
    assert as_lists(in_c) == as_lists(in_python)
    for rows in filter(None, (in_c, in_python)):
        for column in (rows.micros, rows.keys, rows.values):
            column.validate(full=True)


@pytest.mark.parametrize("is_native", [True, False])
@pytest.mark.parametrize(
    ("at", "value"),
    [(61, 0x7E), (61, 0x01), (61, 0x10), (65, 0x03), (65, 0x7E), (57, 0x7F)],
    ids=["too long", "negative length", "too short", "negative key", "key too long", "too many records"],
)
def test_a_record_that_does_not_fit_is_refused(
    at: int, value: int, *, is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "IS_NATIVE", is_native)
    records = bytearray(encode_batch([Record(0, 1_000, None, b"one"), Record(1, 1_000, None, b"two")]))
    records[at] = value
    with pytest.raises(CorruptMessage):
        decoding.decode(chunk_of(bytes(records)), 0, 2)


def test_the_c_code_under_the_address_sanitizer(tmp_path: Path) -> None:
    source = Path(decoding.__file__).with_name("_columns.c")
    runs = os.environ.get("OTTLA_FUZZ_RUNS", "3000")
    printed = run_sanitized(source, tmp_path, Path(__file__).with_name("fuzz_columns.py"), "1", runs)
    assert f"{runs} batches" in printed
