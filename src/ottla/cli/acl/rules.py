"""What the commands of `ottla acl` share: kinds and operations by name, rules as rows, as filters and as commands."""

import shlex
from typing import Final

import click

from ottla.cli.terminal.output import Row, columns_of, print_json, print_rows
from ottla.security.acls import CLUSTER_NAME, SUPPORTED, WILDCARD, AclBinding, AclFilter, PatternType
from ottla.security.authorization import Operation, ResourceType

KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
OPERATIONS: Final = {
    operation.name.lower().replace("_", "-"): operation for operations in SUPPORTED.values() for operation in operations
} | {"all": Operation.ALL}

host_option = click.option(
    "--host", metavar="ADDRESS", default=WILDCARD, help="The address of the client; default any."
)


def row_of(binding: AclBinding) -> Row:
    """A rule, for tables and JSON."""
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


def print_rules(bindings: list[AclBinding], *, as_json: bool, empty: str) -> None:
    """Print rules as a table or as JSON."""
    rows = [row_of(binding) for binding in bindings]
    if as_json:
        print_json(rows)
        return
    print_rows(rows, columns_of("principal permission operation kind name~ pattern host"), empty=empty)


def only(binding: AclBinding) -> AclFilter:
    """The filter that means this rule alone."""
    resource, rule = binding
    return AclFilter(
        resource.type, resource.name, resource.pattern, rule.principal, rule.host, rule.operation, rule.permission
    )


def words(name: str) -> str:
    """Kafka's name of an operation or of a kind of resource, as commands take it."""
    return name.lower().replace("_", "-")


def command_of(verb: str, binding: AclBinding) -> str:
    """The command that adds or removes a rule, quoted for a shell."""
    resource, rule = binding
    parts = ["ottla", "acl", verb, words(rule.permission.name), rule.principal, words(rule.operation.name)]
    parts.append(words(resource.type.name))
    options = []
    if resource.pattern is PatternType.PREFIXED:
        options.append("--prefix")
    if rule.host != WILDCARD:
        options += ["--host", rule.host]
    if resource.type is not ResourceType.CLUSTER:
        options += ["--", resource.name] if resource.name.startswith("-") else [resource.name]
    return shlex.join([*parts, *options])


def resource_name(kind: ResourceType, name: str | None) -> str:
    """The name of a resource, which the cluster alone has no need of. Raises click.UsageError."""
    if kind is ResourceType.CLUSTER:
        return CLUSTER_NAME
    if name is None:
        raise click.UsageError(f"name the {words(kind.name)}")
    return name


def operation_on(kind: ResourceType, operation: str) -> Operation:
    """An operation that this kind of resource knows. Raises click.UsageError."""
    known = OPERATIONS[operation]
    if known is not Operation.ALL and known not in SUPPORTED[kind]:
        raise click.UsageError(f"there is no operation {operation} on a {words(kind.name)}")
    return known
