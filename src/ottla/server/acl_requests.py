"""What the requests about ACLs have in common."""

from enum import IntEnum
from typing import Final, Protocol, TypeVar

from ottla.errors import InvalidRequest
from ottla.security.acls import AclFilter, PatternType, PermissionType
from ottla.security.authorization import Operation, ResourceType

NO_AUTHORIZER: Final = "No Authorizer is configured."
"""What Kafka answers where `authorizer.class.name` is empty."""

_CodeT = TypeVar("_CodeT", bound=IntEnum)


class AskedFilter(Protocol):
    """A filter as DescribeAcls and DeleteAcls carry it."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def code_of(kind: type[_CodeT], code: int) -> _CodeT:
    """The name of a code. Raises `InvalidRequest` for UNKNOWN and for codes that Kafka does not have."""
    try:
        known = kind(code)
    except ValueError:
        known = kind(0)
    if known == 0:
        raise InvalidRequest(f"the ACL has an unknown element: {kind.__name__} {code}")
    return known


def read_filter(asked: AskedFilter) -> AclFilter:
    """The filter. Raises `InvalidRequest`."""
    return AclFilter(
        code_of(ResourceType, asked.resource_type_filter),
        asked.resource_name_filter,
        code_of(PatternType, asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        code_of(Operation, asked.operation),
        code_of(PermissionType, asked.permission_type),
    )
