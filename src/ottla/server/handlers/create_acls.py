"""CreateAcls (v1-v3): add access rules (KIP-140, KIP-290). Answered when they are durable and hold here."""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, InvalidRequest, OttlaError
from ottla.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.security.acls import AccessRule, AclBinding, PatternType, PermissionType, ResourcePattern
from ottla.security.authorization import Operation, ResourceType
from ottla.server.acl_requests import NO_AUTHORIZER, code_of
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.acls import Acls


async def handle(acls: "Acls | None", request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Each rule on its own; those that pass are added together."""
    if acls is None:
        refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return CreateAclsResponse(results=[refused for _ in request.creations])
    answers: list[OttlaError | None] = []
    bindings: list[AclBinding] = []
    for creation in request.creations:
        try:
            bindings.append(_binding(creation))
        except InvalidRequest as unreadable:
            answers.append(unreadable)
        else:
            answers.append(None)
    created = iter(await acls.create(bindings))
    return CreateAclsResponse(results=[_result(unreadable or next(created)) for unreadable in answers])


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            code_of(ResourceType, creation.resource_type),
            creation.resource_name,
            code_of(PatternType, creation.resource_pattern_type),
        ),
        AccessRule(
            creation.principal,
            creation.host,
            code_of(Operation, creation.operation),
            code_of(PermissionType, creation.permission_type),
        ),
    )


def _result(refused: OttlaError | None) -> AclCreationResult:
    if refused is None:
        return AclCreationResult()
    return AclCreationResult(error_code=refused.code, error_message=str(refused))
