"""AlterConfigs (v0-v2): all the settings of a resource at once; those not mentioned go back to their defaults.

IncrementalAlterConfigs has taken its place (KIP-339). Loggers cannot be changed through it.
"""

from ottla.cluster.configs import ConfigOperation
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.server.config_changes import AskedChange, Parts, change_configs
from ottla.server.context import RequestContext


async def handle(parts: Parts, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Each resource on its own; one that is there twice is refused."""
    asked = [
        AskedChange(
            resource.resource_type,
            resource.resource_name,
            [(config.name, ConfigOperation.SET, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    answers = await change_configs(parts, asked, replace=True, validate_only=request.validate_only)
    responses: list[AlterConfigsResourceResponse] = []
    for change, refused in zip(asked, answers, strict=True):
        response = AlterConfigsResourceResponse(resource_type=change.resource_type, resource_name=change.name)
        if refused is not None:
            response.error_code, response.error_message = refused.code, str(refused)
        responses.append(response)
    return AlterConfigsResponse(responses=responses)
