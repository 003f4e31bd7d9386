"""What leaders propose, on its way to the controller and back."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicId, TopicName, TopicPartition
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.replication.alter_partition_manager import AlterPartitionManager
from ottla.replication.decisions.in_sync import InSyncReplicas, Proposal

TOPIC_ID = TopicId(UUID(int=7))
ISR = (BrokerId(1), BrokerId(2))


def partition() -> Mock:
    """Led by broker 1, which has not confirmed that yet."""
    made = Mock(topic_partition=TopicPartition(TopicName("t"), PartitionId(0)))
    made.log.topic_id = TOPIC_ID
    made.isr = ISR
    made.in_sync = InSyncReplicas(
        BrokerId(1),
        ISR,
        ISR,
        leader_epoch=LeaderEpoch(4),
        partition_epoch=7,
        epoch_start=Offset(0),
        lag_s=10.0,
        now=0.0,
        is_confirmed=False,
    )
    return made


def answer(code: ErrorCode) -> AlterPartitionResponse:
    data = ResponsePartitionData(
        partition_index=0, error_code=code, leader_id=1, leader_epoch=4, isr=list(ISR), partition_epoch=8
    )
    return AlterPartitionResponse(topics=[ResponseTopicData(topic_id=TOPIC_ID, partitions=[data])])


def proposed(led: Mock, code: ErrorCode, done: Callable[[], bool]) -> list[AlterPartitionRequest]:
    return asyncio.run(_proposed(led, code, done))


async def _proposed(led: Mock, code: ErrorCode, done: Callable[[], bool]) -> list[AlterPartitionRequest]:
    asked: list[AlterPartitionRequest] = []

    async def ask(request: Any, _version: int) -> AlterPartitionResponse:
        asked.append(request)
        return answer(code)

    manager = AlterPartitionManager(BrokerId(1), lambda: 11, ask, asyncio.get_running_loop())
    proposal: Proposal = led.in_sync.propose_confirmation()
    manager.propose(led, proposal)
    async with asyncio.timeout(10):
        while not done():
            await asyncio.sleep(0)
    await manager.close()
    return asked


def test_a_confirmation_is_the_in_sync_set_as_it_is() -> None:
    led = partition()
    (request,) = proposed(led, ErrorCode.NONE, lambda: led.apply_isr.called)
    (data,) = request.topics[0].partitions
    assert [state.broker_id for state in data.new_isr_with_epochs] == [1, 2]
    assert (data.leader_epoch, data.partition_epoch, data.leader_recovery_state) == (4, 7, 0)
    led.apply_isr.assert_called_once_with(ISR, 8)


def test_what_a_withdrawn_proposal_held_back_is_committed() -> None:
    led = partition()
    proposed(led, ErrorCode.INELIGIBLE_REPLICA, lambda: led.advance.called)
    assert led.in_sync.pending is None


def test_what_is_asked_for_thousands_of_partitions_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async def ask(request: Any, _version: int) -> AlterPartitionResponse:
            parts = [
                ResponsePartitionData(
                    partition_index=part.partition_index,
                    error_code=ErrorCode.INELIGIBLE_REPLICA,
                    leader_id=1,
                    leader_epoch=4,
                    isr=[],
                    partition_epoch=8,
                )
                for part in request.topics[0].partitions
            ]
            return AlterPartitionResponse(topics=[ResponseTopicData(topic_id=TOPIC_ID, partitions=parts)])

        manager = AlterPartitionManager(BrokerId(1), lambda: 11, ask, asyncio.get_running_loop())
        for number in range(2000):
            led = partition()
            led.topic_partition = TopicPartition(TopicName("t"), PartitionId(number))
            led.isr = ISR[:1]
            led.in_sync.pending = None
            manager.propose(led, Proposal(ISR, (7, 7), LeaderEpoch(4), 7))
        await asyncio.sleep(0.05)
        await manager.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(story())
    asked, refused = caplog.messages
    assert (
        asked
        == "t-0: asks for the in-sync replicas to be [1, 2], which are [1] now; so it is with 1999 other partitions"
    )
    assert refused.startswith(
        "t-0: the controller refuses [1, 2] for [1]: INELIGIBLE_REPLICA; so it is with 1999 other"
    )
