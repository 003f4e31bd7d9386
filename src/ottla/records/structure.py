"""PURE. Check whether the unpacked records of a batch match its header, without decoding them.

`scan(records, count, base_timestamp, earliest, latest, needs_key)` walks all of them at once, `Scanner(count, ...)`
chunk by chunk as a codec unpacks them: `feed(chunk)` returns False once there is a problem, `finish()` gives the
findings. Timestamps are in ms; those outside `earliest..latest` are faults (-1, no timestamp, never is), and with
`needs_key` so are records without a key.

Both are in C (`_native.c`) where that has been compiled, some 25 ns for a record of 100 bytes, without the
interpreter's lock, and else in Python (`structure_twin.py`), a hundred times as much. `IS_NATIVE` is true for C.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

INTERFACE: Final = 1
"""The version of the compiled module: one that was built from another source is not used."""
MAX_FAULTS: Final = 1024
"""So many faulty records of a batch are named; all are counted."""

Findings: TypeAlias = tuple[int, int, int, int, tuple[tuple[int, int], ...]]
"""Problem, records walked (the number of the malformed one if there is a problem), the largest timestamp (at least -1),
how many records are faulty, and the first of these as (number in the batch, fault)."""


class Problem(IntEnum):
    """An error of a batch as a whole: it cannot be read past this record."""

    NONE = 0
    LENGTH = 1
    VARINT = 2
    OFFSET = 3
    FIELD = 4
    HEADERS = 5
    HEADER_KEY = 6
    REST_OF_RECORD = 7
    REST_OF_BATCH = 8
    ENDS_EARLY = 9


class Fault(IntEnum):
    """An error of one record that can be read (KIP-467)."""

    NO_KEY = 1
    TIMESTAMP = 2


PROBLEM_TEXTS: Final = {
    Problem.LENGTH: "has a negative length",
    Problem.VARINT: "has a varint that is too long",
    Problem.OFFSET: "has an offset delta that is not its number in the batch",
    Problem.FIELD: "has a field that reaches past its end",
    Problem.HEADERS: "has a count of headers for which it has no room",
    Problem.HEADER_KEY: "has a header without a key",
    Problem.REST_OF_RECORD: "has bytes left after its headers",
    Problem.REST_OF_BATCH: "would lie after the last one that the batch's header counts",
    Problem.ENDS_EARLY: "is counted in the batch's header, and is not there or is cut off",
}
"""How a sentence about the record with the number of the findings goes on."""

if TYPE_CHECKING:
    from ottla.records._native import Scanner, scan

    IS_NATIVE: bool
else:
    try:
        from ottla.records import _native

        IS_NATIVE = _native.INTERFACE == INTERFACE
    except ImportError:
        IS_NATIVE = False
    if IS_NATIVE:
        from ottla.records._native import Scanner, scan
    else:
        from ottla.records.structure_twin import Scanner, scan

__all__ = ["INTERFACE", "IS_NATIVE", "MAX_FAULTS", "PROBLEM_TEXTS", "Fault", "Findings", "Problem", "Scanner", "scan"]
