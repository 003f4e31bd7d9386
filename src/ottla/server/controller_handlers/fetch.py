"""Fetch (v4-v18) at a controller: the metadata log, for voters and observers of the quorum (KIP-595)."""

from typing import Any

from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.server.context import RequestContext


async def handle(quorum: Any, request: FetchRequest, context: RequestContext) -> FetchResponse:
    """What the state machine of the quorum answers."""
    response: FetchResponse = await quorum.handle(request, context.api_version)
    return response
