"""The client behind a telemetry request, and a push unpacked, in time and within limits."""

from time import thread_time
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.metrics.otlp import MalformedTelemetry, Metric, decode_metrics
from ottla.records.batch import Compression
from ottla.records.compression import decompress
from ottla.server.client_metrics import LARGEST_PUSH, MOST_POINTS
from ottla.server.context import RequestContext
from ottla.server.telemetry import MAX_CLIENT_ID_LENGTH, Client

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.replication.manager import ReplicaManager
    from ottla.server.telemetry import Report, Telemetry


def client_of(telemetry: "Telemetry", instance_id: UUID, context: RequestContext) -> Client:
    """The client that has sent a request, under the id that it goes by."""
    name, version = telemetry.software(context.connection_id)
    return Client(
        instance_id,
        None if context.client_id is None else context.client_id[:MAX_CLIENT_ID_LENGTH],
        name,
        version,
        context.client_host,
        context.client_port,
        context.connection_id,
    )


async def show(
    loop: "asyncio.AbstractEventLoop",
    replicas: "ReplicaManager",
    telemetry: "Telemetry",
    report: "Report",
    metrics: bytes,
    now_s: "Callable[[], float]",
) -> None:
    """Decode the unpacked metrics of a push in a thread, for `metrics.listeners`, if there is time for that. What
    cannot be decoded is left out; `ottla telemetry show` has it all the same."""
    series = telemetry.series
    if series is None:
        return
    if len(metrics) > LARGEST_PUSH or not series.budget.has_some(now_s()):
        series.left_out["pushes"] += 1
        return

    def decode() -> tuple[list[Metric] | None, float]:
        began = thread_time()
        try:
            return decode_metrics(metrics, MOST_POINTS), thread_time() - began
        except MalformedTelemetry:
            return None, thread_time() - began

    points, spent_s = await loop.run_in_executor(replicas.record_checkers, decode)
    series.budget.spend(spent_s)
    if points is None:
        series.left_out["pushes"] += 1
        return
    client = report.client
    began = thread_time()
    software = " ".join(filter(None, (client.software_name, client.software_version)))
    series.take(
        client.instance_id,
        client.client_id or "",
        software,
        client.host,
        points,
        now_s(),
        report.interval_ms / 1000,
        is_last=report.terminating,
    )
    series.budget.spend(thread_time() - began)  # on the loop, where time is dearer


async def unpacked(
    loop: "asyncio.AbstractEventLoop",
    replicas: "ReplicaManager",
    telemetry: "Telemetry",
    compression_type: int,
    metrics: bytes,
) -> bytes:
    """The metrics of a push, off the loop. Raises `CorruptMessage` if they exceed `telemetry.max.bytes`."""
    codec = Compression(compression_type)
    if codec is Compression.NONE or not metrics:
        return metrics
    threads, most = replicas.record_checkers, telemetry.max_bytes
    return bytes(await loop.run_in_executor(threads, decompress, codec, metrics, most))
