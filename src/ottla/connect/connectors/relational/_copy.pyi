"""Rows in PostgreSQL's text format, in C: see `ottla.connect.connectors.relational.copy_text`."""

from collections.abc import Callable
from typing import Any

INTERFACE: int

def copy_bytes(
    rows: list[tuple[Any, ...]], texts: dict[type, Callable[[Any], str]], other: Callable[[Any], str], /
) -> bytes: ...
