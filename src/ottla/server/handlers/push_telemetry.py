"""PushTelemetry (v0): a client's metrics (KIP-714). They are unpacked once, which refuses bombs, and kept as sent.

Where the broker serves metrics, it decodes those of clients, too, within limits (`ottla.server.client_metrics`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, OttlaError
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.protocol.primitives import NULL_UUID
from ottla.server.context import RequestContext
from ottla.server.telemetry import Report
from ottla.server.telemetry_clients import client_of, show, unpacked

if TYPE_CHECKING:
    import asyncio

    from ottla.clock import Clock
    from ottla.replication.manager import ReplicaManager
    from ottla.server.telemetry import Telemetry

_RESERVED = frozenset({0, 1})


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that this handler uses."""

    clock: "Clock"
    loop: "asyncio.AbstractEventLoop"
    replicas: "ReplicaManager"
    telemetry: "Telemetry"


async def handle(parts: Parts, request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    """Answers an accepted push with an empty response, a refused one with an error code."""
    if request.client_instance_id == NULL_UUID or request.client_instance_id.int in _RESERVED:
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
    telemetry = parts.telemetry
    now_ms = parts.clock.now_ms()
    client = client_of(parts.telemetry, request.client_instance_id, context)
    metrics = bytes(request.metrics)  # the buffer that it lies in is used again
    try:
        instance = telemetry.accept(
            client,
            request.subscription_id,
            request.compression_type,
            len(metrics),
            terminating=request.terminating,
            now_ms=now_ms,
        )
    except OttlaError as refused:
        return PushTelemetryResponse(error_code=refused.code)
    if metrics:
        try:
            plain = await unpacked(parts.loop, parts.replicas, parts.telemetry, request.compression_type, metrics)
        except OttlaError:
            instance.last_error = ErrorCode.INVALID_RECORD
            return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
        report = Report(client, now_ms, instance.interval_ms, request.terminating, request.compression_type, metrics)
        telemetry.keep(report)
        await show(parts.loop, parts.replicas, telemetry, report, plain, parts.clock.monotonic)
    return PushTelemetryResponse()
