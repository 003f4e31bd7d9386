"""The active controller of a quorum, and replicas on full disks: they give way, and have their records all the same."""

import asyncio
from uuid import UUID

import pytest
from tests.support.quorum_brokers import LEVELS, ControllerAlone, FakeBroker, create_topic, run

from ottla.cluster.image import NO_LEADER, PartitionImage
from ottla.cluster.isr_changes import IsrChange
from ottla.cluster.metadata_log.partitions import LOST, marked_full
from ottla.cluster.metadata_log.registrations import CONFIRMS_LEADERSHIP
from ottla.ids import TopicName
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ottla.protocol.messages.broker_registration import Feature

T = TopicName("t")
CONFIRMS = [
    Feature(name=name, min_supported_version=low, max_supported_version=high)
    for name, low, high in (*LEVELS, (CONFIRMS_LEADERSHIP, 0, 1))
]


def part(alone: ControllerAlone) -> PartitionImage:
    return alone.controller.image.topics[T].partitions[0]


def directory(alone: ControllerAlone, broker: FakeBroker) -> UUID:
    return alone.replay.state.brokers[broker.broker_id].directories[0]


async def two_brokers(alone: ControllerAlone, **configs: str) -> list[FakeBroker]:
    """Broker 1 leads the partition, which broker 2 has in sync, too."""
    brokers = [await FakeBroker(alone, number).start(features=CONFIRMS) for number in (1, 2)]
    await create_topic(alone, "t", [1, 2], **configs)
    return brokers


async def report(alone: ControllerAlone, broker: FakeBroker, where: UUID) -> None:
    """The broker reports where it has its replica."""
    topic = TopicData(topic_id=alone.controller.image.topics[T].topic_id, partitions=[PartitionData(partition_index=0)])
    await alone.controller.assign_directories(
        AssignReplicasToDirsRequest(
            broker_id=broker.broker_id,
            broker_epoch=broker.epoch,
            directories=[DirectoryData(id=where, topics=[topic])],
        )
    )
    await asyncio.sleep(0.1)


async def confirm(alone: ControllerAlone, broker: FakeBroker) -> None:
    now, topic_id = part(alone), alone.controller.image.topics[T].topic_id
    change = IsrChange(broker.broker_id, topic_id, 0, now.leader_epoch, now.partition_epoch, now.isr, [-1])
    assert await alone.controller.change_in_sync(broker.broker_id, broker.epoch, [change]) == [None]


async def lose_power(alone: ControllerAlone, broker: FakeBroker) -> FakeBroker:
    """The broker is fenced at the end of its session, and comes back as one that may have lost records."""
    broker.kill()
    await asyncio.sleep(12)
    back = FakeBroker(alone, broker.broker_id, process=2)
    return await back.start(previous_broker_epoch=-1, features=CONFIRMS)


@pytest.mark.parametrize("minimum", ["1", "2"])
@pytest.mark.parametrize("has_room_again", [True, False])
def test_the_leader_with_a_full_disk_leads_again_if_the_elected_one_had_no_power(
    minimum: str, has_room_again: bool
) -> None:
    """The elected broker had no power any longer, though it counted as alive, and has lost committed records."""

    async def scenario(alone: ControllerAlone) -> None:
        one, two = await two_brokers(alone, min_insync_replicas=minimum)
        await report(alone, one, marked_full(directory(alone, one)))
        assert (part(alone).leader, part(alone).isr, part(alone).last_known_leader) == (2, (2,), 1)
        if has_room_again:
            await report(alone, one, directory(alone, one))
        await lose_power(alone, two)
        assert (part(alone).leader, part(alone).isr) == (1, (1,))

    run(scenario)


def test_a_partition_waits_for_a_leader_with_a_full_disk_that_is_not_there() -> None:
    async def scenario(alone: ControllerAlone) -> None:
        one, two = await two_brokers(alone)
        await report(alone, one, marked_full(directory(alone, one)))
        one.kill()
        await lose_power(alone, two)
        assert part(alone).leader == NO_LEADER
        await FakeBroker(alone, 1, process=2).start(previous_broker_epoch=one.epoch, features=CONFIRMS)
        assert (part(alone).leader, part(alone).isr) == (1, (1,)), "its disk is still full"

    run(scenario)


def test_once_another_has_confirmed_nobody_waits_for_the_full_disk() -> None:
    async def scenario(alone: ControllerAlone) -> None:
        one, two = await two_brokers(alone)
        await report(alone, one, marked_full(directory(alone, one)))
        await confirm(alone, two)
        await lose_power(alone, two)
        assert (part(alone).leader, part(alone).isr) == (2, (2,)), "it had synced all that it has acknowledged"

    run(scenario)


def test_a_lost_replica_is_not_waited_for() -> None:
    async def scenario(alone: ControllerAlone) -> None:
        one, two = await two_brokers(alone)
        await report(alone, one, LOST)
        assert (part(alone).leader, part(alone).last_known_leader, part(alone).departed) == (2, NO_LEADER, ())
        await lose_power(alone, two)
        assert (part(alone).leader, part(alone).isr) == (2, (2,))

    run(scenario)


def test_a_full_directory_that_fails_is_not_waited_for() -> None:
    async def scenario(alone: ControllerAlone) -> None:
        kept, failing = UUID(int=11 << 90), UUID(int=12 << 90)
        one = await FakeBroker(alone, 1).start(features=CONFIRMS, log_dirs=[kept, failing])
        two = await FakeBroker(alone, 2).start(features=CONFIRMS)
        await create_topic(alone, "t", [1, 2])
        await report(alone, one, marked_full(failing))
        await one.beat(offline_log_dirs=[failing])
        two.kill()
        await asyncio.sleep(12)
        assert part(alone).leader == NO_LEADER
        assert alone.controller.image.full_replicas == frozenset()
        await FakeBroker(alone, 2, process=2).start(previous_broker_epoch=two.epoch, features=CONFIRMS)
        assert (part(alone).leader, part(alone).isr) == (2, (2,))

    run(scenario)


def test_the_last_replica_in_sync_leads_on_with_a_full_disk() -> None:
    async def scenario(alone: ControllerAlone) -> None:
        one, two = await two_brokers(alone)
        await report(alone, one, marked_full(directory(alone, one)))
        await confirm(alone, two)
        await report(alone, two, marked_full(directory(alone, two)))
        assert (part(alone).leader, part(alone).isr) == (2, (2,))

    run(scenario)
