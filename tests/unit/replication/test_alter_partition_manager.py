"""What leaders propose, on its way to the controller and back."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock
from uuid import UUID

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
