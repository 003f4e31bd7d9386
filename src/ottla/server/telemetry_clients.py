"""The client behind a telemetry request, and a push unpacked, in time and within limits."""

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.records.batch import Compression
from ottla.records.compression import decompress
from ottla.server.context import RequestContext
from ottla.server.telemetry import MAX_CLIENT_ID_LENGTH, Client

if TYPE_CHECKING:
    import asyncio

    from ottla.replication.manager import ReplicaManager
    from ottla.server.telemetry import Telemetry


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
