"""Records into the buffers of Arrow columns, in C: see `ottla.spark.decoding`."""

from typing import Any

INTERFACE: int

def decode(
    payload: memoryview, batches: Any, first: int, last: int, /, *buffers: Any
) -> tuple[int, int, int, int, int]: ...
