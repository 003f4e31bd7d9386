"""What a broker does with requests of two controllers that come at the same time."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.cluster.controller_requests import ALL_STATES, SOME_STATES
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicId, TopicName
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.replication.roles import ReplicaRoles
from ottla.server.context import RequestContext
from ottla.server.controller_connection import ControllerConnection
from ottla.server.framer import BadFrame
from ottla.server.handlers import leader_and_isr, stop_replica, update_metadata
from ottla.testing.manual_clock import ManualClock


class Metadata:
    """Reading settings takes until `read` is set."""

    def __init__(self) -> None:
        self.epoch = 0
        self.broker_id = 1
        self.read = asyncio.Event()
        self.registered = asyncio.Event()

    async def until_registered(self) -> None:
        await self.registered.wait()

    def check_controller(self, controller_epoch: int, broker_epoch: int) -> None:
        if controller_epoch < self.epoch:
            raise ApiError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.epoch = controller_epoch

    async def learn_settings(self, topics: Mapping[TopicId, TopicName]) -> None:
        await self.read.wait()

    async def learn_settings_soon(self, topics: Mapping[TopicId, TopicName]) -> None:
        """The patience for settings has ended."""


class Replicas:
    """The requests that it gets."""

    def __init__(self) -> None:
        self.became: list[str] = []
        self.dropped: list[tuple[object, ...]] = []

    def partitions(self) -> list[Any]:
        return [SimpleNamespace(topic_partition=("held", 0))]

    def find(self, topic: UUID, partition: int) -> None:
        return None

    def become(self, name: str, *role: object, is_new: bool, is_confirmed: bool) -> None:
        self.became.append(name)

    def remove_replica(self, *replica: object, keep_files: bool = False) -> None:
        self.dropped.append(replica)

    async def prepare_logs(self, new: object) -> list[object]:
        return []

    async def reopen_logs(self, partitions: object) -> None:
        pass

    def remove_unclaimed(self, made: object) -> None:
        pass

    def set_strays_aside(self, kept: object, most: int) -> bool:
        return False


def request(epoch: int, *topics: str) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=1,
        live_leaders=[],
        controller_epoch=epoch,
        broker_epoch=-1,
        type=ALL_STATES,
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=name,
                topic_id=UUID(int=5),
                partition_states=[
                    LeaderAndIsrPartitionState(
                        partition_index=0,
                        controller_epoch=epoch,
                        leader=1,
                        leader_epoch=0,
                        isr=[1],
                        partition_epoch=0,
                        replicas=[1],
                    )
                ],
            )
            for name in topics
        ],
    )


def membership_of(metadata: Metadata, replicas: Replicas) -> Any:
    return SimpleNamespace(
        leadership_lease=SimpleNamespace(is_fenced=False),
        metadata=metadata,
        roles=ReplicaRoles(cast(Any, replicas), lambda topic_id: metadata.read.is_set(), ManualClock()),
        controller_request_lock=asyncio.Lock(),
        controller_connection=ControllerConnection(),
    )


def over(connection_id: int) -> RequestContext:
    return cast(RequestContext, SimpleNamespace(connection_id=connection_id))


@pytest.mark.parametrize(
    ("handle", "said"),
    [
        (leader_and_isr.handle, request(1, "t")),
        (
            stop_replica.handle,
            StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=3, topic_states=[]),
        ),
        (
            update_metadata.handle,
            UpdateMetadataRequest(
                controller_id=1, controller_epoch=1, broker_epoch=3, topic_states=[], live_brokers=[]
            ),
        ),
    ],
)
def test_what_a_controller_says_to_the_process_before_this_one_is_not_taken(handle: Any, said: Any) -> None:
    """It has no epoch yet with which to tell: a leader that has lost its power would go on as if it had not."""

    async def main() -> None:
        metadata, replicas = Metadata(), Replicas()
        metadata.read.set()
        asked = asyncio.ensure_future(handle(membership_of(metadata, replicas), said, over(1)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        metadata.epoch = 2  # registered: what is said of the past is refused
        metadata.registered.set()
        with pytest.raises(ApiError) as refused:
            await asked
        assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        assert replicas.became == []

    asyncio.run(main())


def test_a_controller_of_the_past_takes_nothing_away_while_settings_are_read() -> None:
    async def main() -> None:
        metadata, replicas = Metadata(), Replicas()
        metadata.registered.set()
        membership = membership_of(metadata, replicas)
        old = asyncio.ensure_future(leader_and_isr.handle(membership, request(1, "of the old"), over(1)))
        await asyncio.sleep(0)
        metadata.check_controller(2, -1)
        metadata.read.set()
        with pytest.raises(ApiError) as refused:
            await old
        assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        assert (replicas.became, replicas.dropped) == ([], [])
        await leader_and_isr.handle(membership, request(2, "of the new"), over(1))
        assert (replicas.became, replicas.dropped) == (["of the new"], [("held", 0)])

    asyncio.run(main())


def test_a_follower_of_new_partitions_does_not_wait_long_for_their_settings() -> None:
    """The leader commits nothing before it fetches, and cannot do without it while ZooKeeper is away."""

    async def main() -> None:
        metadata, replicas = Metadata(), Replicas()
        metadata.registered.set()
        created = request(1, "t")
        created.type = SOME_STATES
        state = created.topic_states[0].partition_states[0]
        state.is_new, state.leader = True, 2
        await leader_and_isr.handle(membership_of(metadata, replicas), created, over(1))
        assert replicas.became == ["t"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "is_new", "leader"),
    [(SOME_STATES, True, 1), (SOME_STATES, False, 2), (ALL_STATES, True, 2)],
)
def test_settings_that_guard_records_are_awaited(kind: int, is_new: bool, leader: int) -> None:
    """A leader judges records by them, and retention deletes by them what a replica already has."""

    async def main() -> None:
        metadata, replicas = Metadata(), Replicas()
        metadata.registered.set()
        asked = request(1, "t")
        asked.type = kind
        state = asked.topic_states[0].partition_states[0]
        state.is_new, state.leader = is_new, leader
        handled = asyncio.ensure_future(leader_and_isr.handle(membership_of(metadata, replicas), asked, over(1)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert replicas.became == []
        metadata.read.set()
        await handled
        assert replicas.became == ["t"]

    asyncio.run(main())


def test_replicas_are_removed_a_few_in_each_turn_of_the_loop() -> None:
    """Each takes a rename and more: thousands at once would have everybody wait."""

    async def main() -> None:
        metadata, replicas = Metadata(), Replicas()
        metadata.registered.set()
        states = [StopReplicaPartitionState(partition_index=index, delete_partition=True) for index in range(1000)]
        topics = [StopReplicaTopicState(topic_name="t", partition_states=states)]
        asked = StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=3, topic_states=topics)
        handled = asyncio.ensure_future(stop_replica.handle(membership_of(metadata, replicas), asked, over(1)))
        most = 0
        while not handled.done():
            before = len(replicas.dropped)
            await asyncio.sleep(0)
            most = max(most, len(replicas.dropped) - before)
        assert {one.error_code for one in (await handled).partition_errors} == {ErrorCode.NONE}
        assert (len(replicas.dropped), 0 < most <= 20) == (1000, True)

    asyncio.run(main())


def test_what_was_sent_again_over_a_later_connection_is_not_done_once_more() -> None:
    """It may be older than what that connection has brought since, and would set new replicas aside."""

    async def main() -> None:
        metadata, replicas = Metadata(), Replicas()
        metadata.registered.set()
        metadata.read.set()
        membership = membership_of(metadata, replicas)
        later, earlier = over(1), over(0)
        await leader_and_isr.handle(membership, request(1, "new"), later)
        done = list(replicas.dropped)
        with pytest.raises(BadFrame):
            await leader_and_isr.handle(membership, request(1), earlier)
        updates = UpdateMetadataRequest(
            controller_id=1, controller_epoch=1, broker_epoch=3, topic_states=[], live_brokers=[]
        )
        with pytest.raises(BadFrame):
            await update_metadata.handle(membership, updates, earlier)
        assert replicas.dropped == done
        await leader_and_isr.handle(membership, request(2, "of another controller"), earlier)
        assert replicas.became == ["new", "of another controller"]

    asyncio.run(main())
