"""The session alone: frames, correlation, versions and the handshake, also with bytes no broker would send."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import AuthenticationFailed, ClientError, NotABroker, UnsupportedRequest
from ottla.client.sansio.handshake import API_VERSIONS_VERSION, handshake
from ottla.client.sansio.sasl import Mechanism, Plain
from ottla.client.sansio.session import (
    LARGEST_FRAME_BYTES,
    Answer,
    Memory,
    ReusedMemory,
    Session,
    State,
    fresh_memory,
)
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.framing import decode_request_header, encode_response
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.protocol.messages.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeResponse
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.schema import Message

VERSION = 3
REQUEST = ControlledShutdownRequest(broker_id=1)
LARGEST = 1 << 16


def new_session(mechanism: Mechanism | None = None) -> Session:
    return Session("b:9", "me", handshake=handshake(mechanism), largest_frame_bytes=LARGEST)


def plain_session() -> Session:
    return Session("b:9", "me", largest_frame_bytes=LARGEST)


def framed(message: Message, version: int, correlation_id: int) -> bytes:
    return b"".join(bytes(piece) for piece in encode_response(message, version, correlation_id))  # type: ignore[arg-type]


def shutdown_answer(correlation_id: int, error: int = 0) -> bytes:
    return framed(ControlledShutdownResponse(error_code=error, remaining_partitions=[]), VERSION, correlation_id)


def feed(session: Session, data: bytes, piece: int = 1 << 20) -> list[Answer]:
    """Have the session take these bytes in, at most `piece` at a time."""
    answers = []
    while data:
        target = session.buffer()
        assert len(target) > 0
        count = min(len(target), len(data), piece)
        target[:count], data = data[:count], data[count:]
        answer = session.received(count)
        if answer is not None:
            answers.append(answer)
    return answers


def sent(session: Session) -> tuple[int, int]:
    """API key and version of the request that was sent."""
    frame = b"".join(bytes(piece) for piece in session.outgoing())
    header, _ = decode_request_header(frame, 4)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return header.api_key, header.api_version


def served(*keys: ApiVersion, error: int = 0) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error, api_keys=list(keys))


METADATA_7 = ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=7)
SASL = (
    ApiVersion(api_key=ApiKey.SASL_HANDSHAKE, min_version=0, max_version=1),
    ApiVersion(api_key=ApiKey.SASL_AUTHENTICATE, min_version=0, max_version=1),
)


@given(st.integers(1, 40), st.lists(st.integers(0, 100), min_size=1, max_size=4))
def test_answers_come_in_any_pieces_and_in_order(piece: int, errors: list[int]) -> None:
    session = plain_session()
    numbers = [session.send(REQUEST, VERSION) for _ in errors]
    stream = b"".join(shutdown_answer(number, error) for number, error in zip(numbers, errors, strict=True))
    answers = feed(session, stream, piece)
    assert [(answer.correlation_id, answer.message.error_code) for answer in answers] == list(
        zip(numbers, errors, strict=True)
    )


@given(st.binary(max_size=300), st.integers(0, 3), st.booleans())
def test_hostile_bytes_end_in_a_clear_error_or_wait_for_more(data: bytes, requests: int, negotiates: bool) -> None:
    """Whatever comes: never another exception, never more memory than allowed, never an answer to nothing."""
    session = new_session() if negotiates else plain_session()
    if not negotiates:
        for _ in range(requests):
            session.send(REQUEST, VERSION)
    problem = ""
    answers: list[Answer] = []
    try:
        answers = feed(session, data)
    except ClientError as error:
        problem = str(error)
    assert problem.startswith("b:9 " if session.state is State.CLOSED else "")
    assert bool(problem) is (session.state is State.CLOSED)
    assert len(answers) <= requests
    assert len(session.buffer()) <= LARGEST


ASKED = (
    DescribeProducersRequest(topics=[]),
    DescribeTransactionsRequest(transactional_ids=[]),
    FindCoordinatorRequest(coordinator_keys=["g"]),
    ListGroupsRequest(),
    MetadataRequest(topics=[]),
    ShareGroupDescribeRequest(group_ids=[], include_authorized_operations=False),
    StreamsGroupDescribeRequest(group_ids=[], include_authorized_operations=False),
)
LENGTHS = st.sampled_from([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x00", b"\x01", b"\x02", b"\xff"])
"""Counts of arrays that lie, among others."""


@given(st.sampled_from(ASKED), st.lists(st.binary(max_size=12) | LENGTHS, max_size=12))
def test_a_frame_with_any_content_is_an_answer_or_a_clear_error(request: Message, parts: list[bytes]) -> None:
    session = plain_session()
    number = session.send(request, type(request).VERSIONS[-1])
    frame = number.to_bytes(4, "big") + b"\0" + b"".join(parts)
    try:
        answers = feed(session, len(frame).to_bytes(4, "big") + frame)
    except NotABroker:
        answers = []
    assert len(answers) == (session.state is State.READY)


@given(st.integers(0, 40), st.integers(0, 255))
def test_an_answer_with_a_changed_byte_is_refused_or_read(position: int, byte: int) -> None:
    session = new_session()
    frame = bytearray(framed(served(METADATA_7), API_VERSIONS_VERSION, 1))
    frame[position % len(frame)] = byte
    with suppress(ClientError):
        feed(session, bytes(frame))


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "as a Kafka broker: it announces an answer of 1213486160",
        ),
        (b"\0\0\0\3abc", "an answer of 3 bytes"),
        (b"\xff\xff\xff\xff", "an answer of -1 bytes"),
        ((LARGEST + 1).to_bytes(4, "big"), f"an answer of {LARGEST + 1} bytes"),
        (b"\0\0\0\4\0\0\0\1", "its answer does not parse"),
        (shutdown_answer(2), "answers another request than the one that was sent"),
        (shutdown_answer(1) * 2, "sends an answer to no request"),
    ],
)
def test_what_is_no_answer_closes_the_session(stream: bytes, complaint: str) -> None:
    session = plain_session()
    session.send(REQUEST, VERSION)
    with pytest.raises(NotABroker, match=complaint):
        feed(session, stream)
    assert session.state is State.CLOSED


def test_the_newest_version_that_both_ends_know_is_used() -> None:
    session = new_session()
    assert sent(session) == (ApiKey.API_VERSIONS, API_VERSIONS_VERSION)
    assert session.state is State.NEGOTIATING
    assert feed(session, framed(served(METADATA_7), API_VERSIONS_VERSION, 1)) == []
    assert session.state is State.READY
    assert session.version(ApiKey.METADATA) == 7
    assert session.version(ApiKey.METADATA, 5) == 5
    with pytest.raises(UnsupportedRequest, match="the broker at b:9 does not serve ListOffsets in a version known"):
        session.version(ApiKey.LIST_OFFSETS)
    with pytest.raises(UnsupportedRequest, match="too old for this request"):
        session.send(ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[]), 1)
    session.send(MetadataRequest(topics=[]), 7)
    assert sent(session) == (ApiKey.METADATA, 7)


@pytest.mark.parametrize(
    ("offered", "then"),
    [
        ([ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)], 2),  # since Kafka 2.4: KIP-511
        ([], 0),
        ([ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=9)], API_VERSIONS_VERSION - 1),
    ],
)
def test_a_broker_that_does_not_know_the_version_is_asked_in_one_it_does(offered: list[ApiVersion], then: int) -> None:
    session = new_session()
    sent(session)
    feed(session, framed(served(*offered, error=ErrorCode.UNSUPPORTED_VERSION), 0, 1))
    assert sent(session) == (ApiKey.API_VERSIONS, then)
    feed(session, framed(served(METADATA_7), then, 2))
    assert session.version(ApiKey.METADATA) == 7


def test_a_broker_that_knows_no_version_is_not_asked_for_ever() -> None:
    session = new_session()
    refusals = b"".join(framed(served(error=ErrorCode.UNSUPPORTED_VERSION), 0, number) for number in range(1, 10))
    with pytest.raises(NotABroker, match="does not say what it serves: error 35"):
        feed(session, refusals)
    assert session.state is State.CLOSED


def test_authentication_comes_before_requests() -> None:
    session = new_session(mechanism=Plain("user", "secret"))
    sent(session)
    feed(session, framed(served(*SASL), API_VERSIONS_VERSION, 1))
    assert sent(session) == (ApiKey.SASL_HANDSHAKE, 1)
    feed(session, framed(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1, 2))
    assert session.state is State.NEGOTIATING
    assert sent(session) == (ApiKey.SASL_AUTHENTICATE, 1)
    feed(session, framed(SaslAuthenticateResponse(auth_bytes=b""), 1, 3))
    assert session.state is State.READY


@pytest.mark.parametrize("refused_at", ["mechanism", "password"])
def test_a_refusal_to_authenticate_closes_the_session(refused_at: str) -> None:
    session = new_session(mechanism=Plain("user", "secret"))
    feed(session, framed(served(*SASL), API_VERSIONS_VERSION, 1))
    if refused_at == "mechanism":
        answer = SaslHandshakeResponse(
            error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["SCRAM-SHA-256", "GSSAPI"]
        )
        with pytest.raises(AuthenticationFailed, match="b:9 does not accept SASL mechanism PLAIN; it accepts SCRAM-"):
            feed(session, framed(answer, 1, 2))
    else:
        feed(session, framed(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1, 2))
        refused = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="wrong", auth_bytes=b""
        )
        with pytest.raises(AuthenticationFailed, match="b:9 does not authenticate this client: wrong"):
            feed(session, framed(refused, 1, 3))
    assert session.state is State.CLOSED


@pytest.mark.parametrize("memory", [fresh_memory, ReusedMemory(100)])
def test_an_announced_answer_takes_memory_only_as_it_arrives(memory: Memory) -> None:
    """Four bytes of a server that speaks something else must not take a gigabyte, and a second to fill it."""
    before = _resident_pages()
    frame = memory(LARGEST_FRAME_BYTES)
    frame[:5] = b"bytes"
    assert len(frame) == LARGEST_FRAME_BYTES
    assert _resident_pages() - before < 4_096


def _resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def test_reused_memory_grows_and_shrinks() -> None:
    memory = ReusedMemory(100)
    first = memory(1 << 20)
    assert memory(1 << 20).obj is first.obj
    assert memory(1 << 18).obj is first.obj
    assert len(memory(10)) == 10
    assert memory(10).obj is not first.obj
