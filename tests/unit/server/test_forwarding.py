"""Requests in Envelopes: what the controller gets, and what becomes of its answers."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.errors import BrokerUnavailable, UnsupportedRequest
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.api import ApiKey, request_class
from ottla.protocol.compiled import decode
from ottla.protocol.framing import decode_request_header, encode_response
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.principal import DefaultPrincipalData
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.versioned import decode_versioned
from ottla.server.forwarding import Forwarder

VERSION = 3
METADATA: Any = SimpleNamespace(config=BrokerConfig({}), static_config=BrokerConfig({}))
REQUEST = CreatePartitionsRequest(
    topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=1000, validate_only=False
)
ANSWER = CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t", error_code=37, error_message="no")])


class Channel:
    """A controller that answers with one thing, or raises it."""

    def __init__(self, answer: EnvelopeResponse | Exception) -> None:
        self.answer = answer
        self.asked: list[EnvelopeRequest] = []

    async def ask(self, request: Any, version: int | None = None, *, timeout_s: float) -> Any:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def context(principal: str = "User:alice:bob", host: str = "::1", *, by_token: bool = False) -> Any:
    return SimpleNamespace(
        api_key=ApiKey.CREATE_PARTITIONS,
        api_version=VERSION,
        correlation_id=77,
        client_id="admin",
        principal=principal,
        client_host=host,
        listener="PLAINTEXT",
        is_forwarded=False,
        is_by_token=False,
        authentication=SimpleNamespace(is_by_token=by_token),
    )


def forwarded(answer: EnvelopeResponse | Exception, **about: Any) -> tuple[Any, EnvelopeRequest]:
    channel = Channel(answer)
    forwarder = Forwarder(channel, METADATA)  # type: ignore[arg-type]  # as far as it is used
    result = asyncio.run(forwarder.forward(REQUEST, context(**about)))
    return result, channel.asked[0]


def answered() -> EnvelopeResponse:
    framed = b"".join(bytes(piece) for piece in encode_response(ANSWER, VERSION, 77))  # type: ignore[arg-type]
    return EnvelopeResponse(response_data=framed[4:])


def test_the_request_the_principal_and_the_address_arrive() -> None:
    answer, envelope = forwarded(answered(), by_token=True)
    assert answer == ANSWER
    header, body = decode_request_header(memoryview(envelope.request_data))
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (37, VERSION, 77, "admin")
    assert decode(request_class(37), memoryview(envelope.request_data), VERSION, body) == REQUEST
    assert envelope.request_principal is not None
    principal = decode_versioned(DefaultPrincipalData, envelope.request_principal)
    assert (principal.type, principal.name, principal.token_authenticated) == ("User", "alice:bob", True)
    assert envelope.client_host_address == b"\0" * 15 + b"\1"


@pytest.mark.parametrize(("host", "length"), [("10.0.0.1", 4), ("fe80::1%eth0", 16)])
def test_addresses_of_both_kinds_are_sent_as_bytes(host: str, length: int) -> None:
    assert len(forwarded(answered(), host=host)[1].client_host_address) == length


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (BrokerUnavailable("no active controller"), ErrorCode.REQUEST_TIMED_OUT),
        (UnsupportedRequest("it knows no Envelope"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_clients_get_the_error_for_each_thing_as_from_genuine_brokers(answer: Any, code: ErrorCode) -> None:
    (result,) = forwarded(answer)[0].results
    assert (result.name, result.error_code) == ("t", code)
    assert result.error_message


def test_a_request_that_the_controller_does_not_know_has_no_answer() -> None:
    """The connection is closed, and the client asks for the versions again."""
    with pytest.raises(ApiError) as refused:
        forwarded(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_an_answer_of_one_result_is_made_by_the_connection() -> None:
    forwarder = Forwarder(Channel(BrokerUnavailable("none")), METADATA)  # type: ignore[arg-type]  # as far as it is used
    about = context()
    about.api_key, about.api_version = ApiKey.UNREGISTER_BROKER, 0
    with pytest.raises(ApiError) as refused:
        asyncio.run(forwarder.forward(UnregisterBrokerRequest(broker_id=1), about))
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_tokens_are_not_asked_for_in_plain_text() -> None:
    """The controller could not tell."""
    channel = Channel(answered())
    forwarder = Forwarder(channel, METADATA)  # type: ignore[arg-type]  # as far as it is used
    request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
    about = context()
    about.api_key = ApiKey.CREATE_DELEGATION_TOKEN
    with pytest.raises(ApiError) as refused:
        asyncio.run(forwarder.forward(request, about))
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert channel.asked == []


def test_levels_of_loggers_are_set_here_and_the_rest_is_forwarded() -> None:
    def resource(kind: int, name: str) -> AlterConfigsResource:
        return AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])

    def result(kind: int, name: str) -> AlterConfigsResourceResponse:
        return AlterConfigsResourceResponse(resource_type=kind, resource_name=name)

    set_here: list[Any] = []

    async def own(request: Any, about: Any) -> IncrementalAlterConfigsResponse:
        set_here.extend(each.resource_name for each in request.resources)
        return IncrementalAlterConfigsResponse(responses=[result(8, "1")])

    answer = IncrementalAlterConfigsResponse(responses=[result(2, "t")])
    framed = b"".join(bytes(piece) for piece in encode_response(answer, 1, 77))  # type: ignore[arg-type]
    channel = Channel(EnvelopeResponse(response_data=framed[4:]))
    forwarder = Forwarder(channel, METADATA)  # type: ignore[arg-type]  # as far as it is used
    handler: Any = forwarder.handler(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda: own)
    about = context()
    about.api_key, about.api_version = ApiKey.INCREMENTAL_ALTER_CONFIGS, 1
    both = IncrementalAlterConfigsRequest(resources=[resource(8, "1"), resource(2, "t")], validate_only=False)
    done = asyncio.run(handler(both, about))
    assert [(each.resource_type, each.resource_name) for each in done.responses] == [(2, "t"), (8, "1")]
    assert set_here == ["1"]
    sent = memoryview(channel.asked[0].request_data)
    _, body = decode_request_header(sent)
    forwarded_part: Any = decode(request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS), sent, 1, body)
    assert [each.resource_name for each in forwarded_part.resources] == ["t"]


def test_other_requests_are_handled_here() -> None:
    forwarder = Forwarder(Channel(answered()), METADATA)  # type: ignore[arg-type]  # as far as it is used
    assert forwarder.handler(ApiKey.PRODUCE, lambda: pytest.fail("not asked for")) is None
