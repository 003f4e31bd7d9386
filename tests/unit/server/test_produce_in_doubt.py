"""Answers to producers of a leader that may have been replaced."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.errors import ErrorCode, OutOfOrderSequence
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.records.record import Record, encode_batch
from ottla.replication.refused_producers import SentBack
from ottla.server.handlers.produce import handle


class GapPartition:
    """A log that lacks what the batch follows."""

    def append(self, *_: object, **__: object) -> None:
        raise OutOfOrderSequence("7 was to follow, not 9")


@pytest.mark.parametrize(
    ("holds_session", "answer"),
    [(True, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
)
def test_who_may_lead_no_more_does_not_call_records_lost(holds_session: bool, answer: ErrorCode) -> None:
    """The successor may have them: with this answer a producer looks there, and would else give up or begin anew."""
    partition = GapPartition()
    replicas = SimpleNamespace(
        for_produce=lambda *_: partition, holds_session=lambda: holds_session, sent_back=SentBack()
    )
    broker = SimpleNamespace(
        replicas=replicas, verifier=SimpleNamespace(verifies=False), config=SimpleNamespace(node_id=1)
    )
    batch = encode_batch([Record(0, 0, None, b"v")], producer_id=5, producer_epoch=0, base_sequence=9)
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    context = cast("Any", SimpleNamespace(api_version=9, client_id="c", is_large=False))
    response = handle(cast("Any", broker), request, context)
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == answer
