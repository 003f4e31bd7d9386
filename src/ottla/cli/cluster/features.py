"""`ottla cluster features`: the feature levels of the cluster, and how to change them (KIP-584)."""

from collections.abc import Mapping

import click

from ottla.admin import Feature
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.terminal import suggest
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import Row, columns_of, json_option, note, print_json, print_rows


@click.command()
@click.argument("changes", metavar="[NAME=LEVEL]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Have the broker check the changes, and make none.")
@json_option
@connection_options
def features(connection: Connection, changes: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Show the feature levels of the cluster, or change some: all that are given, or none.

    What is finalized decides which generation of a protocol clients speak: transaction.version=2 is that of KIP-890,
    group.version=1 that of KIP-848, share.version=1 that of KIP-932,
    streams.version=1 that of KIP-1071. 0 turns a feature off.
    """
    wanted = dict(_parsed(change) for change in changes)
    with connection.broker_admin() as admin:
        found = admin.describe_features()
        if wanted:
            for name in wanted:
                if name not in found:
                    raise CommandFailed(f"there is no feature {name!r}{suggest.did_you_mean_or_list(name, found)}")
            admin.update_features(wanted, dry_run=dry_run)
            if dry_run:
                note("nothing was changed: the broker would take this")
                return
            found = admin.describe_features()
    if as_json:
        print_json(_rows(found))
        return
    columns = columns_of("feature level# lowest# highest#")
    print_rows(_rows(found), columns)


def _parsed(change: str) -> tuple[str, int]:
    name, separator, level = change.partition("=")
    if not name or not separator or not level.isdecimal():
        raise click.UsageError(f"a feature level is given as NAME=LEVEL, such as transaction.version=2, not {change!r}")
    return name, int(level)


def _rows(found: Mapping[str, Feature]) -> list[Row]:
    return [
        {"feature": name, "level": each.level, "lowest": each.lowest, "highest": each.highest}
        for name, each in found.items()
    ]
