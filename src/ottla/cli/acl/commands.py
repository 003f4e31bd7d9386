"""`ottla acl`: list access rules, add and remove them, grant and revoke roles, explain decisions, suggest rules."""

from collections.abc import Callable

import click

from ottla.cli.acl.roles import ROLES, IncompleteRole, bindings_of, principal_of
from ottla.cli.acl.rules import KINDS, host_option, only, print_rules
from ottla.cli.acl.single import add, remove
from ottla.cli.acl.suggest import suggest
from ottla.cli.acl.why import why
from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.terminal.output import json_option, note, plural
from ottla.security.acls import AclBinding, AclFilter, PatternType
from ottla.security.authorization import ResourceType


@click.group(cls=Verbs)
def command() -> None:
    """List access rules, grant and revoke them, explain decisions."""


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
    print_rules(found, as_json=as_json, empty="there are no such rules")


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
    print_rules(new, as_json=as_json, empty="all of these rules are there already")
    note(f"{plural(len(new), 'rule')} {'would be added' if dry_run else 'added'}")


@command.command()
@_role_options
def revoke(connection: Connection, dry_run: bool, as_json: bool, **role: object) -> None:
    """Take the rules of a ROLE away from a user. Rules with other patterns or hosts stay."""
    wanted = set(_wanted(**role))  # type: ignore[arg-type] # click has checked them
    with connection.broker_admin() as admin:
        gone = [binding for binding in admin.list_acls() if binding in wanted]
        if gone and not dry_run:
            admin.delete_acls([only(binding) for binding in gone])
    print_rules(gone, as_json=as_json, empty="none of these rules is there")
    note(f"{plural(len(gone), 'rule')} {'would be removed' if dry_run else 'removed'}")


command.add_command(why)
command.add_command(add)
command.add_command(remove)
command.add_command(suggest)
