"""The client behind a telemetry request, and a push unpacked, in time and within limits."""

from uuid import UUID

from ottla.records.batch import Compression
from ottla.records.compression import decompress
from ottla.server.context import RequestContext
from ottla.server.telemetry import MAX_CLIENT_ID_LENGTH, Client


def client_of(instance_id: UUID, context: RequestContext) -> Client:
    """The client that has sent a request, under the id that it goes by."""
    name, version = context.broker.telemetry.software(context.connection_id)
    return Client(
        instance_id,
        None if context.client_id is None else context.client_id[:MAX_CLIENT_ID_LENGTH],
        name,
        version,
        context.client_host,
        context.client_port,
        context.connection_id,
    )


async def unpacked(compression_type: int, metrics: bytes, context: RequestContext) -> bytes:
    """The metrics of a push, off the loop. Raises `CorruptMessage` if they exceed `telemetry.max.bytes`."""
    codec = Compression(compression_type)
    if codec is Compression.NONE or not metrics:
        return metrics
    threads, most = context.broker.replicas.record_checkers, context.broker.telemetry.max_bytes
    return bytes(await context.broker.loop.run_in_executor(threads, decompress, codec, metrics, most))
