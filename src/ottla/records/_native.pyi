"""The walk over a batch's records, in C: see `ottla.records.structure`."""

from ottla.records.batch import Buffer
from ottla.records.structure import Findings

INTERFACE: int

def scan(
    records: Buffer, count: int, base_timestamp: int, earliest: int, latest: int, needs_key: bool, /
) -> Findings: ...

class Scanner:
    def __init__(self, count: int, base_timestamp: int, earliest: int, latest: int, needs_key: bool, /) -> None: ...
    def feed(self, chunk: Buffer, /) -> bool: ...
    def finish(self) -> Findings: ...
