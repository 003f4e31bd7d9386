"""DescribeAcls (v1-v3): the access rules that a filter means (KIP-140, KIP-290)."""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, InvalidRequest
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.security.acls import ResourcePattern
from ottla.server.acl_requests import NO_AUTHORIZER, read_filter
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.acls import Acls


def handle(acls: "Acls | None", request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Grouped by resource."""
    if acls is None:
        return _failure(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    try:
        wanted = read_filter(request)
    except InvalidRequest as refused:
        return _failure(refused.code, str(refused))
    found: dict[ResourcePattern, list[AclDescription]] = {}
    for resource, rule in acls.matching(wanted):
        found.setdefault(resource, []).append(
            AclDescription(
                principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission
            )
        )
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                pattern_type=resource.pattern,
                acls=descriptions,
            )
            for resource, descriptions in found.items()
        ]
    )


def _failure(code: ErrorCode, message: str) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message, resources=[])
