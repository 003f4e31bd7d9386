"""The fields of decoded records, as a cell of a table and as JSON has them. PURE."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, cast


class Fields(dict[str, object]):
    """Named values; as text `name=value name=value`."""

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.items())


def plain(record: NamedTuple) -> dict[str, object]:
    """A decoded record's fields as JSON has them; assignments and the like, which are bytes, by their size."""
    return {name: shown(content) for name, content in record._asdict().items()}


def shown(content: object) -> object:
    """One value as JSON has it."""
    match content:
        case Enum():
            return content.name
        case None | int() | float() | str():
            return content
        case bytes():
            return f"{len(content)} bytes"
        case tuple() if hasattr(content, "_asdict"):
            return Fields(plain(cast("NamedTuple", content)))
        case tuple() | list():
            return [shown(each) for each in content]
        case frozenset() | set():
            return sorted(map(shown, content), key=str)
        case Mapping():
            return Fields({str(name): shown(each) for name, each in content.items()})
        case _:
            return str(content)
