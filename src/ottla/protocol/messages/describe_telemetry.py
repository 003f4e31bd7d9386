"""DescribeTelemetry: which clients have sent metrics to a broker, or a client's newest ones. Ottla's own, not Kafka's.

ApiVersions names it only to clients that call themselves `ottla`: see `ottla.server.handlers.api_versions`.
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.DESCRIBE_TELEMETRY, versions=(0, 0), flexible=0)
class DescribeTelemetryRequest(Message):
    """The null id asks for all clients, without their metrics."""

    client_instance_id: UUID


@message(ApiKey.DESCRIBE_TELEMETRY, versions=(0, 0), flexible=0)
class DescribeTelemetryResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    clients: list[TelemetryClient]


@struct
class TelemetryClient(Struct):
    """A client and its newest push; `metrics` is that, in the format of OpenTelemetry, unpacked."""

    client_instance_id: UUID
    client_id: str | None = None
    software_name: str | None = None
    software_version: str | None = None
    host: str
    port: Int32
    pushed_at_ms: Int64
    push_interval_ms: Int32
    terminating: bool
    size_bytes: Int32
    metrics: bytes | None = None
