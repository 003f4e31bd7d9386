"""One setting: its name, type, default and limits, and how its values are read and written.

Value syntax and the wording of a refused value are Kafka's (`ConfigDef`), so that clients which show them show what
they always did.
"""

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from ottla.errors import InvalidConfig

Value = bool | int | float | str | tuple[str, ...] | None
"""A setting's value once it is read: a LIST is a tuple, an unset one is None."""


class Kind(Enum):
    """Type of a setting; the value is its number in DescribeConfigs (KIP-569)."""

    UNKNOWN = 0
    """The type of an unknown setting: its value may be a secret, and is not described."""
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Change(Enum):
    """How a broker's setting can be changed while it runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Limit(Protocol):
    """What values a setting takes, beyond its type."""

    def problem(self, value: Value) -> str | None:
        """The reason why `value` is invalid, in Kafka's words; None when it is valid."""
        ...

    def describe(self) -> str:
        """For documentation."""
        ...


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included; None leaves that side open."""

    low: float | None
    high: float | None = None

    def problem(self, value: Value) -> str | None:
        if not isinstance(value, (int, float)):
            return "Value must be non-null" if value is None else None
        if self.low is not None and value < self.low:
            return f"Value must be at least {render_number(self.low)}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {render_number(self.high)}"
        return None

    def describe(self) -> str:
        low = "..." if self.low is None else render_number(self.low)
        return f"{low} or more" if self.high is None else f"{low} to {render_number(self.high)}"


class OneOf(NamedTuple):
    """One of some words; each element of a LIST is one of them."""

    words: tuple[str, ...]
    any_case: bool = False

    def problem(self, value: Value) -> str | None:
        words = {word.lower() for word in self.words} if self.any_case else set(self.words)
        given: Sequence[str] = value if isinstance(value, tuple) else (str(value),)
        if all((word.lower() if self.any_case else word) in words for word in given):
            return None
        return f"String must be one of{' (case insensitive)' if self.any_case else ''}: {', '.join(self.words)}"

    def describe(self) -> str:
        return ", ".join(self.words)


class GzipLevel:
    """Levels of gzip: 1 to 9, and -1 for the library's own choice."""

    def problem(self, value: Value) -> str | None:
        """Why a value is no level of gzip; None if it is one."""
        if isinstance(value, int) and (1 <= value <= 9 or value == -1):
            return None
        return "Value must be between 1 and 9 or equal to -1"

    def describe(self) -> str:
        return "1 to 9, or -1"


class NotEmpty:
    """A string that may be unset but not empty."""

    def problem(self, value: Value) -> str | None:
        return None if value is None or value else "String must be non-empty"

    def describe(self) -> str:
        return "not empty"


class ThrottledReplicas:
    """`partition:broker,...`, or `*` for all, as replication throttling writes its lists."""

    def problem(self, value: Value) -> str | None:
        """Why a value lists no throttled replicas (KIP-73), with `{}` for the setting's name; None if it does."""
        entries = value if isinstance(value, tuple) else ()
        text = ",".join(entries)
        if not entries or text.strip() == "*" or all(re.fullmatch(r"[0-9]+:[0-9]+", entry) for entry in entries):
            return None
        return (
            "{} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

    def describe(self) -> str:
        return "* or partition:broker,..."


class Networks:
    """Networks in CIDR notation, or single addresses."""

    def problem(self, value: Value) -> str | None:
        """Why a value is no list of networks; None if it is one."""
        from ipaddress import ip_network

        try:
            for word in value if isinstance(value, tuple) else ():
                ip_network(word, strict=False)
        except ValueError:
            return "String must be networks such as 10.1.0.0/16, comma-separated"
        return None

    def describe(self) -> str:
        return "networks"


class Setting(NamedTuple):
    """Declaration of one setting; `default` is written as in a properties file."""

    name: str
    kind: Kind
    default: str | None
    doc: str
    limit: Limit | None = None
    change: Change = Change.READ_ONLY
    acted_on: bool = True
    internal: bool = False
    """Kafka keeps it out of its documentation and of DescribeConfigs unless it was set."""

    @property
    def attribute(self) -> str:
        """The name of its attribute in `BrokerConfig`."""
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        return self.kind in (Kind.PASSWORD, Kind.UNKNOWN)

    @property
    def unit(self) -> str:
        """The unit its name ends in, or nothing."""
        return _UNITS.get(self.name.rpartition(".")[2], "")

    def parse(self, text: str | None) -> Value:
        """Read a value; raises `InvalidConfig` that names the setting and its valid values."""
        value = parse_value(self.name, self.kind, text)
        if self.limit is not None and not (value is None and self.default is None):
            problem = self.limit.problem(value)
            if problem is not None:
                shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else render_value(value)
                if isinstance(value, tuple) and isinstance(self.limit, OneOf):
                    shown = next((word for word in value if self.limit.problem(word) is not None), shown)
                raise invalid_value(self.name, shown, problem.replace("{}", self.name))
        return value


_UNITS: Final = {
    "ms": "ms",
    "millis": "ms",
    "seconds": "s",
    "secs": "s",
    "minutes": "min",
    "hours": "h",
    "bytes": "bytes",
    "second": "bytes/s",
}

_BITS: Final = {Kind.SHORT: 15, Kind.INT: 31, Kind.LONG: 63}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


def parse_value(name: str, kind: Kind, text: str | None) -> Value:
    """Read a value of some type, limits aside; raises `InvalidConfig`."""
    if text is None:
        return None
    trimmed = text.strip()
    if kind is Kind.BOOLEAN:
        lowered = trimmed.lower()
        if lowered == "true":
            return True
        if lowered == "false":
            return False
        raise invalid_value(name, text, "Expected value to be either true or false")
    bits = _BITS.get(kind)
    if bits is not None:
        if _INTEGER.fullmatch(trimmed) is None or not -(1 << bits) <= (number := int(trimmed)) < 1 << bits:
            raise invalid_value(name, text, f"Not a number of type {kind.name}")
        return number
    if kind is Kind.DOUBLE:
        try:
            return float(trimmed)
        except ValueError:
            raise invalid_value(name, text, f"Not a number of type {kind.name}") from None
    if kind is Kind.LIST:
        return tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
    return trimmed


def invalid_value(name: str, text: str | None, problem: str) -> InvalidConfig:
    """The refusal of one value, in Kafka's form."""
    return InvalidConfig(f"Invalid value {text} for configuration {name}: {problem}")


def render_value(value: Value) -> str | None:
    """Write a value as Kafka writes it in DescribeConfigs."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, (int, float)):
        return render_number(value)
    return value


def render_number(number: float) -> str:
    """Write a number as Java does: `0.5`, `1.0`, `1.7976931348623157E308`."""
    if isinstance(number, int):
        return str(number)
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(float(number))
    digits, _, exponent = f"{number!r}".partition("e")
    if not exponent:
        digits, _, exponent = f"{number:.17e}".partition("e")
        digits = digits.rstrip("0")
        for precision in range(17):
            shorter = f"{number:.{precision}e}"
            if float(shorter) == number:
                digits, _, exponent = shorter.partition("e")
                break
    if "." not in digits:
        digits += ".0"
    return f"{digits}E{int(exponent)}"
