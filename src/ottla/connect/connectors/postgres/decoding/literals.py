"""PURE: the texts of PostgreSQL's arrays and hstores. Source: its documentation, 8.15.6 and F.18."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from ottla.connect.api import ConnectError

_PAIR: Final = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)')
_ELEMENT: Final = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([^,{}"]*))([,}])')
_BOX: Final = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([^;{}"]*))([;}])')
"""Elements of the one type whose arrays have semicolons in between, for it has commas itself."""
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


def parse_array(text: str, convert: Callable[[str], Any], *, of_boxes: bool = False) -> list[Any]:
    """`{1,NULL,"a \\"b\\""}` as a list.

    Raises ConnectError for an array of arrays, which no schema of an array of elements can hold.
    """
    if text == "{}":
        return []
    if not text.startswith("{") or text.startswith("{{"):
        raise ConnectError(
            f"an array column holds {text[:60]}, which has several dimensions or bounds of its own and is no "
            "list of its elements: leave the column out by column.exclude.list"
        )
    elements = []
    element = _BOX if of_boxes else _ELEMENT
    at = 1
    while at < len(text):
        found = element.match(text, at)
        if found is None:
            raise ValueError(f"{text!r} is no array")
        quoted, plain, _ = found.groups()
        if quoted is not None:
            elements.append(convert(_ESCAPE.sub(r"\1", quoted)))
        else:
            elements.append(None if plain.upper() == "NULL" else convert(_ESCAPE.sub(r"\1", plain)))
        at = found.end()
    return elements


def hstore_json(text: str) -> str:
    """`"a"=>"1", "b"=>NULL` as an object of JSON."""
    pairs = {
        _ESCAPE.sub(r"\1", key): None if value is None else _ESCAPE.sub(r"\1", value)
        for key, value in ((found[1], found[2]) for found in _PAIR.finditer(text))
    }
    return json.dumps(pairs, separators=(",", ":"), ensure_ascii=False)
