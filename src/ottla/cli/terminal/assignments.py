"""`KEY=VALUE` on the command line."""

from collections.abc import Iterable

import click


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` arguments as a mapping. Raises click.UsageError."""
    parsed = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{assignment!r} is not KEY=VALUE")
        parsed[key.strip()] = value.strip()
    return parsed
