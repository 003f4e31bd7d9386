"""Errors in answers, found by the declarations of their classes."""

import importlib
import pkgutil

import pytest

from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.protocol.primitives import Encoded
from ottla.protocol.schema import Message
from ottla.server.metrics.error_counts import MOST_PARTS, ErrorCounts


def produced(*codes: ErrorCode) -> ProduceResponse:
    parts = [PartitionProduceResponse(index=index, error_code=code, base_offset=0) for index, code in enumerate(codes)]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=parts)])


def test_errors_count_by_api_and_code_and_success_does_not() -> None:
    errors = ErrorCounts()
    errors(ApiKey.PRODUCE, produced(ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    errors(ApiKey.PRODUCE, produced(ErrorCode.NONE))
    errors(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    errors(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=999))
    assert sorted(errors.by_name()) == [
        (ApiKey.PRODUCE, "NOT_LEADER_OR_FOLLOWER", 2),
        (ApiKey.HEARTBEAT, "999", 1),
        (ApiKey.HEARTBEAT, "REBALANCE_IN_PROGRESS", 1),
    ]


def test_a_part_that_is_encoded_has_no_error_that_could_be_seen() -> None:
    errors = ErrorCounts()
    part = PartitionData(
        partition_index=0,
        error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
        high_watermark=-1,
        aborted_transactions=None,
        records=None,
    )
    topic = FetchableTopicResponse(topic="t", partitions=[part])
    errors(ApiKey.FETCH, FetchResponse(error_code=0, session_id=0, responses=[Encoded(b"xyz"), topic]))  # type: ignore[list-item]
    assert errors.by_name() == [(ApiKey.FETCH, "OFFSET_OUT_OF_RANGE", 1)]


def test_of_many_parts_the_first_ones_are_looked_at() -> None:
    errors = ErrorCounts()
    errors(ApiKey.PRODUCE, produced(*[ErrorCode.INVALID_RECORD] * (MOST_PARTS + 9)))
    assert errors.by_name() == [(ApiKey.PRODUCE, "INVALID_RECORD", MOST_PARTS)]


@pytest.mark.parametrize("name", [each.name for each in pkgutil.iter_modules(messages.__path__)])
def test_every_answer_can_be_looked_at(name: str) -> None:
    module = importlib.import_module(f"{messages.__name__}.{name}")
    answers = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Message) and each.__name__.endswith("Response")
    ]
    errors = ErrorCounts()
    for answer in answers:
        if answer.__module__ == module.__name__ and "error_code" in answer.__slots__:
            assert errors._look_of(answer) is not None
