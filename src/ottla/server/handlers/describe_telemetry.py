"""DescribeTelemetry (v0, Ottla's own): clients that have sent metrics to this broker, or a client's newest ones."""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, OttlaError
from ottla.protocol.messages.describe_telemetry import (
    DescribeTelemetryRequest,
    DescribeTelemetryResponse,
    TelemetryClient,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.server.context import RequestContext
from ottla.server.telemetry import Report
from ottla.server.telemetry_clients import unpacked

if TYPE_CHECKING:
    import asyncio

    from ottla.replication.manager import ReplicaManager
    from ottla.server.telemetry import Telemetry


async def handle(
    loop: "asyncio.AbstractEventLoop",
    replicas: "ReplicaManager",
    telemetry: "Telemetry",
    request: DescribeTelemetryRequest,
    context: RequestContext,
) -> DescribeTelemetryResponse:
    """A client that is not known here is none; it may have sent its metrics to another broker."""
    if request.client_instance_id == NULL_UUID:
        return DescribeTelemetryResponse(clients=[_client(report, None) for report in telemetry.reports()])
    report = telemetry.report(request.client_instance_id)
    if report is None:
        return DescribeTelemetryResponse(clients=[])
    try:
        metrics = await unpacked(loop, replicas, telemetry, report.compression_type, report.metrics)
    except OttlaError:
        return DescribeTelemetryResponse(error_code=ErrorCode.INVALID_RECORD, clients=[])
    return DescribeTelemetryResponse(clients=[_client(report, metrics)])


def _client(report: Report, metrics: bytes | None) -> TelemetryClient:
    client = report.client
    return TelemetryClient(
        client_instance_id=client.instance_id,
        client_id=client.client_id,
        software_name=client.software_name,
        software_version=client.software_version,
        host=client.host,
        port=client.port,
        pushed_at_ms=report.at_ms,
        push_interval_ms=report.interval_ms,
        terminating=report.terminating,
        size_bytes=len(report.metrics),
        metrics=metrics,
    )
