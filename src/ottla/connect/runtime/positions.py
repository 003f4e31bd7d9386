"""How far sources have come: the log `offsets`, by connector and part, in Kafka Connect's format.

    ["NAME", {part}]  ->  {position}, or null: forgotten

Source: `OffsetStorageWriter`, `OffsetUtils`.
"""

import json
import logging
import threading
from collections.abc import Mapping

from ottla.connect.converters.json_converter import json_text
from ottla.connect.records import Part, Position

log = logging.getLogger(__name__)


class Positions:
    """All positions that have been read; safe from any thread."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[bytes, Part, Position | None]]] = {}
        self._lock = threading.Lock()

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take in one record of the log."""
        try:
            name, part = json.loads(key)
            position = None if value is None else json.loads(value)
        except (ValueError, TypeError):
            log.warning("a record of the topic of positions is none of Connect's, and is left alone: key %r", key)
            return
        if not isinstance(name, str) or not isinstance(part, Mapping) or not isinstance(position, Mapping | None):
            return
        with self._lock:
            parts = self._known.setdefault(name, {})
            if position is None:
                parts.pop(_canonical(part), None)
            else:
                parts[_canonical(part)] = (key, part, position)

    def of(self, connector: str, part: Part) -> Position | None:
        """The offset of a connector in one source partition; None if unknown."""
        with self._lock:
            found = self._known.get(connector, {}).get(_canonical(part))
        return None if found is None else found[2]

    def all_of(self, connector: str) -> list[tuple[Part, Position]]:
        """Every part of a connector that has a position."""
        with self._lock:
            kept = list(self._known.get(connector, {}).values())
        return [(part, position) for _, part, position in kept if position is not None]

    def key(self, connector: str, part: Part) -> bytes:
        """The record's key: the bytes already in the log, or new ones."""
        with self._lock:
            found = self._known.get(connector, {}).get(_canonical(part))
        return found[0] if found is not None else json_text([connector, part]).encode()


def position_value(position: Position | None) -> bytes | None:
    """The record's value."""
    return None if position is None else json_text(position).encode()


def _canonical(part: Part) -> str:
    return json.dumps(part, sort_keys=True)
