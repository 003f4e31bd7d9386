"""GetTelemetrySubscriptions: which of its metrics a client is to send, and how often (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32
from ottla.protocol.schema import Message, message


@message(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsRequest(Message):
    client_instance_id: UUID


@message(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: UUID
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: bool
    requested_metrics: list[str]
