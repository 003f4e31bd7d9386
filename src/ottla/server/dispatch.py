"""From a frame to a handler and back: header, version, decoding, the answer's encoding, and what happens when any fails.

Bad input never reaches a handler: an unknown API or version, or bytes that do not parse, close the connection with one
log line, as genuine Kafka does. Only ApiVersions is answered in any version.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from ottla.errors import ErrorCode, OttlaError
from ottla.protocol.api import ApiKey, request_class
from ottla.protocol.compiled import decode
from ottla.protocol.errors import ProtocolError
from ottla.protocol.framing import decode_request_header, encode_response
from ottla.protocol.schema import Message
from ottla.server.connection import BadFrame, Connection, ReplySlot
from ottla.server.context import Deferred, RequestContext, Services
from ottla.server.routing import ROUTES, Route, handler_of

log = logging.getLogger(__name__)

ANONYMOUS: Final = "User:ANONYMOUS"


class Dispatcher:
    """Calls the handler of each frame. Coroutines become tasks of the broker's group; the rest is answered in place."""

    def __init__(self, services: Services, tasks: asyncio.TaskGroup) -> None:
        self._services = services
        self._tasks = tasks
        self._routes: dict[int, Route] = {int(key): route for key, route in ROUTES.items()}

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
            request = decode(request_class(route.api_key), frame[body:], version)
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
        )
        try:
            answer = handler_of(route.api_key)(request, context)
        except BadFrame:
            raise
        except Exception as error:
            self._answer_failure(error, context, connection, slot)
            return
        if isinstance(answer, Message):
            slot.fill(encode_response(answer, version, header.correlation_id))
        elif isinstance(answer, Deferred):
            correlation_id = header.correlation_id
            answer.deliver_to(lambda response: slot.fill(encode_response(response, version, correlation_id)))
        elif answer is None:
            slot.fill(())
        else:
            assert isinstance(answer, Coroutine)
            self._tasks.create_task(self._answer_later(answer, context, connection, slot))

    async def _answer_later(
        self,
        answer: Coroutine[Any, Any, Message | None],
        context: RequestContext,
        connection: Connection,
        slot: ReplySlot,
    ) -> None:
        try:
            response = await answer
            slot.fill(
                () if response is None else encode_response(response, context.api_version, context.correlation_id)
            )
        except Exception as error:
            self._answer_failure(error, context, connection, slot)

    def _answer_failure(
        self, error: Exception, context: RequestContext, connection: Connection, slot: ReplySlot
    ) -> None:
        """A handler failed as a whole: say so where the response has room for it, close the connection where not."""
        code = error.code if isinstance(error, OttlaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            log.error("%s v%d from %s failed", context.api_key.name, context.api_version, connection.describe(), exc_info=error)
        response = failure_response(context.api_key, context.api_version, code, str(error))
        if response is None:
            connection.close()
        else:
            slot.fill(encode_response(response, context.api_version, context.correlation_id))

    def _answer_unknown_api_versions(self, correlation_id: int, slot: ReplySlot) -> None:
        from ottla.server.handlers.api_versions import supported

        slot.fill(encode_response(supported(ErrorCode.UNSUPPORTED_VERSION), 0, correlation_id))


def failure_response(api_key: ApiKey, version: int, code: ErrorCode, message: str) -> Message | None:
    """A response that carries nothing but the error; None for an API whose response has no error of its own."""
    from ottla.protocol.api import response_class
    from ottla.protocol.schema import field_names, fields_of

    response = response_class(api_key)
    names = field_names(response)
    if "error_code" not in names:
        return None
    first = next(field.first for field in fields_of(response) if field.name == "error_code")
    if version < first:
        return None
    values: dict[str, Any] = {"error_code": code}
    if "error_message" in names:
        values["error_message"] = message
    return response(**values)
