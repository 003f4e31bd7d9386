"""PURE. Rules for what was refused: the fewest that allow it and nothing else, as far as rules can say that.

What is refused is chosen by the client, so that a refusal is no reason to allow it: these are proposals for a person.
Some are never made: a rule for every resource, because a client has asked for one with the name `*`; a rule by which a
user becomes a broker.
"""

import json
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.cli.acl.rules import command_of
from ottla.security.acls import (
    CLUSTER_NAME,
    IMPLYING,
    SUPPORTED,
    WILDCARD,
    AccessRule,
    AclBinding,
    PatternType,
    PermissionType,
    ResourcePattern,
    StandardAuthorizer,
)
from ottla.security.audit_events import REFUSAL, SUPPRESSED
from ottla.security.authorization import Operation, ResourceType
from ottla.security.principals import ANONYMOUS

MANY: Final = 5
"""Names that begin alike, from which on a prefix is offered."""
SHORTEST_PREFIX: Final = 3
_SEPARATORS: Final = ".-_"
_CONSUMING: Final = frozenset((Operation.READ,))
_PRODUCING: Final = frozenset((Operation.WRITE, Operation.CREATE))


class Denial(NamedTuple):
    """Something that was refused."""

    principal: str
    operation: Operation
    kind: ResourceType
    name: str
    host: str


class Denials(NamedTuple):
    """What an audit log has on refusals."""

    denials: dict[Denial, int]
    """How often each was refused."""
    suppressed: int
    """Refusals that the log has no line for."""
    unreadable: int
    """Lines that are none of an audit log, or whose names were cut."""


class Suggestion(NamedTuple):
    """Rules for one principal, and the command that adds them."""

    principal: str
    bindings: tuple[AclBinding, ...]
    command: str


class Offer(NamedTuple):
    """Prefixed rules in place of many literal ones. They allow more than was refused."""

    principal: str
    prefix: str
    names: tuple[str, ...]
    bindings: tuple[AclBinding, ...]
    commands: tuple[str, ...]


class LeftOut(NamedTuple):
    """A refusal for which no rule is suggested, and why."""

    denial: Denial
    reason: str


class Suggestions(NamedTuple):
    """What may be allowed, what could be instead, and what not."""

    suggestions: list[Suggestion]
    offers: list[Offer]
    left_out: list[LeftOut]


def read_denials(lines: Iterable[bytes], since: str) -> Denials:
    """The refusals in the lines of an audit log, from a time on, which is written as they have it."""
    denials: dict[Denial, int] = defaultdict(int)
    suppressed = unreadable = 0
    for line in lines:
        try:
            event = json.loads(line)
            if event["time"] < since:
                continue
            if event["event"] == SUPPRESSED and event["suppressed"] == REFUSAL:
                suppressed += int(event["count"])
            if event["event"] != REFUSAL:
                continue
            if "cut" in event:
                raise ValueError("a cut name")
            denial = Denial(
                str(event["principal"]),
                Operation[event["operation"]],
                ResourceType[event["resource_type"]],
                str(event["resource"]),
                str(event["address"]),
            )
            denials[denial] += int(event.get("repeated", 1))
        except (ValueError, KeyError, TypeError):
            unreadable += 1
    return Denials(dict(denials), suppressed, unreadable)


def suggestions_for(
    denials: Collection[Denial], rules: Iterable[AclBinding], super_users: Collection[str] = ()
) -> Suggestions:
    """Rules for refusals that the present rules would still make."""
    authorizer = StandardAuthorizer(frozenset(super_users))
    for binding in rules:
        authorizer.set_rules(binding.resource, [*authorizer.rules(binding.resource), binding.rule])
    wanted: dict[str, dict[tuple[ResourceType, str], set[Operation]]] = defaultdict(lambda: defaultdict(set))
    left_out: list[LeftOut] = []
    for denial in sorted(denials):
        principal, operation, kind, name, host = denial
        verdict = authorizer.verdict(principal, host, operation, kind, name)
        if verdict.allowed:
            continue
        reason = _reason_against(denial, verdict.binding)
        if reason is None:
            wanted[principal][kind, name].add(operation)
        else:
            left_out.append(LeftOut(denial, reason))
    suggestions: list[Suggestion] = []
    offers: list[Offer] = []
    for principal, resources in sorted(wanted.items(), key=lambda item: (item[0] == ANONYMOUS, item[0])):
        needed = {resource: _without_implied(operations) for resource, operations in sorted(resources.items())}
        suggestions += _for_principal(principal, needed)
        offers += _prefixes(principal, needed)
    return Suggestions(suggestions, offers, left_out)


