"""PURE. Access control lists: rules, filters over rules, and the decision whether a principal may do something.

The semantics are those of Kafka 4.3's `StandardAuthorizer`. A rule stands for a resource pattern: one name, all names
with a prefix, or all names (`*`). Deny goes before allow. What no rule of a resource allows is refused, and what has no
rule at all is refused unless `allow.everyone.if.no.acl.found` is set.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from ottla.errors import ApiError, ErrorCode
from ottla.security.authorization import Operation, ResourceType

WILDCARD: Final = "*"
"""As a name: every resource. As a host: every host."""
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of the type CLUSTER."""
MOST_DECISIONS: Final = 1 << 15
"""Decisions that are kept. A client that invents names makes the authorizer forget them, and decide again."""
LONGEST_KEPT: Final = 256
"""Characters of a name; decisions about longer ones are not kept, since they would take memory that nobody limits."""


class PatternType(IntEnum):
    """How a pattern's name is compared; names and codes of Kafka's `PatternType`."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """Whether a rule refuses or allows; names and codes of Kafka's `AclPermissionType`."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources that rules stand for."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def matches(self, name: str) -> bool:
        """Whether a resource of this type and name is among them."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


@lru_cache(maxsize=4096)
def canonical_host(host: str) -> str:
    """An IPv6 address as sockets give it. Rules of Kafka have Java's form, `2001:db8:0:0:0:0:0:7`; a rule that denies
    must not depend on the form. Anything else stays as it is."""
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        return host


def is_host(given: str, host: str) -> bool:
    """Whether a rule's host is the address of a client, as sockets give it."""
    return given == host or (":" in given and canonical_host(given) == host)


class AccessRule(NamedTuple):
    """A principal may, or may not, do something from a host (Kafka's `AccessControlEntry`)."""

    principal: str
    host: str
    operation: Operation
    permission: PermissionType

    def concerns(self, principal: str, host: str) -> bool:
        """Whether it is about this principal on this host."""
        return self.principal in (principal, EVERYBODY) and (self.host == WILDCARD or is_host(self.host, host))


class AclBinding(NamedTuple):
    """A rule and the resources it stands for."""

    resource: ResourcePattern
    rule: AccessRule

    def __str__(self) -> str:
        rule, resource = self.rule, self.resource
        name = f"{resource.name}*" if resource.pattern is PatternType.PREFIXED else resource.name
        return (
            f"{rule.permission.name} {rule.principal} from {rule.host} "
            f"{rule.operation.name} on {resource.type.name} {name}"
        )


class AclFilter(NamedTuple):
    """Which bindings are meant; None and ANY stand for all."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: PermissionType = PermissionType.ANY

    def meets(self, binding: AclBinding) -> bool:
        """Whether a binding is meant."""
        resource, rule = binding
        return (
            self._meets_resource(resource)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (PermissionType.ANY, rule.permission)
        )

    def _meets_resource(self, resource: ResourcePattern) -> bool:
        if self.type not in (ResourceType.ANY, resource.type):
            return False
        if self.pattern is PatternType.MATCH:
            return self.name is None or resource.matches(self.name)
        return self.pattern in (PatternType.ANY, resource.pattern) and self.name in (None, resource.name)


IMPLYING: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL)),
}
"""Which allowed operations allow another. A denied operation denies no other."""

SUPPORTED: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that a type of resource knows (Kafka's `AclEntry.supportedOperations`)."""

_DENY: Final = PermissionType.DENY
_ALL: Final = Operation.ALL
# As members of their classes they take Python 3.11 ten times as long to find.

_Table = dict[ResourceType, dict[str, tuple["AccessRule", ...]]]
"""Rules by type and name: a name has its hash, while a pair would have to be hashed for each look."""
_Decision = tuple[str, str, Operation, ResourceType, str]


class Verdict(NamedTuple):
    """A decision, and the binding that makes it."""

    allowed: bool
    binding: AclBinding | None
    """None where no binding decides: the principal is a super user, or no rule allows it."""


