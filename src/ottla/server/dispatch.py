"""From a frame to a handler and back: header, version, decoding, the answer's encoding, and what if any of it fails.

Bad input never reaches a handler: an unknown API or version, or bytes that do not parse, close the connection with one
log line, as genuine Kafka does. Only ApiVersions is answered in any version.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.metadata.registered_brokers import Claim
from ottla.protocol.api import ApiKey, request_class
from ottla.protocol.compiled import Steps, decode, decode_steps
from ottla.protocol.errors import ProtocolError
from ottla.protocol.framing import RequestHeader, decode_request_header, encode_response, encode_response_steps
from ottla.protocol.schema import Message
from ottla.server.client_quotas import timed
from ottla.server.connection import Connection
from ottla.server.context import Deferred, RequestContext, Services
from ottla.server.failures import failure_response
from ottla.server.framer import BadFrame
from ottla.server.inter_broker import ANSWERS_OTHERS, CLAIMS, InterBrokerGate, Verdict
from ottla.server.replies import Piece, ReplySlot
from ottla.server.routing import EXEMPT, Handlers, Route, served_by
from ottla.slices import SLICE_S

if TYPE_CHECKING:
    from ottla.server.authentication import Authentication
    from ottla.server.client_quotas import Metered
    from ottla.server.controller_services import ControllerServices

log = logging.getLogger(__name__)

LARGE_BYTES: Final = 8 << 10
"""Larger requests may take milliseconds to decode, and their answers to encode, so that is done in slices."""
SMALL_ANSWERS: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_COMMIT,
        ApiKey.HEARTBEAT,
        ApiKey.SYNC_GROUP,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    }
)
"""Their answers are as small as the requests, or nearly so."""


class Dispatcher:
    """Calls the handler of each frame. Coroutines become tasks, which `close` ends; the rest is answered in place."""

    def __init__(
        self,
        services: "Services | ControllerServices",
        handlers: Handlers | None = None,
        routes: Mapping[ApiKey, Route] | None = None,
        claims: Mapping[ApiKey, Callable[[Any], Claim | None]] = CLAIMS,
    ) -> None:
        """Without `handlers` and `routes`, those of a broker. `claims`: what requests say of their senders that is to
        be proved."""
        self._services = services
        self._claims = claims
        self._gate = InterBrokerGate(services.config, services.registered_brokers, services.loop)
        self._tasks: dict[asyncio.Task[None], Coroutine[Any, Any, Message | Deferred[Any] | None] | None] = {}
        served = routes or served_by(cast("Services", services))
        self._routes: dict[int, Route] = {int(key): route for key, route in served.items()}
        self._handlers = handlers or Handlers(services)
        self._slices = services.slices
        self._quotas = services.quotas
        self._metered: Metered | None = None
        """What measures the request that is being dispatched, if there are quotas."""
        self._measured_until = 0.0
        self.count_errors: Callable[[int, Message], None] | None = None
        """Called with each answer, and the API that it is of, where metrics are switched on."""
        self._now = services.clock.monotonic
        self._spent_s = 0.0

    def __call__(self, frame: memoryview, connection: Connection, slot: ReplySlot) -> bool:
        self._measured_until = began = self._now()
        try:
            gives_way = self._dispatch(frame, connection, slot)
        finally:
            ended = self._now()
            if self._metered is not None:
                self._metered.spend(ended - self._measured_until)
                self._metered = None
        self._spent_s += ended - began
        if gives_way or self._spent_s >= SLICE_S:
            self._spent_s = 0.0
            return True
        return False

    def _dispatch(self, frame: memoryview, connection: Connection, slot: ReplySlot) -> bool:
        """Whether more than an answer has come of it: work for later turns of the loop."""
        authentication = connection.authentication
        try:
            if authentication is not None and authentication.takes_tokens:
                self._answer_token(authentication, frame, connection, slot)
                return False
            header, body = decode_request_header(frame)
            route = self._routes.get(header.api_key)
            if authentication is not None and not authentication.admits(header.api_key):
                raise BadFrame(f"a request to API {header.api_key} from a client that has not authenticated")
            if route is None:
                raise BadFrame(f"API {header.api_key} is not served here")
            version = header.api_version
            if not route.min_version <= version <= route.max_version:
                if route.api_key is ApiKey.API_VERSIONS:
                    self._answer_unknown_api_versions(header.correlation_id, slot)
                    return False
                raise BadFrame(
                    f"{route.api_key.name} version {version} is not served here "
                    f"(versions {route.min_version} to {route.max_version} are)"
                )
            if len(frame) > LARGE_BYTES:
                request = self._decode_now(route.api_key, frame, version, body)
                if request is None:
                    self._decode_later(route, header, frame, body, connection, slot)
                    return True
            else:
                request = decode(request_class(route.api_key), frame, version, body)
        except ProtocolError as error:
            raise BadFrame(f"a request that does not parse: {error}") from error
        return self._admit(request, self._context(route, header, connection, len(frame)), connection, slot, len(frame))

    def _answer_token(
        self, authentication: "Authentication", frame: memoryview, connection: Connection, slot: ReplySlot
    ) -> None:
        """After version 0 of SaslHandshake. A refusal has no place in the answer: it closes the connection."""
        audit = self._services.audit
        try:
            challenge = authentication.respond(bytes(frame))
        except ApiError as refused:
            if audit is not None:
                audit.not_authenticated(connection, authentication.claimed, authentication.mechanism, str(refused))
            raise BadFrame(str(refused)) from refused
        if authentication.principal is not None:
            connection.authenticated()
            if audit is not None and authentication.is_complete:
                audit.authenticated(connection, authentication.principal, authentication.mechanism)
        slot.fill((len(challenge).to_bytes(4, "big") + challenge,))

    def _decode_now(self, api_key: ApiKey, frame: memoryview, version: int, body: int) -> Message | None:
        """Decode a large Produce or Fetch: most are large only because of their records. None if that takes long."""
        if api_key is not ApiKey.PRODUCE and api_key is not ApiKey.FETCH:
            return None
        decoded = self._slices.begin(decode_steps(request_class(api_key), frame, version, body))
        return None if decoded is None else decoded.result

    def _decode_later(
        self, route: Route, header: RequestHeader, frame: memoryview, body: int, connection: Connection, slot: ReplySlot
    ) -> None:
        """Decode a large request in slices, and handle nothing else of its connection before."""
        kept = connection.kept(frame)
        context = self._context(route, header, connection, len(kept))
        steps = decode_steps(request_class(route.api_key), kept, header.api_version, body)
        slot.request_bytes = len(frame)
        release = connection.hold()

        async def decode_and_handle() -> None:
            try:
                request = await self._slices.run(steps)
                self._admit(request, context, connection, slot, len(kept))
            except (ProtocolError, BadFrame) as error:
                log.warning("closing %s: a request that does not parse: %s", connection.describe(), error)
                connection.close()
            finally:
                release()

        self._spawn(decode_and_handle(), context)

    def _spawn(
        self,
        work: Coroutine[Any, Any, None],
        context: RequestContext,
        answer: Coroutine[Any, Any, Message | Deferred[Any] | None] | None = None,
    ) -> None:
        if context.metered is not None:
            work = timed(work, context.metered.spend, self._now)
        task = self._services.loop.create_task(work)
        self._tasks[task] = answer
        task.add_done_callback(self._tasks.pop)

    def _context(
        self, route: Route, header: RequestHeader, connection: Connection, request_bytes: int
    ) -> RequestContext:
        context = RequestContext(
            route.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            connection,
        )
        context.is_large = request_bytes > LARGE_BYTES
        if self._quotas.enforced is not None:
            self._metered = context.metered = self._quotas.enforced.begin(context, request_bytes)
        return context

    def _admit(
        self, request: Message, context: RequestContext, connection: Connection, slot: ReplySlot, request_bytes: int
    ) -> bool:
        """Handle a request, at once or after the store was asked for its sender; returns as `_dispatch`."""
        claimed = self._claims.get(context.api_key)
        claim = None if claimed is None else claimed(request)
        if claim is not None:
            context.from_broker = self._gate.admits(claim, context)
            if not context.from_broker:
                self._spawn(self._judge(claim, request, context, connection, slot), context)
                slot.request_bytes = request_bytes
                return True
        return self._handle(request, context, connection, slot, request_bytes)

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
    ) -> bool:
        """Returns as `_dispatch`."""
        try:
            answer = self._handlers[context.api_key](request, context)
        except BadFrame:
            raise
        except Exception as error:
            self._answer_failure(error, context, connection, slot)
            return False
        if isinstance(answer, Message):
            self._answer(answer, context, connection, slot)
        elif isinstance(answer, Deferred):
            self._answer_when_complete(answer, context, connection, slot)
            if answer.keeps_request and not slot.filled:
                slot.request_bytes = request_bytes
        elif answer is None:
            self._answer(None, context, connection, slot)
        else:
            assert isinstance(answer, Coroutine)
            self._spawn(self._answer_later(answer, context, connection, slot), context, answer)
            slot.request_bytes = request_bytes
            return True
        return False

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
        answer: Coroutine[Any, Any, Message | Deferred[Any] | None],
        context: RequestContext,
        connection: Connection,
        slot: ReplySlot,
    ) -> None:
        try:
            response = await answer
        except Exception as error:
            self._answer_failure(error, context, connection, slot)
            return
        if isinstance(response, Deferred):
            self._answer_when_complete(response, context, connection, slot)
        else:
            self._answer(response, context, connection, slot)

    def _answer_when_complete(
        self, answer: Deferred[Any], context: RequestContext, connection: Connection, slot: ReplySlot
    ) -> None:
        if connection.closed:  # while it was worked on
            if answer.on_abandoned is not None:
                answer.on_abandoned()
            return
        slot.on_abandoned = answer.on_abandoned
        answer.deliver_to(lambda response: self._answer(response, context, connection, slot))

    def _answer(
        self, response: Message | Exception | None, context: RequestContext, connection: Connection, slot: ReplySlot
    ) -> None:
        """Raises nothing: callers that complete parked requests have others to serve."""
        if isinstance(response, Exception):
            self._answer_failure(response, context, connection, slot)
            return
        if context.metered is not None:
            self._throttle(response, context.metered, context, connection)
        if response is None:
            slot.fill(())
            return
        if self.count_errors is not None:
            self.count_errors(context.api_key, response)
        try:
            if context.api_key in SMALL_ANSWERS and not context.is_large:
                pieces = _encode(response, context.api_version, context.correlation_id)
            else:
                steps = encode_response_steps(response, context.api_version, context.correlation_id)
                encoded = self._slices.begin(steps)
                if encoded is None:
                    self._spawn(self._encode_later(steps, context, connection, slot), context)
                    return
                pieces = cast("list[Piece]", encoded.result)
        except Exception as error:
            self._answer_failure(error, context, connection, slot)
            return
        slot.fill(pieces)

    def _throttle(
        self, response: Message | None, metered: "Metered", context: RequestContext, connection: Connection
    ) -> None:
        """Account for a request, and handle no further one of its connection while the client is above a quota."""
        if metered is self._metered:
            now = self._now()
            metered.spend(now - self._measured_until)
            self._measured_until = now
        if context.from_broker or context.api_key in EXEMPT:
            return
        throttle_ms = metered.answered(has_answer=response is not None)
        if throttle_ms:
            if response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
            connection.mute(throttle_ms / 1000)

    async def _encode_later(
        self, steps: Steps[list[Any]], context: RequestContext, connection: Connection, slot: ReplySlot
    ) -> None:
        try:
            slot.fill(await self._slices.run(steps))
        except Exception as error:
            self._answer_failure(error, context, connection, slot)

    def _answer_failure(
        self, error: Exception, context: RequestContext, connection: Connection, slot: ReplySlot
    ) -> None:
        """A handler failed as a whole: say so where the response has room for it, close the connection where not."""
        if isinstance(error, BadFrame):  # from a request that had to wait; others close the connection at once
            log.warning("closing %s: %s", connection.describe(), error)
            connection.close()
            return
        code = error.code if isinstance(error, OttlaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        # An ApiError is an answer: the code that raised it has logged any defect.
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
            if context.metered is not None:
                self._throttle(response, context.metered, context, connection)
            if self.count_errors is not None:
                self.count_errors(context.api_key, response)
            slot.fill(_encode(response, context.api_version, context.correlation_id))

    def _answer_unknown_api_versions(self, correlation_id: int, slot: ReplySlot) -> None:
        handler = import_module(self._routes[ApiKey.API_VERSIONS].handler_module)
        slot.fill(_encode(handler.supported(ErrorCode.UNSUPPORTED_VERSION), 0, correlation_id))


def _encode(response: Message, version: int, correlation_id: int) -> list[Piece]:
    # The opaque pieces that the encoder lets through are what handlers put into records fields: file regions.
    return cast("list[Piece]", encode_response(response, version, correlation_id))
