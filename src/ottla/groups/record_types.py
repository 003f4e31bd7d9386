"""How one type of record goes into the group coordinator's log and comes out of it. PURE."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Encoders: TypeAlias = Mapping[type, Callable[[Any], tuple[bytes, bytes | None]]]
"""Class of the record -> what makes its key and value. No value is a tombstone."""

Decoders: TypeAlias = Mapping[int, Callable[[bytes, bytes | None], Any]]
"""The int16 in front of a key -> what reads key and value. May raise `MalformedMessage` or `UnsupportedVersion`."""
