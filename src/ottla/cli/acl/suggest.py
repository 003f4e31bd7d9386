"""`ottla acl suggest`: rules for what the audit log has as refused."""

import glob
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from confluent_kafka.admin import ResourceType

from ottla.cli.acl.rules import row_of
from ottla.cli.acl.settings import authorizer_settings
from ottla.cli.acl.suggesting import Denials, LeftOut, Suggestions, read_denials, suggestions_for
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.brokers.settings import describe_settings
from ottla.cli.terminal.choices import DURATION
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import json_option, note, plural, print_json
from ottla.security.acls import AclBinding
from ottla.security.audit_events import time_text
from ottla.security.principals import ANONYMOUS

SETTING = "ottla.audit.file"
ABOUT_ANONYMOUS = (
    f"{ANONYMOUS} is every client that has proved no name: a rule for it opens what it names to all clients that "
    "reach a listener without logins"
)


@click.command()
@click.option(
    "--from-denials", "age_ms", required=True, metavar="DURATION", callback=DURATION, help="How far back: 1h, 30m, 7d."
)
@click.option(
    "--audit-log",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An audit log, with the older files beside it; repeatable. Default: the one that the brokers' settings name.",
)
@click.option("--user", metavar="NAME", help="Refusals of this user alone.")
@click.option("--offline", is_flag=True, help="Ask no broker, and take no rules into account that are there.")
@json_option
@connection_options
def suggest(
    connection: Connection,
    age_ms: int,
    files: tuple[Path, ...],
    user: str | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Suggest the fewest rules that allow what was refused, from an audit log.

    Clients choose what they ask for: look at each rule before you add it. Names are suggested as they are; prefixes are
    offered where many names share one, and allow more.
    """
    if offline and not files:
        raise click.UsageError("--offline needs --audit-log")
    since = time_text(time.time_ns() // 1_000_000 - age_ms)
    denials = read_denials(_lines(files or [_file_of_brokers(connection)]), since)
    rules: list[AclBinding] = []
    super_users: Iterable[str] = ()
    if not offline:
        with connection.broker_admin() as admin:
            rules = admin.list_acls()
        super_users = authorizer_settings(connection).super_users
    principal = None if user is None else user if ":" in user else f"User:{user}"
    asked = [denial for denial in denials.denials if principal in (None, denial.principal)]
    found = suggestions_for(asked, rules, frozenset(super_users))
    if as_json:
        print_json(_as_json(found, denials))
    else:
        _print(found, denials, len(asked))


def _file_of_brokers(connection: Connection) -> Path:
    admin = connection.admin()
    named = {
        describe_settings(connection, admin, ResourceType.BROKER, str(broker)).get(SETTING)
        for broker in connection.metadata(admin).brokers
    }
    values = sorted({entry.value for entry in named if entry is not None and entry.value})
    if not values:
        raise CommandFailed(f"the brokers keep no audit log ({SETTING}); set one, or name a file with --audit-log")
    files = [Path(value) for value in values if Path(value).is_file()]
    if len(values) > 1 or not files:
        raise CommandFailed(
            f"the brokers' audit logs are {', '.join(values)}, each at its broker: name those that are here with "
            "--audit-log"
        )
    return files[0]


def _lines(files: Iterable[Path]) -> Iterator[bytes]:
    """All lines, the oldest file first."""
    for file in files:
        numbered = [
            Path(name) for name in glob.glob(f"{glob.escape(str(file))}.*") if name.rpartition(".")[2].isdigit()
        ]
        for each in (*sorted(numbered, key=lambda path: -int(path.suffix[1:])), file):
            try:
                with each.open("rb") as opened:
                    yield from opened
            except FileNotFoundError:
                continue  # the broker has renamed it meanwhile
            except OSError as problem:
                raise CommandFailed(f"{each} cannot be read: {problem.strerror}") from problem


def _print(found: Suggestions, denials: Denials, count: int) -> None:
    warned = False
    for suggestion in found.suggestions:
        if suggestion.principal == ANONYMOUS and not warned:
            warned = True
            note(f"Careful: {ABOUT_ANONYMOUS}:")
        click.echo(suggestion.command)
    for offer in found.offers:
        note(f"{len(offer.names)} names of these begin with {offer.prefix!r}. For all that do, also those of others:")
        for command in offer.commands:
            note(f"  {command}")
        if offer.principal == ANONYMOUS:
            note(f"  Careful: {ABOUT_ANONYMOUS}")
    for denial, reason in found.left_out:
        what = f"{denial.operation.name} on {denial.kind.name} {denial.name!a}"
        note(f"No rule for {denial.principal!a}, refused {what}: {reason}")
    _print_gaps(denials)
    if not found.suggestions and not found.left_out:
        note("nothing was refused in this time" if not count else "the present rules allow all that was refused")


def _print_gaps(denials: Denials) -> None:
    if denials.suppressed:
        note(
            f"The log has no lines for {plural(denials.suppressed, 'further refusal')}: there were too many at a time."
        )
    if denials.unreadable:
        note(
            f"{plural(denials.unreadable, 'line')} could not be used: not of an audit log, or with a name that was cut."
        )


def _as_json(found: Suggestions, denials: Denials) -> dict[str, object]:
    return {
        "suggestions": [
            {
                "principal": each.principal,
                "command": each.command,
                "rules": [row_of(binding) for binding in each.bindings],
                "warning": ABOUT_ANONYMOUS if each.principal == ANONYMOUS else None,
            }
            for each in found.suggestions
        ],
        "offers": [
            {
                "principal": each.principal,
                "prefix": each.prefix,
                "names": each.names,
                "commands": each.commands,
                "rules": [row_of(binding) for binding in each.bindings],
                "warning": ABOUT_ANONYMOUS if each.principal == ANONYMOUS else None,
            }
            for each in found.offers
        ],
        "left_out": [_left_out(each) for each in found.left_out],
        "suppressed": denials.suppressed,
        "unreadable": denials.unreadable,
    }


def _left_out(one: LeftOut) -> dict[str, object]:
    denial, reason = one
    return {
        "principal": denial.principal,
        "operation": denial.operation.name,
        "kind": denial.kind.name,
        "name": denial.name,
        "reason": reason,
    }
