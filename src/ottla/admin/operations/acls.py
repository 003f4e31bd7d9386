"""Access rules: list, create and delete them (KIP-140). PURE."""

from collections.abc import Sequence

from ottla.admin.errors import RequestRefused, refusal
from ottla.admin.operations.core import Ask, Operation
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.security.acls import AccessRule, AclBinding, AclFilter, PatternType, PermissionType, ResourcePattern
from ottla.security.authorization import Operation as AclOperation
from ottla.security.authorization import ResourceType

EVERY_ACL = AclFilter()
"""The filter that means all rules."""


def list_acls(wanted: AclFilter = EVERY_ACL) -> Operation[list[AclBinding]]:
    """The rules that a filter means, sorted. Raises `RequestRefused`, also where there is no authorizer."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    answer: DescribeAclsResponse = yield Ask(request)
    if answer.error_code:
        reason = refusal(answer.error_code, answer.error_message)
        raise RequestRefused(f"access rules cannot be listed: {reason}", answer.error_code)
    return sorted(
        _binding(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            AccessRule(acl.principal, acl.host, AclOperation(acl.operation), PermissionType(acl.permission_type)),
        )
        for resource in answer.resources
        for acl in resource.acls
    )


def create_acls(bindings: Sequence[AclBinding]) -> Operation[None]:
    """Add rules; those that are there already stay. Raises `RequestRefused` that names the first that is refused."""
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=resource.type,
                resource_name=resource.name,
                resource_pattern_type=resource.pattern,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for resource, rule in bindings
        ]
    )
    answer: CreateAclsResponse = yield Ask(request)
    for binding, result in zip(bindings, answer.results, strict=True):
        if result.error_code:
            reason = refusal(result.error_code, result.error_message)
            raise RequestRefused(f"{binding} was not added: {reason}", result.error_code)


def delete_acls(wanted: Sequence[AclFilter]) -> Operation[list[AclBinding]]:
    """Remove the rules that filters mean; returns those removed, sorted. Raises `RequestRefused`."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in wanted
        ]
    )
    answer: DeleteAclsResponse = yield Ask(request)
    removed: set[AclBinding] = set()
    for result in answer.filter_results:
        for code, message in ((result.error_code, result.error_message), *_problems(result.matching_acls)):
            if code:
                raise RequestRefused(f"access rules cannot be removed: {refusal(code, message)}", code)
        removed.update(
            _binding(
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                AccessRule(acl.principal, acl.host, AclOperation(acl.operation), PermissionType(acl.permission_type)),
            )
            for acl in result.matching_acls
        )
    return sorted(removed)


def _problems(acls: Sequence[object]) -> list[tuple[int, str | None]]:
    return [(getattr(acl, "error_code", 0), getattr(acl, "error_message", None)) for acl in acls]


def _binding(kind: int, name: str, pattern: int, rule: AccessRule) -> AclBinding:
    return AclBinding(ResourcePattern(ResourceType(kind), name, PatternType(pattern)), rule)
