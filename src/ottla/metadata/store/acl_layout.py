"""PURE. ACLs in the metadata store, as Kafka 3.9 keeps them.

    /kafka-acl/Topic/orders                     {"version":1,"acls":[{"principal":"User:a",...}]}
    /kafka-acl-extended/prefixed/Topic/orders-  likewise, for all names that begin so
    /kafka-acl-changes/acl_changes_0000000007   TOPIC:orders: the rules of that one have changed
    /kafka-acl-extended-changes/acl_changes_... {"version":1,"resourceType":"TOPIC","name":"orders-",...}

Source: Kafka 3.9, `ZkData` and `AclEntry`.
"""

import json
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeVar

from ottla.errors import OttlaError
from ottla.metadata.store.base import Create, Node
from ottla.security.acls import AccessRule, PatternType, PermissionType, ResourcePattern
from ottla.security.authorization import Operation, ResourceType

LITERAL_PATH: Final = "/kafka-acl"
PREFIXED_PATH: Final = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES_PATH: Final = "/kafka-acl-changes"
PREFIXED_CHANGES_PATH: Final = "/kafka-acl-extended-changes"

_NameT = TypeVar("_NameT", bound=IntEnum)


class MalformedAcls(OttlaError):
    """A node of ACLs holds what neither Kafka nor Ottla writes; the message names it."""


def acl_path(resource: ResourcePattern) -> str:
    """Where the rules of a pattern stand."""
    top = PREFIXED_PATH if resource.pattern is PatternType.PREFIXED else LITERAL_PATH
    return f"{top}/{_text(resource.type)}/{resource.name}"


def read_acl_path(path: str) -> ResourcePattern | None:
    """The pattern whose rules stand there; None for a path above, or of a type that is not known."""
    for top, pattern in ((PREFIXED_PATH, PatternType.PREFIXED), (LITERAL_PATH, PatternType.LITERAL)):
        if path.startswith(f"{top}/"):
            kind, slash, name = path[len(top) + 1 :].partition("/")
            known = _find(ResourceType, kind)
            return ResourcePattern(known, name, pattern) if slash and known is not None else None
    return None


def acl_node(rules: Iterable[AccessRule]) -> bytes:
    """The node of these rules."""
    acls = [
        {
            "principal": rule.principal,
            "permissionType": _text(rule.permission),
            "operation": _text(rule.operation),
            "host": rule.host,
        }
        for rule in rules
    ]
    return json.dumps({"version": 1, "acls": acls}, separators=(",", ":")).encode()


def read_acl_node(path: str, node: Node) -> tuple[AccessRule, ...]:
    """The rules in a node. Raises `MalformedAcls`."""
    try:
        return tuple(
            AccessRule(
                str(acl["principal"]),
                str(acl.get("host", acl.get("hosts", "*"))),
                _known(Operation, acl["operation"]),
                _known(PermissionType, acl["permissionType"]),
            )
            for acl in json.loads(node.data)["acls"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedAcls(f"the ACLs at {path} cannot be read: {error!r}") from error


def change_notification(resource: ResourcePattern) -> Create:
    """The operation that notifies all brokers that the rules of a pattern have changed."""
    if resource.pattern is PatternType.LITERAL:
        data = f"{resource.type.name}:{resource.name}".encode()
        return Create(f"{LITERAL_CHANGES_PATH}/acl_changes_", data, sequential=True)
    value = {
        "version": 1,
        "resourceType": resource.type.name,
        "name": resource.name,
        "patternType": resource.pattern.name,
    }
    data = json.dumps(value, separators=(",", ":")).encode()
    return Create(f"{PREFIXED_CHANGES_PATH}/acl_changes_", data, sequential=True)


def read_notification(node: Node) -> ResourcePattern | None:
    """The pattern that a notification names; None for one that cannot be read."""
    try:
        text = node.data.decode()
        if not text.startswith("{"):
            kind, _, name = text.partition(":")
            return ResourcePattern(_known(ResourceType, kind), name)
        value = json.loads(text)
        return ResourcePattern(
            _known(ResourceType, value["resourceType"]), value["name"], _known(PatternType, value["patternType"])
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _text(value: IntEnum) -> str:
    """`TRANSACTIONAL_ID` is TransactionalId there."""
    return "".join(word.capitalize() for word in value.name.split("_"))


def _find(kind: type[_NameT], text: str) -> _NameT | None:
    wanted = text.replace("_", "").upper()
    found = next((value for value in kind if value.name.replace("_", "") == wanted), None)
    return None if found is None or found.value <= 1 else found  # UNKNOWN and ANY are in no rule


def _known(kind: type[_NameT], text: str) -> _NameT:
    found = _find(kind, text)
    if found is None:
        raise ValueError(f"{text!r} is no {kind.__name__}")
    return found
