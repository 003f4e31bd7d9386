"""DescribeCluster (v0-v2): the cluster's id, controller and brokers (KIP-700).

There is no endpoint of controllers to ask: any broker answers for the cluster.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.server.context import RequestContext
from ottla.server.handlers.metadata import ALL_CLUSTER_OPERATIONS, brokers_at, until_known

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView

BROKERS: Final = 1
CONTROLLERS: Final = 2


Answer = DescribeClusterResponse | Coroutine[Any, Any, DescribeClusterResponse]


def handle(metadata: "MetadataView", request: DescribeClusterRequest, context: RequestContext) -> Answer:
    """With ZooKeeper, brokers that are not alive are not known, so none is ever listed as fenced."""
    if request.endpoint_type != BROKERS:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        if request.endpoint_type == CONTROLLERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
    if not metadata.is_known:
        return _once_known(metadata, request, context)
    image = metadata.image
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.broker_id, host=host, port=port, rack=broker.rack)
            for broker, host, port in brokers_at(image, context)
        ],
    )
    if request.include_fenced_brokers:
        response.brokers += [
            DescribeClusterBroker(broker_id=broker.broker_id, host=host, port=port, rack=broker.rack, is_fenced=True)
            for broker in metadata.fenced_brokers
            if (address := broker.endpoints.get(context.listener)) is not None
            for host, port in (address,)
        ]
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response


async def _once_known(
    metadata: "MetadataView", request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    await until_known(metadata)
    answer = handle(metadata, request, context)
    return answer if isinstance(answer, DescribeClusterResponse) else await answer