def _reason_against(denial: Denial, rule: AclBinding | None) -> str | None:
    if rule is not None:
        return f"a rule denies it, and goes before every rule that allows it: {command_of('remove', rule)}"
    if denial.operation is Operation.CLUSTER_ACTION:
        return "brokers alone do this: if this is one, name its user in super.users"
    if denial.operation not in SUPPORTED.get(denial.kind, ()):
        return "no rule allows this"
    if denial.name == WILDCARD and denial.kind is not ResourceType.CLUSTER:
        return "the client has asked for a resource with the name *, and a rule of this name is for all resources"
    if not denial.name or not denial.name.isprintable() or not denial.principal.isprintable():
        return "the name has characters that cannot be shown safely: use an admin client"
    return None


def _without_implied(operations: set[Operation]) -> frozenset[Operation]:
    """The operations without those that others of them allow, too."""
    return frozenset(
        operation for operation in operations if not (IMPLYING.get(operation, frozenset()) & operations - {operation})
    )


_Needed = Mapping[tuple[ResourceType, str], frozenset[Operation]]


def _for_principal(principal: str, needed: _Needed) -> Iterator[Suggestion]:
    """Commands for roles, where a role allows just what was refused; else for single rules."""
    topics = [name for (kind, name), operations in needed.items() if (kind, operations) == _READ_TOPIC]
    groups = [name for (kind, name), operations in needed.items() if (kind, operations) == _READ_GROUP]
    rest = dict(needed)
    if topics and groups:
        names = [*((ResourceType.TOPIC, name) for name in topics), *((ResourceType.GROUP, name) for name in groups)]
        options = [*(f"--topic={name}" for name in topics), *(f"--group={name}" for name in groups)]
        yield _role("consumer", principal, names, options, needed)
        rest = {resource: operations for resource, operations in rest.items() if resource not in names}
    produced = [name for (kind, name), operations in rest.items() if (kind, operations) == _PRODUCE_TOPIC]
    if produced:
        names = [(ResourceType.TOPIC, name) for name in produced]
        yield _role("producer", principal, names, [f"--topic={name}" for name in produced], needed)
        rest = {resource: operations for resource, operations in rest.items() if resource not in names}
    for (kind, name), operations in rest.items():
        for operation in sorted(operations):
            binding = _allowing(principal, kind, name, operation)
            yield Suggestion(principal, (binding,), command_of("add", binding))


_READ_TOPIC: Final = (ResourceType.TOPIC, _CONSUMING)
_READ_GROUP: Final = (ResourceType.GROUP, _CONSUMING)
_PRODUCE_TOPIC: Final = (ResourceType.TOPIC, _PRODUCING)


def _role(
    role: str,
    principal: str,
    resources: Sequence[tuple[ResourceType, str]],
    options: Sequence[str],
    needed: _Needed,
) -> Suggestion:
    bindings = [
        _allowing(principal, kind, name, operation)
        for kind, name in resources
        for operation in sorted(needed[kind, name])
    ]
    return Suggestion(principal, tuple(bindings), shlex.join(["ottla", "acl", "grant", role, principal, *options]))


def _allowing(
    principal: str, kind: ResourceType, name: str, operation: Operation, pattern: PatternType = PatternType.LITERAL
) -> AclBinding:
    rule = AccessRule(principal, WILDCARD, operation, PermissionType.ALLOW)
    return AclBinding(ResourcePattern(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else name, pattern), rule)


def _prefixes(principal: str, needed: _Needed) -> Iterator[Offer]:
    """Prefixes that end at a separator, for many names of which the same was refused."""
    alike: dict[tuple[ResourceType, frozenset[Operation], str], list[str]] = defaultdict(list)
    for (kind, name), operations in needed.items():
        if kind is ResourceType.CLUSTER:
            continue
        for prefix in _beginnings(name):
            alike[kind, operations, prefix].append(name)
    best: list[tuple[ResourceType, frozenset[Operation], str]] = []
    # The most names first; of prefixes with the same names the longest.
    for kind, operations, prefix in sorted(alike, key=lambda key: (-len(alike[key]), -len(key[2]), key[2])):
        names = alike[kind, operations, prefix]
        if len(names) < MANY:
            continue
        covers = [other for other in best if other[:2] == (kind, operations) and prefix.startswith(other[2])]
        within = [other for other in best if other[:2] == (kind, operations) and other[2].startswith(prefix)]
        if covers or within:
            continue
        best.append((kind, operations, prefix))
        bindings = [
            _allowing(principal, kind, prefix, operation, PatternType.PREFIXED) for operation in sorted(operations)
        ]
        commands = tuple(command_of("add", binding) for binding in bindings)
        yield Offer(principal, prefix, tuple(names), tuple(bindings), commands)


def _beginnings(name: str) -> Iterator[str]:
    for at, character in enumerate(name):
        if character in _SEPARATORS and at + 1 >= SHORTEST_PREFIX and at + 1 < len(name):
            yield name[: at + 1]
