"""PURE. Roles: the rules that a producer, a consumer or an administrator needs."""

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AccessRule,
    AclBinding,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from ottla.security.authorization import Operation, ResourceType

ROLES: Final = ("producer", "consumer", "admin")
"""What `kafka-acls.sh` calls --producer and --consumer, with the same rules; and all rights."""
_PRODUCING: Final = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_CONSUMING: Final = (Operation.READ, Operation.DESCRIBE)
_TRANSACTIONAL: Final = (Operation.WRITE, Operation.DESCRIBE)


class IncompleteRole(ValueError):
    """A role without what it is for; the text names the option."""


def principal_of(user: str) -> str:
    """`alice` is User:alice; what has a colon is a principal already."""
    return user if ":" in user else f"User:{user}"


def bindings_of(
    role: str,
    user: str,
    topics: Sequence[str],
    groups: Sequence[str],
    transactional_ids: Sequence[str],
    *,
    prefixed: bool = False,
    host: str = WILDCARD,
) -> list[AclBinding]:
    """The rules of a role. Raises `IncompleteRole`."""
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL

    def rules(kind: ResourceType, names: Sequence[str], operations: Sequence[Operation]) -> Iterator[AclBinding]:
        for name in names:
            literal = name == WILDCARD or kind is ResourceType.CLUSTER
            resource = ResourcePattern(kind, name, PatternType.LITERAL if literal else pattern)
            for operation in operations:
                rule = AccessRule(principal_of(user), host, operation, PermissionType.ALLOW)
                yield AclBinding(resource, rule)

    if role == "admin":
        if topics or groups or transactional_ids:
            raise IncompleteRole("an admin may do everything: leave --topic, --group and --transactional-id out")
        everything = (Operation.ALL,)
        return [
            *rules(ResourceType.CLUSTER, [CLUSTER_NAME], everything),
            *rules(ResourceType.TOPIC, [WILDCARD], everything),
            *rules(ResourceType.GROUP, [WILDCARD], everything),
            *rules(ResourceType.TRANSACTIONAL_ID, [WILDCARD], everything),
        ]
    if not topics:
        raise IncompleteRole(f"a {role} needs a topic: give --topic")
    if role == "producer":
        if groups:
            raise IncompleteRole("a producer has no group: leave --group out")
        return [
            *rules(ResourceType.TOPIC, topics, _PRODUCING),
            *rules(ResourceType.TRANSACTIONAL_ID, transactional_ids, _TRANSACTIONAL),
        ]
    if not groups:
        raise IncompleteRole("a consumer needs a group: give --group")
    if transactional_ids:
        raise IncompleteRole("a consumer has no transactional id: leave --transactional-id out")
    return [
        *rules(ResourceType.TOPIC, topics, _CONSUMING),
        *rules(ResourceType.GROUP, groups, (Operation.READ,)),
    ]
