"""Numbers as Java prints them, and strings as Jackson escapes them: what makes JSON equal byte for byte."""

import re
import struct
from decimal import Decimal
from json.encoder import encode_basestring  # in C, where there is one
from typing import Final

_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")
_LOWER_HEX: Final = re.compile(r"\\u00([01][a-f])")


class Raw(str):
    """JSON already: not to be quoted."""

    __slots__ = ()


def quoted(text: str) -> str:
    """A JSON string; characters beyond ASCII stand as they are, those beyond U+FFFF as two escapes."""
    plain = encode_basestring(text)
    if "\\u00" in plain:  # Python writes \u001f, Jackson \u001F
        plain = _LOWER_HEX.sub(lambda match: f"\\u00{match[1].upper()}", plain)
    if not plain.isascii() and _ASTRAL.search(plain) is not None:
        plain = _ASTRAL.sub(_as_surrogates, plain)
    return plain


def _as_surrogates(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex().upper()
    return f"\\u{units[:4]}\\u{units[4:]}"


def double(number: float) -> str:
    """`Double.toString`, with the quotes that Jackson gives to what is no number in JSON."""
    if number != number or number in (float("inf"), float("-inf")):
        return '"NaN"' if number != number else '"Infinity"' if number > 0 else '"-Infinity"'
    return _java(repr(number), number)


def single(number: float) -> str:
    """`Float.toString` of the nearest number with 32 bits."""
    if number != number or number in (float("inf"), float("-inf")):
        return double(number)
    try:
        packed = struct.pack(">f", number)
    except OverflowError:
        return double(float("inf") if number > 0 else float("-inf"))
    rounded = struct.unpack(">f", packed)[0]
    if rounded == 0 or rounded in (float("inf"), float("-inf")):
        return double(rounded)
    for digits in range(1, 10):
        text = f"{rounded:.{digits}g}"
        if struct.pack(">f", float(text)) == packed:
            break
    return _java(text, rounded)


def _java(text: str, number: float) -> str:
    magnitude = abs(number)
    if magnitude == 0:
        return "-0.0" if text.startswith("-") else "0.0"
    if Decimal(text).as_tuple().digits[1:] in ((), (0,)):  # of two digits Java takes the nearest
        nearest = f"{number:.1e}"
        text = nearest if float(nearest) == number or abs(number) < 1e-40 else text
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits)).rstrip("0") or "0"
    scale = exponent + len(digits)  # the value is 0.written times ten to this
    minus = "-" if sign else ""
    if 1e-3 <= magnitude < 1e7:
        if scale <= 0:
            return f"{minus}0.{'0' * -scale}{written}"
        whole = written[:scale].ljust(scale, "0")
        return f"{minus}{whole}.{written[scale:] or '0'}"
    return f"{minus}{written[0]}.{written[1:] or '0'}E{scale - 1}"
