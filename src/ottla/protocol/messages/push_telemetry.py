"""PushTelemetry: a client's metrics, in the format of OpenTelemetry (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32
from ottla.protocol.schema import Message, message


@message(ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible=0)
class PushTelemetryRequest(Message):
    client_instance_id: UUID
    subscription_id: Int32
    terminating: bool
    compression_type: Int8
    metrics: bytes


@message(ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible=0)
class PushTelemetryResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
