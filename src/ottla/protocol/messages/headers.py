"""The headers that precede every request and every response.

A request header names the API and version of the body; the response header carries only the correlation id. Version 2
of the
request header and version 1 of the response header are the flexible ones (KIP-482); version 0 of the request header
belongs to the oldest ControlledShutdown alone. `ottla.protocol.api` knows which goes with which message.

The client id keeps its two-byte length for ever, so that a broker can read it without knowing the version.
`ottla.protocol.framing` reads and writes headers without these classes.
"""

from __future__ import annotations

from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, message, since


@message(versions=(0, 2), flexible=2)
class RequestHeader(Message):
    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: str | None = since(1, default="", ignorable=True, compact=False)


@message(versions=(0, 1), flexible=1)
class ResponseHeader(Message):
    correlation_id: Int32
