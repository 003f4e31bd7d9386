"""`ottla acl why`: the rule or the setting that decides, and what would have to change for another answer."""

import shlex
from typing import NamedTuple

import click

from ottla.cli.acl.roles import principal_of
from ottla.cli.acl.rules import (
    KINDS,
    OPERATIONS,
    command_of,
    host_option,
    operation_on,
    resource_name,
    row_of,
)
from ottla.cli.acl.settings import AuthorizerSettings, authorizer_settings
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.terminal import exits
from ottla.cli.terminal.output import json_option, note, print_json
from ottla.security.acls import (
    WILDCARD,
    AccessRule,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
    ResourcePattern,
    StandardAuthorizer,
)
from ottla.security.authorization import Operation, ResourceType


class Explanation(NamedTuple):
    """Whether something is allowed, why, and what would change it."""

    allowed: bool
    reason: str
    rule: AclBinding | None
    changes: list[str]
    """Steps, in order: sentences with the commands."""


@click.command()
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

    Super users and allow.everyone.if.no.acl.found are read from the brokers' settings, which takes DESCRIBE_CONFIGS on
    the cluster. Exits with 1 for a refusal.
    """
    resource = KINDS[kind]
    asked, name = operation_on(resource, operation), resource_name(resource, name)
    with connection.broker_admin() as admin:
        rules = admin.list_acls(AclFilter(resource, name, PatternType.MATCH))
    principal = principal_of(user)
    settings = authorizer_settings(connection)
    found = explain(rules, settings, principal, host, asked, ResourcePattern(resource, name))
    if as_json:
        rule = None if found.rule is None else row_of(found.rule)
        members = {"allowed": found.allowed, "reason": found.reason, "rule": rule, "changes": found.changes}
        print_json(members | {"settings_known": settings.are_known})
    else:
        verb = "may" if found.allowed else "may not"
        click.echo(f"{principal} {verb} {operation} {kind} {name}: {found.reason}")
        for change in found.changes:
            note(change)
        if not settings.are_known:
            note(f"Super users are not known here: {settings.problem}. A super user may do everything.")
        if settings.own_authorizer:
            note(
                f"The authorizer {settings.own_authorizer} of the brokers decides, too; this is what the rules decide."
            )
    return exits.OK if found.allowed else exits.FAILED


def explain(
    rules: list[AclBinding],
    settings: AuthorizerSettings,
    principal: str,
    host: str,
    operation: Operation,
    resource: ResourcePattern,
) -> Explanation:
    """PURE. The decision by these rules, which are all that match the resource."""
    authorizer = StandardAuthorizer(allow_if_none=settings.allow_if_none or False)
    for binding in rules:
        authorizer.set_rules(binding.resource, [*authorizer.rules(binding.resource), binding.rule])
    asked = (principal, host, operation, resource.type, resource.name)
    if principal in settings.super_users:
        return Explanation(
            True, "it is a super user (super.users)", None, ["To refuse it: take it out of super.users, and restart"]
        )
    verdict = authorizer.verdict(*asked)
    applying = authorizer.applying(*asked)
    denying = [binding for binding in applying if binding.rule.permission is PermissionType.DENY]
    allowing = [binding for binding in applying if binding not in denying]
    single = AccessRule(principal, WILDCARD, operation, PermissionType.ALLOW)
    if verdict.allowed:
        steps = [f"To refuse it: {command_of('remove', binding)}" for binding in allowing]
        deny = AclBinding(resource, single._replace(permission=PermissionType.DENY))
        steps.append(f"{'Or' if steps else 'To refuse it'}: {command_of('add', deny)}")
        reason = "no rule mentions it (allow.everyone.if.no.acl.found=true)"
        return Explanation(
            True, reason if verdict.binding is None else f"by the rule: {verdict.binding}", verdict.binding, steps
        )
    steps = [f"To allow it: {command_of('remove', binding)}" for binding in denying]
    if not allowing:
        steps.append(_granting(principal, operation, resource))
        steps.append(f"Or that alone: {command_of('add', AclBinding(resource, single))}")
    if verdict.binding is not None:
        return Explanation(False, f"by the rule: {verdict.binding}", verdict.binding, steps)
    if rules:
        return Explanation(False, "no rule allows it", None, steps)
    unknown = settings.allow_if_none is None
    decides = "would decide" if unknown else "is not set"
    return Explanation(False, f"no rule mentions it; allow.everyone.if.no.acl.found {decides}", None, steps)


def _granting(principal: str, operation: Operation, resource: ResourcePattern) -> str:
    user, name = shlex.quote(principal.removeprefix("User:")), shlex.quote(resource.name)
    kind = resource.type
    if kind is ResourceType.TOPIC and operation in (Operation.WRITE, Operation.CREATE):
        return f"To allow it: ottla acl grant producer {user} --topic {name}"
    if kind is ResourceType.TOPIC and operation in (Operation.READ, Operation.DESCRIBE):
        return f"To allow it: ottla acl grant consumer {user} --topic {name} --group GROUP"
    if kind is ResourceType.GROUP and operation in (Operation.READ, Operation.DESCRIBE):
        return f"To allow it: ottla acl grant consumer {user} --topic TOPIC --group {name}"
    if kind is ResourceType.TRANSACTIONAL_ID and operation is not Operation.TWO_PHASE_COMMIT:
        return f"To allow it: ottla acl grant producer {user} --topic TOPIC --transactional-id {name}"
    return f"To allow it: ottla acl grant admin {user}"
