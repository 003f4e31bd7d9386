"""DeleteAcls (v1-v3): remove the access rules that filters mean (KIP-140, KIP-290)."""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, InvalidRequest, OttlaError
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.security.acls import AclBinding, AclFilter
from ottla.server.acl_requests import NO_AUTHORIZER, read_filter
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.acls import Acls


async def handle(acls: "Acls | None", request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Each filter on its own; answered when the rules are gone from the store, and no longer hold here."""
    if acls is None:
        disabled = ErrorCode.SECURITY_DISABLED
        return DeleteAclsResponse(filter_results=[_failure(disabled, NO_AUTHORIZER) for _ in request.filters])
    answers: list[DeleteAclsFilterResult | None] = []
    filters: list[AclFilter] = []
    for asked in request.filters:
        try:
            filters.append(read_filter(asked))
        except InvalidRequest as refused:
            answers.append(_failure(refused.code, str(refused)))
        else:
            answers.append(None)
    deleted = iter(await acls.delete(filters))
    return DeleteAclsResponse(filter_results=[refused or _result(next(deleted)) for refused in answers])


def _result(answer: list[AclBinding] | OttlaError) -> DeleteAclsFilterResult:
    if isinstance(answer, OttlaError):
        return _failure(answer.code, str(answer))
    return DeleteAclsFilterResult(
        matching_acls=[
            DeleteAclsMatchingAcl(
                resource_type=resource.type,
                resource_name=resource.name,
                pattern_type=resource.pattern,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for resource, rule in answer
        ]
    )


def _failure(code: ErrorCode, message: str) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[])
