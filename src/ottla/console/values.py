"""Keys, values and headers as people read them: JSON, text, or bytes, recognised by their content. PURE."""

import json
import math
from typing import Any, Final, NamedTuple

SHOWN_CHARACTERS: Final = 2_000
"""Shown in a list of records; the page of a record has more."""
WHOLE_CHARACTERS: Final = 200_000
LARGEST_JSON_BYTES: Final = 4 << 20
"""Larger ones are shown as text: to read them takes the server's time."""
HEX_BYTES: Final = 512


class Shown(NamedTuple):
    """A key or value."""

    kind: str
    """json, text, bytes, null or empty."""
    text: str
    size: int
    is_cut: bool


def read_json(data: bytes) -> Any:
    """The value of JSON that is an object or a list; None for anything else, and for what is nested too deeply."""
    if not data or len(data) > LARGEST_JSON_BYTES or data[:1] not in b"{[ \t\r\n":
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, (dict, list)) else None


def read_any(data: bytes | None) -> Any:
    """What a filter sees: the value of JSON, else text, else None for bytes."""
    if data is None:
        return None
    found = read_json(data)
    if found is not None:
        return found
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def show(data: bytes | None, most: int = SHOWN_CHARACTERS) -> Shown:
    """A key or value, at most `most` characters of it."""
    if data is None:
        return Shown("null", "null", 0, False)
    if not data:
        return Shown("empty", "", 0, False)
    found = read_json(data)
    if found is not None:
        text = _pretty(found) if most > SHOWN_CHARACTERS else data.decode("utf-8", "replace").strip()
        return Shown("json", text[:most], len(data), len(text) > most)
    try:
        text = data[: 4 * most].decode("utf-8", "strict" if len(data) <= 4 * most else "ignore")
    except UnicodeDecodeError:
        return Shown("bytes", data[:HEX_BYTES].hex(" "), len(data), len(data) > HEX_BYTES)
    if _is_binary(text):
        return Shown("bytes", data[:HEX_BYTES].hex(" "), len(data), len(data) > HEX_BYTES)
    return Shown("text", text[:most], len(data), len(text) > most)


def _pretty(value: Any) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return str(value)


def _is_binary(text: str) -> bool:
    """Whether text has control characters that no text has."""
    return any(character < " " and character not in "\t\r\n" for character in text[:SHOWN_CHARACTERS])


def human_bytes(size: float) -> str:
    """`1.5 MB`, in powers of ten."""
    if size < 1000:
        return f"{size:.0f} B"
    power = min(int(math.log10(size) // 3), 5)
    return f"{size / 1000**power:.1f} {'kMGTP'[power - 1]}B"


def human_duration(seconds: float) -> str:
    """A duration for a person: `4 s`, `3 min`, `2 h`, `5 d`."""
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
