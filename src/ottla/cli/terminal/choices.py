"""Options whose values are Kafka's names, such as the states of groups."""

from collections.abc import Collection

import click

from ottla.cli.terminal.suggest import did_you_mean_or_list


def one_of(given: str, known: Collection[str], what: str) -> str:
    """The known name that was given, in upper or lower case. Raises UsageError with the nearest one, or all."""
    for name in known:
        if name.lower() == given.lower():
            return name
    raise click.UsageError(f"no such {what}: {given!r}{did_you_mean_or_list(given, known)}")
