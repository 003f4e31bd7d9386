"""ListConfigResources (v0-v1): what can have settings (KIP-1142).

Version 0 asks for subscriptions to clients' metrics alone. Listed are those, and the groups, that have settings.
"""

from typing import TYPE_CHECKING, Final

from ottla.cluster.image import ResourceType
from ottla.errors import ErrorCode
from ottla.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView

TYPES_SINCE: Final = 1
KNOWN: Final = frozenset(kind for kind in ResourceType if kind > ResourceType.UNKNOWN)


def handle(
    metadata: "MetadataView", request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """No types ask for all; an unknown one is refused with UNSUPPORTED_VERSION, as in Kafka."""
    if context.api_version < TYPES_SINCE:
        wanted: set[int] = {ResourceType.CLIENT_METRICS}
    else:
        wanted = set(request.resource_types) or set(KNOWN)
    if wanted - KNOWN:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    image = metadata.image
    names: dict[ResourceType, list[str]] = {
        ResourceType.GROUP: [name for kind, name in image.configs if kind is ResourceType.GROUP],
        ResourceType.CLIENT_METRICS: [name for kind, name in image.configs if kind is ResourceType.CLIENT_METRICS],
        ResourceType.BROKER_LOGGER: [str(broker_id) for broker_id in image.brokers],
        ResourceType.BROKER: [str(broker_id) for broker_id in image.brokers],
        ResourceType.TOPIC: list(image.topics),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type, listed in names.items()
            if resource_type in wanted
            for name in listed
        ]
    )
