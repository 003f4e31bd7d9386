"""Forwards requests that change metadata to the active controller, each in an Envelope (KIP-590).

    client --> this broker --> Envelope (request, principal, address) --> active controller
           <-- its answer  <-- Envelope

The controller authorizes the client by its principal; what an authorizer of this broker refuses is not forwarded at
all. While there is no active controller, a request waits for one, for `request.timeout.ms` at most.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import BrokerUnavailable, ClientError
from ottla.cluster.image import ResourceType
from ottla.errors import ApiError, ErrorCode
from ottla.metadata.controller_channel import ControllerConnections
from ottla.protocol.api import ApiKey
from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.principal import DefaultPrincipalData
from ottla.protocol.schema import Message
from ottla.protocol.versioned import encode_versioned
from ottla.server.context import RequestContext
from ottla.server.failures import failed_items
from ottla.server.token_requests import check_channel

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.server.routing import Handler

ENVELOPE_VERSION: Final = 0
PRINCIPAL_VERSION: Final = 0
_SIZE_BYTES: Final = 4
"""The size in front of a request, which an Envelope does without."""

FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""The requests that genuine Kafka's brokers forward."""

_OF_TOKENS: Final = frozenset(
    {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}
)
"""The controller does not see over which channel, and by which login, they came."""


class Forwarder:
    """Forwards one broker's requests. On the loop's thread."""

    def __init__(self, channels: ControllerConnections, metadata: "MetadataView") -> None:
        self._channels = channels
        self._metadata = metadata
        self._timeout_s = metadata.static_config.request_timeout_ms / 1000

    def handler(self, api_key: ApiKey, own: Callable[[], "Handler"]) -> "Handler | None":
        """What handles the requests of an API in place of this broker's `own` handler; None for one not forwarded."""
        if api_key not in FORWARDED:
            return None
        if api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return partial(self._alter_configs, own())
        return self.forward

    async def _alter_configs(self, own: "Handler", request: Any, context: RequestContext) -> Message:
        """The levels of loggers are this broker's own; the rest is forwarded, if there is any."""
        here = [each for each in request.resources if each.resource_type == ResourceType.BROKER_LOGGER]
        others = [each for each in request.resources if each.resource_type != ResourceType.BROKER_LOGGER]
        if not here:
            return await self.forward(request, context)

        def part(resources: list[Any]) -> IncrementalAlterConfigsRequest:
            return IncrementalAlterConfigsRequest(resources=resources, validate_only=request.validate_only)

        answers: list[Any] = []
        if others:
            forwarded: Any = await self.forward(part(others), context)
            answers += forwarded.responses
        answer = own(part(here), context)
        assert isinstance(answer, Coroutine)
        changed: Any = await answer
        return IncrementalAlterConfigsResponse(responses=[*answers, *changed.responses])

    async def forward(self, request: Message, context: RequestContext) -> Message:
        """The active controller's answer, or one that has the reason for each thing that would have been changed.

        The reason is REQUEST_TIMED_OUT if no controller answers in time, or UNKNOWN_SERVER_ERROR. `ApiError` is raised
        for APIs whose answer is one result, and with UNSUPPORTED_VERSION if the active controller does not know the
        request: genuine brokers close the connection, so that clients ask for the versions again.
        """
        try:
            return await self._forwarded(request, context)
        except ApiError as refused:
            answer = None
            if refused.code is not ErrorCode.UNSUPPORTED_VERSION:
                answer = failed_items(request, context.api_version, refused.code, str(refused))
            if answer is None:
                raise
            return answer

    async def _forwarded(self, request: Message, context: RequestContext) -> Message:
        if context.api_key in _OF_TOKENS:
            check_channel(self._metadata, context)
        framed = encode_request(request, context.api_version, context.correlation_id, context.client_id)
        envelope = EnvelopeRequest(
            request_data=b"".join(framed)[_SIZE_BYTES:],  # type: ignore[arg-type]  # no records
            request_principal=_principal(context),
            client_host_address=ip_address(context.client_host.partition("%")[0]).packed,
        )
        try:
            answer = await self._channels.ask(envelope, ENVELOPE_VERSION, timeout_s=self._timeout_s)
        except BrokerUnavailable as problem:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, str(problem)) from problem
        except ClientError as problem:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)) from problem
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.UNSUPPORTED_VERSION:
                raise ApiError(code, f"the active controller does not know version {context.api_version} of this")
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the active controller answers {code.name}")
        _, response = decode_response(context.api_key, context.api_version, answer.response_data)
        found: Message = response
        return found


def _principal(context: RequestContext) -> bytes:
    kind, _, name = context.principal.partition(":")
    authentication = context.authentication
    by_token = authentication is not None and authentication.is_by_token
    return encode_versioned(DefaultPrincipalData(type=kind, name=name, token_authenticated=by_token), PRINCIPAL_VERSION)
