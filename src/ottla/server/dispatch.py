"""From a frame to a handler and back: header, version, decoding, the answer's encoding, and what if any of it fails.

Bad input never reaches a handler: an unknown API or version, or bytes that do not parse, close the connection with one
log line, as genuine Kafka does. Only ApiVersions is answered in any version.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, cast

from ottla.cluster.registered_brokers import Claim
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.protocol.api import ApiKey, request_class, response_class
from ottla.protocol.compiled import decode
from ottla.protocol.errors import ProtocolError
from ottla.protocol.framing import decode_request_header, encode_response
from ottla.protocol.primitives import STRING
from ottla.protocol.schema import NEVER, Array, Field, Message, fields_of
from ottla.server.connection import BadFrame, Connection, Piece, ReplySlot
from ottla.server.context import Deferred, RequestContext, Services
from ottla.server.inter_broker import ANSWERS_OTHERS, CLAIMS, InterBrokerGate, Verdict
from ottla.server.routing import CLUSTER_ROUTES, OWN_ROUTES, ROUTES, Route, handler_of

log = logging.getLogger(__name__)

ANONYMOUS: Final = "User:ANONYMOUS"


class Dispatcher:
    """Calls the handler of each frame. Coroutines become tasks, which `close` ends; the rest is answered in place."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._gate = InterBrokerGate(services.config, services.registered_brokers)
        self._tasks: dict[asyncio.Task[None], Coroutine[Any, Any, Message | None] | None] = {}
        served = ROUTES | OWN_ROUTES | (CLUSTER_ROUTES if services.cluster is not None else {})
        self._routes: dict[int, Route] = {int(key): route for key, route in served.items()}

    def __call__(self, frame: memoryview, connection: Connection, slot: ReplySlot) -> None:
        try:
            header, body = decode_request_header(frame)
            route = self._routes.get(header.api_key)
            if route is None:
                raise BadFrame(f"API {header.api_key} is not served here")
            version = header.api_version
            if not route.min_version <= version <= route.max_version:
                if route.api_key is ApiKey.API_VERSIONS:
                    self._answer_unknown_api_versions(header.correlation_id, slot)
                    return
                raise BadFrame(
                    f"{route.api_key.name} version {version} is not served here "
                    f"(versions {route.min_version} to {route.max_version} are)"
                )
            request = decode(request_class(route.api_key), frame, version, body)
        except ProtocolError as error:
            raise BadFrame(f"a request that does not parse: {error}") from error
        context = RequestContext(
            api_key=route.api_key,
            api_version=version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            client_host=connection.client_host,
            listener=connection.listener,
            local_host=connection.local_host,
            local_port=connection.local_port,
            principal=ANONYMOUS,
            connection_id=connection.connection_id,
            broker=self._services,
            hold_connection=connection.hold,
        )
        claimed = CLAIMS.get(route.api_key)
        claim = None if claimed is None else claimed(request)
        if claim is not None:
            context.from_broker = self._gate.admits(claim, context)
            if not context.from_broker:
                task = self._services.loop.create_task(self._judge(claim, request, context, connection, slot))
                self._tasks[task] = None
                slot.request_bytes = len(frame)
                task.add_done_callback(self._tasks.pop)
                return
        self._handle(request, context, connection, slot, len(frame))

    async def _judge(
        self, claim: Claim, request: Message, context: RequestContext, connection: Connection, slot: ReplySlot
    ) -> None:
        """Handle a request of a broker once the store has been asked; refuse it otherwise."""
        verdict = await self._gate.judge(claim, context)
        context.from_broker = verdict is Verdict.BROKER
        if verdict is Verdict.UNKNOWN:
            connection.close()
        elif context.from_broker or context.api_key in ANSWERS_OTHERS:
            try:
                self._handle(request, context, connection, slot, slot.request_bytes)
            except BadFrame as error:
                self._answer_failure(error, context, connection, slot)
        else:
            self._answer_failure(self._gate.refusal(claim, context), context, connection, slot)

    def _handle(
        self, request: Message, context: RequestContext, connection: Connection, slot: ReplySlot, request_bytes: int
    ) -> None:
        try:
            answer = handler_of(context.api_key)(request, context)
        except BadFrame:
            raise
        except Exception as error:
            self._answer_failure(error, context, connection, slot)
            return
        if isinstance(answer, Message):
            self._answer(answer, context, connection, slot)
        elif isinstance(answer, Deferred):
            slot.on_abandoned = answer.on_abandoned
            answer.deliver_to(lambda response: self._answer(response, context, connection, slot))
            if answer.keeps_request and not slot.filled:
                slot.request_bytes = request_bytes
        elif answer is None:
            slot.fill(())
        else:
            assert isinstance(answer, Coroutine)
            task = self._services.loop.create_task(self._answer_later(answer, context, connection, slot))
            self._tasks[task] = answer
            slot.request_bytes = request_bytes
            task.add_done_callback(self._tasks.pop)

    async def close(self) -> None:
        """Cancel the requests under way (their connections are closed by now) and wait until they have ended."""
        under_way = dict(self._tasks)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for answer in under_way.values():
            if answer is not None:
                answer.close()  # one that had not begun yet

    async def _answer_later(
        self,
        answer: Coroutine[Any, Any, Message | None],
        context: RequestContext,
        connection: Connection,
        slot: ReplySlot,
    ) -> None:
        try:
            response = await answer
        except Exception as error:
            self._answer_failure(error, context, connection, slot)
            return
        self._answer(response, context, connection, slot)

    def _answer(
        self, response: Message | Exception | None, context: RequestContext, connection: Connection, slot: ReplySlot
    ) -> None:
        """Raises nothing: those who complete parked requests have others to serve."""
        if response is None:
            slot.fill(())
            return
        if isinstance(response, Exception):
            self._answer_failure(response, context, connection, slot)
            return
        try:
            pieces = _encode(response, context.api_version, context.correlation_id)
        except Exception as error:
            self._answer_failure(error, context, connection, slot)
            return
        slot.fill(pieces)

    def _answer_failure(
        self, error: Exception, context: RequestContext, connection: Connection, slot: ReplySlot
    ) -> None:
        """A handler failed as a whole: say so where the response has room for it, close the connection where not."""
        if isinstance(error, BadFrame):  # from a request that had to wait; others close the connection at once
            log.warning("closing %s: %s", connection.describe(), error)
            connection.close()
            return
        code = error.code if isinstance(error, OttlaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        # An ApiError is an answer: whoever gives it has logged what is a defect.
        if code is ErrorCode.UNKNOWN_SERVER_ERROR and not isinstance(error, ApiError):
            log.error(
                "%s v%d from %s failed",
                context.api_key.name,
                context.api_version,
                connection.describe(),
                exc_info=error,
            )
        response = failure_response(context.api_key, context.api_version, code, str(error))
        if response is None:
            connection.close()
        else:
            slot.fill(_encode(response, context.api_version, context.correlation_id))

    def _answer_unknown_api_versions(self, correlation_id: int, slot: ReplySlot) -> None:
        from ottla.server.handlers.api_versions import supported

        slot.fill(_encode(supported(ErrorCode.UNSUPPORTED_VERSION), 0, correlation_id))


def failure_response(api_key: ApiKey, version: int, code: ErrorCode, message: str) -> Message | None:
    """A response that carries nothing but the error; None for an API whose response has no error of its own."""

    response = response_class(api_key)
    fields = fields_of(response)
    if not any(field.name == "error_code" and field.in_version(version) for field in fields):
        return None
    values = {field.name: _nothing(field) for field in fields}
    values["error_code"] = code
    if "error_message" in values:
        values["error_message"] = message
    return response(**values)


def _nothing(field: Field) -> Any:
    if field.has_default:
        return field.make_default()
    if field.nullable_since != NEVER:
        return None
    if isinstance(field.type, Array):
        return []
    return "" if field.type is STRING else 0


def _encode(response: Message, version: int, correlation_id: int) -> list[Piece]:
    # The opaque pieces that the encoder lets through are what handlers put into records fields: file regions.
    return cast("list[Piece]", encode_response(response, version, correlation_id))
