"""Structs out of JSON, in C: see `ottla.connect.converters.json_readers`."""

from typing import Any

INTERFACE: int

class StructReader:
    def __init__(self, fields: tuple[tuple[str, bytes, int, int, int, object, tuple[object, ...]], ...], /) -> None: ...
    def read(self, payload: bytes, head: bytes, /) -> dict[str, Any] | None: ...
