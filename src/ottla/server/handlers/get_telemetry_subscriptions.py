"""GetTelemetrySubscriptions (v0): which metrics a client is to send, and how often (KIP-714)."""

from typing import TYPE_CHECKING

from ottla.errors import ApiError
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.records.batch import Compression
from ottla.server.context import RequestContext
from ottla.server.telemetry_clients import client_of

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.server.telemetry import Telemetry

ACCEPTED = [Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY]
"""In the order in which they are preferred, which is Kafka's."""


def handle(
    clock: "Clock", telemetry: "Telemetry", request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """A client that has no id yet gets one."""
    instance_id = request.client_instance_id
    if instance_id == NULL_UUID:
        instance_id = telemetry.new_id()
    try:
        instance = telemetry.subscribe(client_of(telemetry, instance_id, context), clock.now_ms())
    except ApiError as refused:
        return GetTelemetrySubscriptionsResponse(
            error_code=refused.code,
            client_instance_id=NULL_UUID,
            subscription_id=0,
            accepted_compression_types=[],
            push_interval_ms=0,
            telemetry_max_bytes=0,
            delta_temporality=False,
            requested_metrics=[],
        )
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED],
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )
