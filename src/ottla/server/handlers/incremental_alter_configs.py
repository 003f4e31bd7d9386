"""IncrementalAlterConfigs (v0-v1): set, delete, append to and subtract from single settings (KIP-339)."""

from ottla.cluster.configs import ConfigOperation
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.server.config_changes import AskedChange, Parts, change_configs
from ottla.server.context import RequestContext

OPERATIONS = {int(operation): operation for operation in ConfigOperation}


async def handle(
    parts: Parts, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Each resource on its own; one that is there twice is refused."""
    asked = [
        AskedChange(
            resource.resource_type,
            resource.resource_name,
            [(config.name, OPERATIONS.get(config.config_operation), config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    answers = await change_configs(parts, asked, replace=False, validate_only=request.validate_only)
    responses: list[AlterConfigsResourceResponse] = []
    for change, refused in zip(asked, answers, strict=True):
        response = AlterConfigsResourceResponse(resource_type=change.resource_type, resource_name=change.name)
        if refused is not None:
            response.error_code, response.error_message = refused.code, str(refused)
        responses.append(response)
    return IncrementalAlterConfigsResponse(responses=responses)
