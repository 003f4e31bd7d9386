"""Counts the errors in answers, by API and code, as Kafka's `ErrorsPerSec` does; success counts as no error.

Each class of answers has its errors in fields `error_code`, of its own and of structures in it. They are found once, by
the class's declaration.
"""

from collections import Counter
from collections.abc import Callable
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.schema import Array, Message, Struct, fields_of

MOST_PARTS: Final = 500
"""Elements of each list that are looked at: an answer about 10,000 partitions must not hold up the event loop."""
CODE: Final = "error_code"

Count = Callable[[int], None]
Look = Callable[[Any, Count], None]


class ErrorCounts:
    """On the loop's thread."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[int, int]] = Counter()
        """By API key and error code."""
        self._api_key = 0
        """That of the answer that is looked at."""
        self._looks: dict[type[Struct], Look | None] = {}

    def __call__(self, api_key: int, answer: Message) -> None:
        """Count the errors of an answer."""
        kind = type(answer)
        look = self._looks[kind] if kind in self._looks else self._look_of(kind)
        if look is not None:
            self._api_key = api_key
            look(answer, self._count)

    def _count(self, code: int) -> None:
        self.counts[self._api_key, code] += 1

    def by_name(self) -> list[tuple[int, str, int]]:
        """API key, name of the error, count."""
        return [(api_key, _name(code), count) for (api_key, code), count in list(self.counts.items())]

    def _look_of(self, kind: type[Struct]) -> Look | None:
        """How errors are found in a structure; None if it has none."""
        if kind in self._looks:
            return self._looks[kind]
        self._looks[kind] = None  # of structures that contain themselves
        code: Callable[[Any], int] | None = None
        inner: list[tuple[Callable[[Any], Any], Look, bool]] = []
        for field in fields_of(kind):
            if field.name == CODE:
                code = attrgetter(CODE)
                continue
            is_list = isinstance(field.type, Array)
            element = field.type.element if isinstance(field.type, Array) else field.type
            look = self._look_of(element) if isinstance(element, type) and issubclass(element, Struct) else None
            if look is not None:
                inner.append((attrgetter(field.name), look, is_list))
        found = None if code is None and not inner else _codes if not inner else _looking(code, inner)
        self._looks[kind] = found
        return found


def _codes(part: Any, count: Count) -> None:
    """Count the error of a structure that has no other in it."""
    if part.error_code:
        count(part.error_code)


def _looking(code: Callable[[Any], int] | None, inner: list[tuple[Callable[[Any], Any], Look, bool]]) -> Look:
    def look(part: Any, count: Count) -> None:
        if not isinstance(part, Struct):
            return  # encoded before, and sent to many: without errors
        if code is not None and (found := code(part)):
            count(found)
        for get, look_into, is_list in inner:
            value = get(part)
            if not value:
                continue
            parts = (value if len(value) <= MOST_PARTS else islice(value, MOST_PARTS)) if is_list else (value,)
            if look_into is _codes:  # most structures are: a call for each would take as long as all of this
                for each in parts:
                    if each.error_code:
                        count(each.error_code)
            else:
                for each in parts:
                    look_into(each, count)

    return look


def _name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
