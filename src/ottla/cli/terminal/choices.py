"""Options whose values are Kafka's names, such as the states of groups, or times."""

import time
from collections.abc import Callable, Collection
from typing import Final

import click

from ottla.cli.terminal.suggest import did_you_mean_or_list
from ottla.cli.terminal.times import parse_duration_ms, parse_instant_ms

Convert = Callable[[click.Context, click.Parameter, str | None], int | None]


def _milliseconds(parse: Callable[[str], int]) -> Convert:
    """A callback of options whose text becomes a number of milliseconds."""

    def convert(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
        try:
            return None if value is None else parse(value)
        except ValueError as unclear:
            raise click.BadParameter(str(unclear), context, parameter) from None

    return convert


INSTANT: Final = _milliseconds(lambda text: parse_instant_ms(text, time.time_ns() // 1_000_000))
"""A point in time, since 1970: `10m` or `2h` (ago), or ISO 8601."""
DURATION: Final = _milliseconds(parse_duration_ms)
"""A length of time: `90s`, `1h30m`."""


def one_of(given: str, known: Collection[str], what: str) -> str:
    """The known name that was given, in upper or lower case. Raises UsageError with the nearest one, or all."""
    for name in known:
        if name.lower() == given.lower():
            return name
    raise click.UsageError(f"no such {what}: {given!r}{did_you_mean_or_list(given, known)}")
