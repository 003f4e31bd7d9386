"""Headers and sizes around messages; classes and header versions by API key."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_reader

from ottla.protocol.api import ApiKey, request_class, request_header_version, response_class, response_header_version
from ottla.protocol.compiled import decode, encode
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.framing import (
    RequestHeader,
    decode_request_header,
    decode_response,
    decode_response_header,
    encode_request,
    encode_response,
    peek_request,
)
from ottla.protocol.messages import headers
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.primitives import Piece


def frame(pieces: list[Piece]) -> bytes:
    """The pieces without the size, which must be right."""
    whole = b"".join(pieces)  # type: ignore[arg-type]  # no opaque pieces in these tests
    assert struct.unpack_from(">i", whole) == (len(whole) - 4,)
    return whole[4:]


HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")


class TestRequests:
    @pytest.mark.parametrize("client_id", [None, "", "rdkafka", "größe"])
    @pytest.mark.parametrize(("version", "kio_header"), [(0, KioHeader1), (3, KioHeader1), (4, KioHeader2)])
    def test_round_trip_and_kio(self, version: int, kio_header: type, client_id: str | None) -> None:
        data = frame(encode_request(HEARTBEAT, version, 42, client_id))
        header, body = decode_request_header(memoryview(data))
        assert header == RequestHeader(ApiKey.HEARTBEAT, version, 42, client_id)
        assert decode(HeartbeatRequest, data, version, body) == HEARTBEAT
        read: Any
        read, size = entity_reader(kio_header)(data, 0)
        assert (read.request_api_key, read.request_api_version, read.correlation_id) == (12, version, 42)
        assert (read.client_id, size) == (client_id, body)

    @pytest.mark.parametrize("version", [1, 2])
    def test_the_declared_header_is_what_framing_writes(self, version: int) -> None:
        data = frame(encode_request(HEARTBEAT, 3 if version == 1 else 4, 5, "me"))
        declared = headers.RequestHeader(
            request_api_key=12, request_api_version=3 if version == 1 else 4, correlation_id=5, client_id="me"
        )
        assert data.startswith(b"".join(cast(list[bytes], encode(declared, version))))

    def test_tagged_fields_in_the_header_are_skipped(self) -> None:
        data = struct.pack(">hhih", 12, 4, 1, -1) + b"\2\5\1x\6\0" + b"body"
        assert decode_request_header(data) == (RequestHeader(12, 4, 1, None), len(data) - 4)

    def test_the_oldest_controlled_shutdown_has_no_client_id(self) -> None:
        request = ControlledShutdownRequest(broker_id=3)
        data = frame(encode_request(request, 0, 9, "ignored"))
        assert data == struct.pack(">hhii", 7, 0, 9, 3)
        assert decode_request_header(data) == (RequestHeader(7, 0, 9, None), 8)

    def test_a_version_the_api_lacks_still_has_a_header(self) -> None:
        data = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 1, 2) + b"me\0whatever"
        assert decode_request_header(data)[0] == RequestHeader(18, 99, 1, "me")
        with pytest.raises(UnsupportedVersion):
            decode(ApiVersionsRequest, data, 99, 13)

    def test_an_api_nobody_knows(self) -> None:
        data = struct.pack(">hhih", 999, 0, 77, -1)
        with pytest.raises(UnsupportedVersion, match="999"):
            decode_request_header(data)
        assert peek_request(data) == (999, 0, 77)

    def test_damage(self) -> None:
        data = frame(encode_request(HEARTBEAT, 4, 42, "client"))
        _, body = decode_request_header(data)
        for cut in range(body):
            with pytest.raises(MalformedMessage):
                decode_request_header(data[:cut])
        for cut in range(8):
            with pytest.raises(MalformedMessage):
                peek_request(data[:cut])
        for bad in (
            struct.pack(">hhih", 12, 4, 1, 30_000),
            struct.pack(">hhih", 12, 4, 1, 2) + b"\xff\xff\0",
            struct.pack(">hhih", 12, 4, 1, -1) + b"\1\0\x7f",
            struct.pack(">hhih", 12, 4, 1, -1) + b"\xff\xff\xff\xff\xff",
        ):
            with pytest.raises(MalformedMessage):
                decode_request_header(bad)


class TestResponses:
    @pytest.mark.parametrize(("version", "header"), [(3, b"\0\0\0\x2a"), (4, b"\0\0\0\x2a\0")])
    def test_round_trip(self, version: int, header: bytes) -> None:
        response = HeartbeatResponse(throttle_time_ms=1, error_code=27)
        data = frame(encode_response(response, version, 42))
        assert data.startswith(header + b"\0\0\0\1")
        assert decode_response(ApiKey.HEARTBEAT, version, data) == (42, response)
        assert decode_response_header(ApiKey.HEARTBEAT, version, data) == (42, len(header))

    @pytest.mark.parametrize("version", ApiVersionsResponse.VERSIONS)
    def test_api_versions_never_has_tagged_fields_in_its_header(self, version: int) -> None:
        response = ApiVersionsResponse(error_code=35, api_keys=[])
        data = frame(encode_response(response, version, 1))
        assert data.startswith(b"\0\0\0\1\0\x23")
        assert decode_response(18, version, data) == (1, response)

    def test_the_size_counts_records(self) -> None:
        partition = PartitionData(
            partition_index=0, high_watermark=1, aborted_transactions=[], records=[b"a" * 500, b"b"]
        )
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
        for version in (4, 12):
            data = frame(encode_response(response, version, 8))
            _, decoded = decode_response(ApiKey.FETCH, version, data)
            assert decoded.responses[0].partitions[0].records == b"a" * 500 + b"b"

    def test_damage(self) -> None:
        data = frame(encode_response(HeartbeatResponse(), 4, 42))
        for cut in range(len(data)):
            with pytest.raises(MalformedMessage):
                decode_response(ApiKey.HEARTBEAT, 4, data[:cut])

    def test_only_requests_and_responses_are_framed(self) -> None:
        with pytest.raises(TypeError, match="neither"):
            encode_response(headers.ResponseHeader(correlation_id=1), 0, 1)


class TestApis:
    @pytest.mark.parametrize("api_key", ApiKey)
    def test_classes_are_found(self, api_key: ApiKey) -> None:
        request, response = request_class(api_key), response_class(api_key)
        assert request.API_KEY is response.API_KEY is api_key
        assert request.__name__.removesuffix("Request") == response.__name__.removesuffix("Response")
        assert request.VERSIONS == response.VERSIONS
        assert request.FLEXIBLE_SINCE == response.FLEXIBLE_SINCE
        for version in request.VERSIONS:
            flexible = version >= request.FLEXIBLE_SINCE
            assert response_header_version(api_key, version) == (flexible and api_key != ApiKey.API_VERSIONS)
            oldest = api_key == ApiKey.CONTROLLED_SHUTDOWN and version == 0
            assert request_header_version(api_key, version) == (0 if oldest else 1 + flexible)

    @pytest.mark.parametrize("api_key", [-1, 93, 1000])
    def test_others_are_not(self, api_key: int) -> None:
        with pytest.raises(UnsupportedVersion):
            request_class(api_key)
        with pytest.raises(UnsupportedVersion):
            response_class(api_key)
