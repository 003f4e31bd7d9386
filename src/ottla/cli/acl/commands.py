"""`ottla acl`: list access rules, grant and revoke roles, and explain decisions."""

from collections.abc import Callable
from typing import Final

import click

from ottla.cli.acl.roles import ROLES, IncompleteRole, bindings_of, principal_of
from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.terminal import exits
from ottla.cli.terminal.output import Row, columns_of, json_option, note, plural, print_json, print_rows
from ottla.security.acls import (
    CLUSTER_NAME,
    IMPLYING,
    SUPPORTED,
    WILDCARD,
    AclBinding,
    AclFilter,
    PatternType,
    StandardAuthorizer,
)
from ottla.security.authorization import Operation, ResourceType

KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}
OPERATIONS: Final = {
    operation.name.lower().replace("_", "-"): operation for operations in SUPPORTED.values() for operation in operations
}

host_option = click.option(
    "--host", metavar="ADDRESS", default=WILDCARD, help="The address of the client; default any."
)


@click.group(cls=Verbs)
def command() -> None:
    """List access rules, grant and revoke roles, explain decisions."""


def _row(binding: AclBinding) -> Row:
    resource, rule = binding
    return {
        "principal": rule.principal,
        "permission": rule.permission.name.lower(),
        "operation": rule.operation.name.lower().replace("_", "-"),
        "kind": resource.type.name.lower().replace("_", "-"),
        "name": resource.name,
        "pattern": resource.pattern.name.lower(),
        "host": rule.host,
    }


def _print(bindings: list[AclBinding], *, as_json: bool, empty: str) -> None:
    rows = [_row(binding) for binding in bindings]
    if as_json:
        print_json(rows)
        return
    print_rows(rows, columns_of("principal permission operation kind name~ pattern host"), empty=empty)


@command.command(name="list")
@click.option("--user", metavar="NAME", help="Rules of this user alone.")
@click.option("--kind", type=click.Choice(list(KINDS)), help="Rules of this kind of resource.")
@click.option("--name", metavar="NAME", help="Rules that apply to a resource of this name, patterns included.")
@json_option
@connection_options
def list_(connection: Connection, user: str | None, kind: str | None, name: str | None, as_json: bool) -> None:
    """Show access rules: all, or those that the options name."""
    wanted = AclFilter(
        KINDS[kind] if kind else ResourceType.ANY,
        name,
        PatternType.ANY if name is None else PatternType.MATCH,
        None if user is None else principal_of(user),
    )
    with connection.broker_admin() as admin:
        found = admin.list_acls(wanted)
    _print(found, as_json=as_json, empty="there are no such rules")


def _role_options(function: Callable[..., object]) -> Callable[..., object]:
    """What `grant` and `revoke` have in common."""
    for decorate in reversed(
        (
            click.argument("role", type=click.Choice(ROLES)),
            click.argument("user"),
            click.option("--topic", "topics", metavar="NAME", multiple=True, help="A topic, or *; repeatable."),
            click.option("--group", "groups", metavar="NAME", multiple=True, help="A group, or *; repeatable."),
            click.option(
                "--transactional-id", "transactional_ids", metavar="ID", multiple=True, help="An id; repeatable."
            ),
            click.option("--prefix", "prefixed", is_flag=True, help="The names stand for all that begin so."),
            host_option,
            click.option("--dry-run", is_flag=True, help="Show the rules, and change nothing."),
            json_option,
            connection_options,
        )
    ):
        function = decorate(function)
    return function


def _wanted(
    role: str,
    user: str,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    prefixed: bool,
    host: str,
) -> list[AclBinding]:
    try:
        return bindings_of(role, user, topics, groups, transactional_ids, prefixed=prefixed, host=host)
    except IncompleteRole as problem:
        raise click.UsageError(str(problem)) from problem


