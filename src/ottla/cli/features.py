"""`ottla cluster features`: the feature levels of the cluster, and how to change them (KIP-584)."""

import click

from ottla.cli import suggest
from ottla.cli.client import Connection, connection_options
from ottla.cli.exits import CommandFailed
from ottla.cli.output import Column, Row, json_option, note, print_json, print_rows
from ottla.cli.requests import CLIENT_SOFTWARE, Requests, refusal
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE_DOWNGRADE = 1, 2


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
    wanted = [_parsed(change) for change in changes]
    with Requests(connection) as requests:
        found = _levels(requests)
        if wanted:
            _change(requests, found, wanted, dry_run=dry_run)
            if dry_run:
                note("nothing was changed: the broker would take this")
                return
            found = _levels(requests)
    if as_json:
        print_json(found)
        return
    columns = (
        Column("feature", "FEATURE"),
        Column("level", "LEVEL", figures=True),
        Column("lowest", "LOWEST", figures=True),
        Column("highest", "HIGHEST", figures=True),
    )
    print_rows(found, columns)


def _parsed(change: str) -> tuple[str, int]:
    name, separator, level = change.partition("=")
    if not name or not separator or not level.isdecimal():
        raise click.UsageError(f"a feature level is given as NAME=LEVEL, such as transaction.version=2, not {change!r}")
    return name, int(level)


def _levels(requests: Requests) -> list[Row]:
    answer = requests.ask(ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE, client_software_version="1"))
    if answer.error_code:
        raise CommandFailed(f"the broker does not say what its features are: {refusal(answer.error_code)}")
    finalized = {key.name: key.max_version_level for key in answer.finalized_features}
    supported = sorted(answer.supported_features, key=lambda key: str(key.name))
    return [
        {
            "feature": key.name,
            "level": finalized.get(key.name, 0),
            "lowest": key.min_version,
            "highest": key.max_version,
        }
        for key in supported
    ]


def _change(requests: Requests, found: list[Row], wanted: list[tuple[str, int]], *, dry_run: bool) -> None:
    current = {str(row["feature"]): row["level"] for row in found}
    updates = []
    for name, level in wanted:
        if name not in current:
            raise CommandFailed(f"there is no feature {name!r}{suggest.did_you_mean(name, current)}")
        lowered = level < int(str(current[name]))
        updates.append(
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=SAFE_DOWNGRADE if lowered else UPGRADE)
        )
    answer = requests.ask(UpdateFeaturesRequest(feature_updates=updates, validate_only=dry_run))
    if answer.error_code:
        raise CommandFailed(f"no level was changed: {refusal(answer.error_code, answer.error_message)}")
