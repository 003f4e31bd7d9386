"""Envelope (v0): a broker forwards the request of one of its clients, with the client's principal (KIP-590).

The request within is handled as if the client had sent it here: its own guard is asked, about the client's principal
and address. Only a node that may act for the cluster may send an Envelope; no Envelope carries another one.
"""

from collections.abc import Callable, Coroutine, Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.protocol.api import ApiKey, request_class
from ottla.protocol.compiled import decode_steps
from ottla.protocol.errors import ProtocolError
from ottla.protocol.framing import RequestHeader, decode_request_header, encode_response_steps
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.messages.principal import DefaultPrincipalData
from ottla.protocol.schema import Message, Struct, fields_of
from ottla.protocol.versioned import decode_versioned
from ottla.server.context import Deferred, RequestContext
from ottla.server.controller_routing import CONTROLLER_ROUTES, FORWARDABLE
from ottla.server.failures import failed_items, failure_response
from ottla.server.framer import BadFrame

if TYPE_CHECKING:
    from ottla.server.authentication import Authentication
    from ottla.server.client_quotas import ClientQuotas
    from ottla.server.routing import Handlers
    from ottla.slices import Slices

SIZE_BYTES: Final = 4
LARGE_BYTES: Final = 8 << 10
_ANOTHER_LEADS: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""The second for requests about the quorum itself. Brokers of genuine Kafka keep to the controller that they know until
one of their Envelopes is refused with the first."""


class ForwardedClient:
    """The client of a forwarded request, in place of the connection that the request came over."""

    in_flight: Final = 1
    authentication: "Authentication | None" = None

    def __init__(self, outer: RequestContext, principal: str, host: str) -> None:
        self.principal = principal
        self.client_host = host
        self.client_port = 0
        self.listener = outer.listener
        self.local_host, self.local_port = outer.local_host, outer.local_port
        self.connection_id = outer.connection_id
        self._outer = outer

    def hold(self) -> Callable[[], None]:
        """Hold the broker's connection."""
        return self._outer.hold_connection()

    def authenticated(self) -> None:
        """There is nothing to prove."""

    def finish(self) -> None:
        """The broker's connection stays."""


class ForwardedContext(RequestContext):
    """The context of a forwarded request."""

    __slots__ = ("is_by_token",)
    is_forwarded = True

    def __init__(self, header: RequestHeader, client: ForwardedClient, *, is_by_token: bool) -> None:
        super().__init__(ApiKey(header.api_key), header.api_version, header.correlation_id, header.client_id, client)
        self.is_by_token = is_by_token


async def handle(
    handlers: "Handlers | None",
    slices: "Slices",
    quotas: "ClientQuotas",
    request: EnvelopeRequest,
    context: RequestContext,
) -> EnvelopeResponse:
    """The answer of the request within, header included; an error of the Envelope if that cannot be handled here."""
    assert handlers is not None  # of a running controller
    try:
        return await _forwarded(handlers, slices, quotas, request, context)
    except ApiError as refused:
        return EnvelopeResponse(error_code=refused.code)


async def _forwarded(
    handlers: "Handlers",
    slices: "Slices",
    quotas: "ClientQuotas",
    request: EnvelopeRequest,
    context: RequestContext,
) -> EnvelopeResponse:
    """Raises `ApiError` for an Envelope that is refused."""
    principal = _principal(request.request_principal)
    host = _host(request.client_host_address)
    data = memoryview(request.request_data)
    try:
        header, body = decode_request_header(data)
    except ProtocolError as error:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"the header of a forwarded request does not parse: {error}"
        ) from error
    if header.api_key not in FORWARDABLE:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"API {header.api_key} is not forwardable")
    route = CONTROLLER_ROUTES[ApiKey(header.api_key)]
    if not route.min_version <= header.api_version <= route.max_version:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{route.api_key.name} v{header.api_version} is not served here")
    try:
        inner = await slices.run(decode_steps(request_class(route.api_key), data, header.api_version, body))
    except ProtocolError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a forwarded request does not parse: {error}") from error
    client = ForwardedClient(context, f"{principal.type}:{principal.name}", host)
    forwarded = ForwardedContext(header, client, is_by_token=principal.token_authenticated)
    forwarded.is_large = len(data) > LARGE_BYTES
    metered = None
    if quotas.enforced is not None:
        metered = forwarded.metered = quotas.enforced.begin(forwarded, len(data))
    answer = await _answer(handlers, inner, forwarded)
    if any(code in _ANOTHER_LEADS for code in _error_codes(answer)):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    if metered is not None:
        throttle_ms = metered.answered(has_answer=True)
        if throttle_ms and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = throttle_ms
    pieces = await slices.run(encode_response_steps(answer, header.api_version, header.correlation_id))
    encoded = b"".join(cast("list[bytes]", pieces))  # no file region is in what may be forwarded
    return EnvelopeResponse(response_data=encoded[SIZE_BYTES:])


async def _answer(handlers: "Handlers", request: Message, context: RequestContext) -> Message:
    """The handler's answer, or the one with the reason for its failure, as on a connection of the client's own."""
    try:
        answer: Any = handlers[context.api_key](request, context)
        if isinstance(answer, Coroutine):
            answer = await answer
        if isinstance(answer, Deferred):
            answer = await answer.future()
    except (OttlaError, BadFrame) as error:
        code = error.code if isinstance(error, OttlaError) else ErrorCode.INVALID_REQUEST
        answer = failed_items(request, context.api_version, code, str(error))
        answer = answer or failure_response(context.api_key, context.api_version, code, str(error))
        if answer is None:
            raise ApiError(code, str(error)) from error
    assert isinstance(answer, Message)
    return answer


def _principal(data: bytes | None) -> DefaultPrincipalData:
    try:
        found = decode_versioned(DefaultPrincipalData, data or b"")
    except (ProtocolError, IndexError, ValueError) as error:
        raise ApiError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"the principal of a forwarded request does not parse: {error}"
        ) from error
    return found


def _host(address: bytes) -> str:
    try:
        return str(ip_address(bytes(address)))
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a forwarded request names no address of its client") from error


def _error_codes(answer: Struct) -> Iterator[int]:
    for field in fields_of(type(answer)):
        value = getattr(answer, field.name)
        if field.name == "error_code":
            yield value
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            for each in value:
                yield from _error_codes(each)