@command.command()
@_role_options
def grant(connection: Connection, dry_run: bool, as_json: bool, **role: object) -> None:
    """Give a user the rules of a ROLE: producer, consumer or admin."""
    wanted = _wanted(**role)  # type: ignore[arg-type] # click has checked them
    with connection.broker_admin() as admin:
        there = set(admin.list_acls())
        new = [binding for binding in wanted if binding not in there]
        if new and not dry_run:
            admin.create_acls(new)
    _print(new, as_json=as_json, empty="all of these rules are there already")
    note(f"{plural(len(new), 'rule')} {'would be added' if dry_run else 'added'}")


@command.command()
@_role_options
def revoke(connection: Connection, dry_run: bool, as_json: bool, **role: object) -> None:
    """Take the rules of a ROLE away from a user. Rules with other patterns or hosts stay."""
    wanted = set(_wanted(**role))  # type: ignore[arg-type] # click has checked them
    with connection.broker_admin() as admin:
        gone = [binding for binding in admin.list_acls() if binding in wanted]
        if gone and not dry_run:
            admin.delete_acls([_only(binding) for binding in gone])
    _print(gone, as_json=as_json, empty="none of these rules is there")
    note(f"{plural(len(gone), 'rule')} {'would be removed' if dry_run else 'removed'}")


def _only(binding: AclBinding) -> AclFilter:
    resource, rule = binding
    return AclFilter(
        resource.type, resource.name, resource.pattern, rule.principal, rule.host, rule.operation, rule.permission
    )


@command.command()
@click.argument("user")
@click.argument("operation", type=click.Choice(list(OPERATIONS)), metavar="OPERATION")
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name", required=False)
@host_option
@json_option
@connection_options
def why(
    connection: Connection, user: str, operation: str, kind: str, name: str | None, host: str, as_json: bool
) -> int:
    """Explain whether USER may do OPERATION with a resource: the rule that decides, and what would change it.

    Exits with 1 for a refusal. Super users are in the brokers' settings: they may do everything, whatever the rules.
    """
    asked, resource = OPERATIONS[operation], KINDS[kind]
    if asked not in SUPPORTED[resource]:
        raise click.UsageError(f"there is no operation {operation} on a {kind}")
    if name is None:
        if resource is not ResourceType.CLUSTER:
            raise click.UsageError(f"name the {kind}")
        name = CLUSTER_NAME
    with connection.broker_admin() as admin:
        rules = admin.list_acls(AclFilter(resource, name, PatternType.MATCH))
    authorizer = StandardAuthorizer()
    for binding in rules:
        authorizer.set_rules(binding.resource, [*authorizer.rules(binding.resource), binding.rule])
    principal = principal_of(user)
    verdict = authorizer.verdict(principal, host, asked, resource, name)
    what = f"{principal} {'may' if verdict.allowed else 'may not'} {operation} {kind} {name}"
    if verdict.binding is not None:
        reason, change = f"by the rule: {verdict.binding}", ""
        if not verdict.allowed:
            change = "Remove that rule: deny goes before allow."
    else:
        reason = "no rule allows it" if rules else "no rule mentions it; allow.everyone.if.no.acl.found would decide"
        change = _granting(user, asked, kind, name)
    if as_json:
        print_json({"allowed": verdict.allowed, "rule": verdict.binding and _row(verdict.binding), "change": change})
    else:
        click.echo(f"{what}: {reason}")
        if change:
            note(change)
    return exits.OK if verdict.allowed else exits.FAILED


def _granting(user: str, operation: Operation, kind: str, name: str) -> str:
    if kind == "topic" and operation in (Operation.WRITE, Operation.CREATE):
        return f"To allow it: ottla acl grant producer {user} --topic {name}"
    if kind == "topic" and operation in (Operation.READ, *(IMPLYING[Operation.DESCRIBE] & {operation})):
        return f"To allow it: ottla acl grant consumer {user} --topic {name} --group GROUP"
    if kind == "group" and operation in (Operation.READ, Operation.DESCRIBE):
        return f"To allow it: ottla acl grant consumer {user} --topic TOPIC --group {name}"
    if kind == "transactional-id":
        return f"To allow it: ottla acl grant producer {user} --topic TOPIC --transactional-id {name}"
    return f"To allow it: ottla acl grant admin {user}, or a single rule by kafka-acls.sh"