class StandardAuthorizer:
    """All rules of a cluster, and decisions by them. Rules change on the loop's thread; any thread may decide."""

    answers_slowly = False
    """Whether decisions are to be asked for in threads where there may be many."""

    def __init__(self, super_users: frozenset[str] = frozenset(), *, allow_if_none: bool = False) -> None:
        """`super_users`: principals that may do everything. `allow_if_none`: allow what no rule mentions."""
        self._super_users = super_users
        self._allow_if_none = allow_if_none
        self._literal: _Table = {kind: {} for kind in ResourceType}
        self._prefixed: _Table = {kind: {} for kind in ResourceType}
        self._counts: dict[tuple[ResourceType, int], int] = {}
        """How many prefixes there are, by type and length."""
        self._lengths: dict[ResourceType, tuple[int, ...]] = {}
        """The lengths of prefixes, by type."""
        self._decisions: dict[_Decision, bool] = {}

    def follow_default(self, *, allow_if_none: bool) -> None:
        """Allow what no rule mentions, or not, from now on."""
        self._allow_if_none = allow_if_none
        self._decisions = {}

    # -- rules -------------------------------------------------------------------------------------------------------

    def rules(self, resource: ResourcePattern) -> tuple[AccessRule, ...]:
        """The rules of a pattern."""
        return self._table(resource.pattern)[resource.type].get(resource.name, ())

    def set_rules(self, resource: ResourcePattern, rules: Iterable[AccessRule]) -> None:
        """Replace the rules of a pattern; none remove it."""
        table = self._table(resource.pattern)[resource.type]
        key = resource.name
        taken = tuple(dict.fromkeys(rules))
        if resource.pattern is PatternType.PREFIXED and bool(taken) != (key in table):
            self._count_prefix(resource.type, len(resource.name), 1 if taken else -1)
        if taken:
            table[key] = taken
        else:
            table.pop(key, None)
        self._decisions = {}

    def _count_prefix(self, kind: ResourceType, length: int, change: int) -> None:
        count = self._counts.pop((kind, length), 0) + change
        if count:
            self._counts[kind, length] = count
        self._lengths[kind] = tuple(length for found, length in self._counts if found is kind)

    def _table(self, pattern: PatternType) -> _Table:
        return self._prefixed if pattern is PatternType.PREFIXED else self._literal

    def bindings(self) -> Iterator[AclBinding]:
        """All bindings."""
        for pattern, table in ((PatternType.LITERAL, self._literal), (PatternType.PREFIXED, self._prefixed)):
            for kind, named in table.items():
                for name, rules in named.items():
                    resource = ResourcePattern(kind, name, pattern)
                    for rule in rules:
                        yield AclBinding(resource, rule)

    def resources(self) -> list[ResourcePattern]:
        """All patterns that have rules."""
        return [
            ResourcePattern(kind, name, pattern)
            for pattern, table in ((PatternType.LITERAL, self._literal), (PatternType.PREFIXED, self._prefixed))
            for kind, named in table.items()
            for name in named
        ]

    # -- decisions ---------------------------------------------------------------------------------------------------

    def is_super_user(self, principal: str) -> bool:
        """Whether a principal may do everything."""
        return principal in self._super_users

    def allows_by_rules(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether a principal, such as `User:alice`, on a host may do something with a resource."""
        asked = (principal, host, operation, kind, name)
        decisions = self._decisions  # replaced when rules change: what another thread decides by old ones is not kept
        known = decisions.get(asked)
        if known is None:
            known = self._decide_by_rules(principal, host, operation, kind, name)
            if len(decisions) >= MOST_DECISIONS:
                decisions.clear()
            if len(name) <= LONGEST_KEPT:
                decisions[asked] = known
        return known

    allows = allows_by_rules
    """The decision that counts; a subclass may decide otherwise than by rules."""

    def _decide_by_rules(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """`verdict(...).allowed`, without what only an explanation needs: at a third of its price."""
        if principal in self._super_users:
            return True
        literal = self._literal[kind]
        found = [literal.get(name), literal.get(WILDCARD)]
        lengths = self._lengths.get(kind)
        if lengths:
            prefixed, longest = self._prefixed[kind], len(name)
            found += [prefixed.get(name[:length]) for length in lengths if length <= longest]
        allowed = mentioned = False
        for rules in found:
            if rules is None:
                continue
            mentioned = True
            for rule_principal, rule_host, rule_operation, permission in rules:
                if (rule_principal != principal and rule_principal != EVERYBODY) or (
                    rule_host != host and rule_host != WILDCARD and not is_host(rule_host, host)
                ):
                    continue
                if permission is _DENY:
                    if rule_operation is operation or rule_operation is _ALL:
                        return False
                elif not allowed:
                    allowed = (
                        rule_operation is operation
                        or rule_operation is _ALL
                        or rule_operation in IMPLYING.get(operation, ())
                    )
        return allowed or (self._allow_if_none and not mentioned)

    def verdict(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> Verdict:
        """The decision of `allows`, and what makes it."""
        if principal in self._super_users:
            return Verdict(True, None)
        implying = IMPLYING.get(operation) or (operation, Operation.ALL)
        denying = (operation, Operation.ALL)
        allowed, mentioned = None, False
        for resource, rules in self._matching(kind, name):
            mentioned = True
            for rule in rules:
                if not rule.concerns(principal, host):
                    continue
                if rule.permission is PermissionType.DENY:
                    if rule.operation in denying:
                        return Verdict(False, AclBinding(resource, rule))
                elif allowed is None and rule.operation in implying:
                    allowed = AclBinding(resource, rule)
        if allowed is not None:
            return Verdict(True, allowed)
        return Verdict(self._allow_if_none and not mentioned, None)

    def applying(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> list[AclBinding]:
        """All bindings that refuse or allow something: what would have to go for another decision."""
        implying = IMPLYING.get(operation) or (operation, Operation.ALL)
        return [
            AclBinding(resource, rule)
            for resource, rules in self._matching(kind, name)
            for rule in rules
            if rule.concerns(principal, host)
            and rule.operation in ((operation, Operation.ALL) if rule.permission is PermissionType.DENY else implying)
        ]

    def _matching(self, kind: ResourceType, name: str) -> Iterator[tuple[ResourcePattern, tuple[AccessRule, ...]]]:
        for literal in (name, WILDCARD) if name != WILDCARD else (WILDCARD,):
            rules = self._literal[kind].get(literal)
            if rules is not None:
                yield ResourcePattern(kind, literal), rules
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                prefix = name[:length]
                rules = self._prefixed[kind].get(prefix)
                if rules is not None:
                    yield ResourcePattern(kind, prefix, PatternType.PREFIXED), rules

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether there can be a resource of a type with which the principal may do this.

        As Kafka's `Authorizer.authorizeByResourceType`: an allowing pattern counts unless a denying one covers it.
        """
        if self.allows_by_rules(principal, host, operation, kind, "hardcode"):
            return True
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        for resource, rule in self.bindings():
            if resource.type is not kind or rule.operation not in (operation, Operation.ALL):
                continue
            if rule.concerns(principal, host):
                denied.add(resource) if rule.permission is PermissionType.DENY else allowed.append(resource)
        if ResourcePattern(kind, WILDCARD) in denied:
            return False
        return any(not _is_covered(resource, denied) for resource in allowed)

    def allowed_operations(self, principal: str, host: str, kind: ResourceType, name: str) -> int:
        """The operations that the principal may do with a resource, as the bits of `authorizedOperations`."""
        return sum(
            1 << operation for operation in SUPPORTED[kind] if self.allows(principal, host, operation, kind, name)
        )


def _is_covered(resource: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    kind, name, pattern = resource
    if pattern is PatternType.LITERAL and name == WILDCARD:
        return False
    if pattern is PatternType.LITERAL and resource in denied:
        return True
    return any(ResourcePattern(kind, name[:end], PatternType.PREFIXED) in denied for end in range(1, len(name) + 1))


def check_binding(binding: AclBinding) -> None:
    """Raise `ApiError` INVALID_REQUEST for a binding that cannot be stored."""
    resource, rule = binding
    if resource.type is ResourceType.CLUSTER and resource.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not resource.name:
        raise _invalid("Invalid empty resource name")
    if resource.type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise _invalid(f"Invalid resourceType {resource.type.name}")
    if resource.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {resource.pattern.name}")
    if rule.operation in (Operation.UNKNOWN, Operation.ANY):
        raise _invalid(f"Invalid operation {rule.operation.name}")
    if rule.permission not in (PermissionType.DENY, PermissionType.ALLOW):
        raise _invalid(f"Invalid permissionType {rule.permission.name}")
    check_principal(rule.principal)


def check_principal(text: str) -> None:
    """Raise `ApiError` INVALID_REQUEST for what is no principal, as `User:alice` is."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise _invalid(
            f"Could not parse principal from `{text}` "
            "(no colon is present separating the principal type from the principal name)"
        )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
