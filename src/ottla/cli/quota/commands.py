"""`ottla quota`: list and set quotas of users, client ids and addresses, and show what is used of them."""

import math
from collections.abc import Callable
from typing import Final

import click

from ottla.admin import EntityQuotas, QuotaEntity, UnsupportedRequest
from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.terminal import exits, suggest
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import Row, columns_of, json_option, note, plural, print_json, print_rows

QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
ANY: Final = ""
DEFAULT: Final = "<any>"
"""How the default is printed; in JSON, too, where null means that nothing is named."""
REMOVED: Final = "none"


@click.group(cls=Verbs)
def command() -> None:
    """List and set quotas of users, clients and addresses, show their use."""


def _entity_options(function: Callable[..., object]) -> Callable[..., object]:
    """Options that name an entity."""
    for decorate in reversed(
        (
            click.option("--user", metavar="NAME", help="A user."),
            click.option("--any-user", is_flag=True, help="All users without a quota of their own."),
            click.option("--client", metavar="ID", help="A client id."),
            click.option("--any-client", is_flag=True, help="All client ids without a quota of their own."),
            click.option("--ip", metavar="ADDRESS", help="An address."),
            click.option("--any-ip", is_flag=True, help="All addresses without a quota of their own."),
        )
    ):
        function = decorate(function)
    return function


def _entity(**options: str | bool | None) -> QuotaEntity:
    """The entity that the options name."""
    names: list[str | None] = []
    for kind in ("user", "client", "ip"):
        name, is_default = options[kind], bool(options[f"any_{kind}"])
        if name is not None and is_default:
            raise click.UsageError(f"--{kind} and --any-{kind} exclude each other")
        if name == "":
            raise click.UsageError(f"--{kind} is empty")
        names.append(ANY if is_default else None if name is None else str(name))
    entity = QuotaEntity(*names)
    if entity.ip is not None and entity != QuotaEntity(ip=entity.ip):
        raise click.UsageError("an address has quotas of its own: name it alone")
    return entity


def _name(name: str | None) -> str | None:
    return DEFAULT if name == ANY else name


def _named(entity: QuotaEntity) -> Row:
    return {"user": _name(entity.user), "client": _name(entity.client_id), "ip": _name(entity.ip)}


@command.command(name="list")
@_entity_options
@json_option
@connection_options
def list_(connection: Connection, /, as_json: bool, **options: str | bool | None) -> None:
    """Show quotas: all, or those of the entities that the options name. Each is per second and broker."""
    wanted = _entity(**options)
    with connection.broker_admin() as admin:
        found = [each for each in admin.list_quotas() if _is_wanted(each, wanted)]
    rows: list[Row] = [
        {**_named(each.entity), "quota": quota, "value": value}
        for each in found
        for quota, value in sorted(each.quotas.items())
    ]
    if as_json:
        print_json(rows)
        return
    shown = [{**row, "value": _number(row["value"])} for row in rows]
    print_rows(shown, columns_of("user~ client~ ip quota value=PER_SECOND#"), empty="there are no quotas")


def _is_wanted(each: EntityQuotas, wanted: QuotaEntity) -> bool:
    pairs = (
        (wanted.user, each.entity.user),
        (wanted.client_id, each.entity.client_id),
        (wanted.ip, each.entity.ip),
    )
    return all(name is None or name == there for name, there in pairs)


def _number(value: object) -> str:
    """As a table shows it: whole where it is."""
    assert isinstance(value, float)
    return str(int(value)) if value.is_integer() and value < 1e15 else f"{value:.6g}"


@command.command(name="set")
@click.argument("assignments", metavar="QUOTA=VALUE...", nargs=-1, required=True)
@_entity_options
@click.option("--dry-run", is_flag=True, help="Let the broker check, and change nothing.")
@json_option
@connection_options
def set_(
    connection: Connection,
    /,
    assignments: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **options: str | bool | None,
) -> int:
    """Set quotas of a user, a client id, both, or an address: all that are given, or none. `QUOTA=none` removes one.

    producer_byte_rate and consumer_byte_rate are bytes per second, request_percentage is percent of one core,
    controller_mutation_rate partitions per second, and connection_creation_rate, of an address, connections per second.
    """
    entity = _entity(**options)
    if entity == QuotaEntity():
        raise click.UsageError("name whose quota it is: --user, --client, both, or --ip; or --any-user, ...")
    wanted = dict(map(_assignment, assignments))
    if len(wanted) < len(assignments):
        raise click.UsageError("a quota is given twice")
    with connection.broker_admin() as admin:
        before = next((each.quotas for each in admin.list_quotas() if each.entity == entity), {})
        admin.alter_quotas(entity, wanted, validate_only=dry_run)
    rows: list[Row] = [{"quota": quota, "before": before.get(quota), "after": value} for quota, value in wanted.items()]
    if as_json:
        print_json(rows)
    else:
        shown = [
            {key: _number(value) if isinstance(value, float) else value for key, value in row.items()} for row in rows
        ]
        print_rows(shown, columns_of("quota before# after#"), empty="")
    note(f"{entity}: {plural(len(wanted), 'quota')} {'could be changed' if dry_run else 'changed'}")
    return exits.OK


def _assignment(text: str) -> tuple[str, float | None]:
    quota, given, value = text.partition("=")
    if quota not in QUOTAS:
        raise click.UsageError(f"there is no quota {quota!r}{suggest.did_you_mean_or_list(quota, list(QUOTAS))}")
    if value == REMOVED:
        return quota, None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not given or not number > 0 or math.isinf(number):
        raise click.UsageError(f"{text!r} is not QUOTA=VALUE with a number above 0, or {quota}={REMOVED}")
    return quota, number


@command.command()
@click.option("--most", metavar="COUNT", type=click.IntRange(1, 1000), default=100, help="Rows for each broker (100).")
@json_option
@connection_options
def top(connection: Connection, most: int, as_json: bool) -> None:
    """Show what clients use of their quotas now on each broker, the largest part first. Needs Ottla's brokers."""
    with connection.broker_admin() as admin:
        try:
            found = admin.list_quota_use(most)
        except UnsupportedRequest as unsupported:
            raise CommandFailed(
                "these brokers do not show the use of quotas; Kafka's have it in JMX alone: kafka.server:type=Produce,"
                "Fetch,Request or ControllerMutation"
            ) from unsupported
    rows: list[Row] = [
        {
            "broker": each.broker,
            "user": _name(each.entity.user),
            "client": _name(each.entity.client_id),
            "quota": each.quota,
            "used": each.used_per_s,
            "limit": each.limit_per_s,
            "percent": each.used_per_s / each.limit_per_s * 100,
            "throttled_ms": each.throttled_ms,
        }
        for each in found
    ]
    if as_json:
        print_json(rows)
        return
    shown = [
        {key: _rounded(value) if isinstance(value, float) else value for key, value in row.items()} for row in rows
    ]
    columns = columns_of("broker# user~ client~ quota used=USED_PER_SECOND# limit=LIMIT# percent=%# throttled_ms#")
    print_rows(shown, columns, empty="no client with a quota has used anything lately")


def _rounded(value: float) -> str:
    return str(round(value)) if value >= 100 else f"{value:.3g}"
