"""`ottla acl add` and `ottla acl remove`: one rule, as `kafka-acls.sh` does."""

from collections.abc import Callable

import click

from ottla.cli.acl.roles import principal_of
from ottla.cli.acl.rules import KINDS, OPERATIONS, host_option, only, operation_on, print_rules, resource_name
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.terminal.output import json_option, note, plural
from ottla.security.acls import AccessRule, AclBinding, PatternType, PermissionType, ResourcePattern


def _rule_options(function: Callable[..., object]) -> Callable[..., object]:
    for decorate in reversed(
        (
            click.argument("permission", type=click.Choice(["allow", "deny"])),
            click.argument("user"),
            click.argument("operation", type=click.Choice(list(OPERATIONS)), metavar="OPERATION"),
            click.argument("kind", type=click.Choice(list(KINDS)), metavar="KIND"),
            click.argument("name", required=False),
            click.option("--prefix", "prefixed", is_flag=True, help="The name stands for all that begin so."),
            host_option,
            click.option("--dry-run", is_flag=True, help="Show the rule, and change nothing."),
            json_option,
            connection_options,
        )
    ):
        function = decorate(function)
    return function


def _binding(
    permission: str, user: str, operation: str, kind: str, name: str | None, prefixed: bool, host: str
) -> AclBinding:
    resource = KINDS[kind]
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(
        ResourcePattern(resource, resource_name(resource, name), pattern),
        AccessRule(principal_of(user), host, operation_on(resource, operation), PermissionType[permission.upper()]),
    )


@click.command()
@_rule_options
def add(connection: Connection, dry_run: bool, as_json: bool, **rule: object) -> None:
    """Add a rule: PERMISSION (allow or deny) for USER to do OPERATION with a resource of a KIND."""
    binding = _binding(**rule)  # type: ignore[arg-type] # click has checked them
    with connection.broker_admin() as admin:
        is_there = binding in admin.list_acls(only(binding))
        if not is_there and not dry_run:
            admin.create_acls([binding])
    print_rules([] if is_there else [binding], as_json=as_json, empty="this rule is there already")
    note(f"{plural(int(not is_there), 'rule')} {'would be added' if dry_run else 'added'}")


@click.command()
@_rule_options
def remove(connection: Connection, dry_run: bool, as_json: bool, **rule: object) -> None:
    """Remove a rule: PERMISSION (allow or deny) for USER to do OPERATION with a resource of a KIND."""
    binding = _binding(**rule)  # type: ignore[arg-type] # click has checked them
    with connection.broker_admin() as admin:
        found = admin.list_acls(only(binding))
        if found and not dry_run:
            admin.delete_acls([only(binding)])
    print_rules(found, as_json=as_json, empty="there is no such rule; `ottla acl list` shows all")
    note(f"{plural(len(found), 'rule')} {'would be removed' if dry_run else 'removed'}")
