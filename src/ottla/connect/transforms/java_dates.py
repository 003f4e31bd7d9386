"""Java's date patterns (`yyyy-MM-dd'T'HH:mm:ss.SSSXXX`), as far as numbers, names of months and days, and zones go."""

import datetime as dt
import re
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LETTERS: Final = "yuMdHhkmsSaEDZXz"


class _Part(NamedTuple):
    letter: str
    """"" for text as it is."""
    length: int
    text: str


class JavaDates:
    """Formats and parses by one pattern, in UTC. Raises ValueError for a letter it does not know."""

    def __init__(self, pattern: str) -> None:
        self._parts = [_part(match) for match in _TOKEN.finditer(pattern)]
        self._expression = re.compile("".join(_expression(part, number) for number, part in enumerate(self._parts)))
        self._pattern = pattern

    def format(self, moment: dt.datetime) -> str:
        """A moment as text."""
        return "".join(_written(part, moment) for part in self._parts)

    def parse(self, text: str) -> dt.datetime:
        """A moment from text. Raises ValueError."""
        match = self._expression.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} does not follow {self._pattern}")
        read: dict[str, int] = {}
        offset = dt.timedelta(0)
        for number, part in enumerate(self._parts):
            if part.letter in ("Z", "X", "z"):
                offset = _offset(match[f"p{number}"])
            elif part.letter:
                read[part.letter] = _number(part, match[f"p{number}"])
        return _moment(read) - offset


def _part(match: re.Match[str]) -> _Part:
    whole = match[0]
    if match[2] is None:
        quoted = match[1]
        return _Part("", 0, whole if quoted is None else quoted.replace("''", "'") or "'")
    if match[2] not in _LETTERS:
        raise ValueError(f"the letter {match[2]!r} in a date pattern is not supported")
    return _Part(match[2], len(whole), whole)


def _written(part: _Part, moment: dt.datetime) -> str:
    letter, length = part.letter, part.length
    if letter == "":
        return part.text
    if letter in "yu":
        return f"{moment.year % 100:02d}" if length == 2 else f"{moment.year:0{length}d}"
    if letter == "M" and length > 2:
        return _MONTHS[moment.month - 1][: None if length > 3 else 3]
    if letter == "E":
        return _DAYS[moment.weekday()][: None if length > 3 else 3]
    if letter == "a":
        return "AM" if moment.hour < 12 else "PM"
    if letter == "S":
        return f"{moment.microsecond // 1000:0{length}d}"
    if letter in "Zz":
        return "+0000" if letter == "Z" else "UTC"
    if letter == "X":
        return "Z"
    numbers = {
        "M": moment.month,
        "d": moment.day,
        "H": moment.hour,
        "h": (moment.hour - 1) % 12 + 1,
        "k": (moment.hour - 1) % 24 + 1,
        "m": moment.minute,
        "s": moment.second,
        "D": moment.timetuple().tm_yday,
    }
    return f"{numbers[letter]:0{length}d}"


def _expression(part: _Part, number: int) -> str:
    letter, length = part.letter, part.length
    if letter == "":
        return re.escape(part.text)
    if letter in "ZXz":
        inner = r"Z|UTC|GMT|[+-]\d\d(?::?\d\d)?"
    elif letter in "Ea" or (letter == "M" and length > 2):
        inner = r"[A-Za-z]+"
    elif letter in "yu":
        inner = r"\d{2}" if length == 2 else r"\d{4,}"
    else:
        inner = rf"\d{{{length}}}" if length > 1 else r"\d+"
    return f"(?P<p{number}>{inner})"


def _number(part: _Part, text: str) -> int:
    if part.letter == "M" and part.length > 2:
        for number, name in enumerate(_MONTHS, 1):
            if name.lower().startswith(text.lower()[:3]):
                return number
        raise ValueError(f"{text!r} is no month")
    if part.letter == "E":
        return 0
    if part.letter == "a":
        return int(text.upper() == "PM")
    if part.letter in "yu" and part.length == 2:
        return 2000 + int(text)
    return int(text)


def _moment(read: dict[str, int]) -> dt.datetime:
    hour = read.get("H", read.get("k", 0) % 24)
    if "h" in read:
        hour = read["h"] % 12 + 12 * read.get("a", 0)
    day = dt.datetime(read.get("y", read.get("u", 1970)), read.get("M", 1), read.get("d", 1), tzinfo=dt.UTC)
    if "D" in read:
        day += dt.timedelta(days=read["D"] - 1)
    return day + dt.timedelta(
        hours=hour, minutes=read.get("m", 0), seconds=read.get("s", 0), milliseconds=read.get("S", 0)
    )


def _offset(text: str) -> dt.timedelta:
    if text in ("Z", "UTC", "GMT"):
        return dt.timedelta(0)
    digits = text[1:].replace(":", "").ljust(4, "0")
    length = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -length if text[0] == "-" else length
