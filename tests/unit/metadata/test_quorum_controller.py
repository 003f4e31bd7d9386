"""The active controller of a quorum, over a log in memory, in simulated time."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from tests.support.quorum_brokers import (
    NODE,
    ControllerAlone,
    FakeBroker,
    create_topic,
    registration,
    run,
    three_brokers,
)

from ottla.cluster.broker_sessions import BrokerSessions
from ottla.cluster.commands import CreateTopic
from ottla.cluster.configs import ConfigChange, ConfigEdit, ConfigOperation
from ottla.cluster.controller import ElectionType, NewTopic
from ottla.cluster.features import FeatureUpdate
from ottla.cluster.image import NO_LEADER, PartitionImage, ResourceType
from ottla.cluster.isr_changes import IsrChange
from ottla.errors import ApiError, ErrorCode, InvalidConfig, OttlaError
from ottla.ids import BrokerId, PartitionId, TopicName, TopicPartition
from ottla.metadata.quorum.node import NotQuorumLeader
from ottla.metadata.quorum_replay import QuorumReplay
from ottla.protocol import metadata_records as records
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.metadata_records import decode_record, encode_record
from ottla.testing.simulation.loop import SimClock

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
T = TopicName("t")


def part(alone: ControllerAlone, number: int = 0, topic: str = "t") -> PartitionImage:
    return alone.controller.image.topics[TopicName(topic)].partitions[number]


def log_of(alone: ControllerAlone) -> list[object]:
    return [decode_record(value)[0] for batch in alone.node.batches for value in batch.records]


async def refusal(work: object) -> ErrorCode:
    with pytest.raises(OttlaError) as refused:
        await work  # type: ignore[misc]  # any awaitable
    return refused.value.code


def shrink(alone: ControllerAlone, leader: FakeBroker, *isr: BrokerId) -> IsrChange:
    now = part(alone)
    topic_id = alone.controller.image.topics[T].topic_id
    return IsrChange(leader.broker_id, topic_id, 0, now.leader_epoch, now.partition_epoch, isr, [-1] * len(isr))


class TestTerms:
    def test_a_new_cluster_begins_with_feature_levels(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            first = log_of(alone)
            assert isinstance(first[0], records.BeginTransactionRecord)
            assert isinstance(first[1], records.FeatureLevelRecord)
            assert (first[1].name, first[1].feature_level) == ("metadata.version", 30)
            assert isinstance(first[-2], records.ConfigRecord), "min.insync.replicas"
            assert isinstance(first[-1], records.EndTransactionRecord)
            assert alone.controller.image.features["eligible.leader.replicas.version"] == 1
            assert alone.controller.image.controller_id == NODE

        run(scenario, metadata_max_idle_interval_ms="0")

    def test_another_term_appends_nothing_of_that_again(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            before = log_of(alone)
            alone.node.resign(alone.node.leader.epoch)
            await alone.until(lambda: alone.controller.is_active)
            assert log_of(alone) == before

        run(scenario, metadata_max_idle_interval_ms="0")

    def test_one_that_is_over_before_it_has_begun_is_none(self, caplog: pytest.LogCaptureFixture) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            alone.node.lead(2)
            alone.node.lead(NODE)
            alone.node.lead(2)
            await asyncio.sleep(1)
            assert not alone.controller.is_active
            assert "cannot go on" not in caplog.text

        run(scenario)

    def test_a_torn_change_is_aborted(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            torn = [
                records.encode_record(records.BeginTransactionRecord(), 0),
                records.encode_record(records.TopicRecord(name="torn", topic_id=UUID(int=77)), 0),
            ]
            await alone.node.append(torn, epoch=alone.node.leader.epoch)
            alone.node.resign(alone.node.leader.epoch)
            await alone.until(lambda: alone.controller.is_active)
            assert isinstance(log_of(alone)[-1], records.AbortTransactionRecord)
            await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3])
            assert set(alone.controller.image.topics) == {T}

        run(scenario, metadata_max_idle_interval_ms="0")

    def test_torn_first_records_are_appended_again(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            assert alone.controller.image.features["metadata.version"] == 30

        async def main(node_alone: ControllerAlone) -> None:
            other = ControllerAlone(node_alone.loop)
            other.node.lead(NODE)
            await other.node.append(
                [records.encode_record(records.BeginTransactionRecord(), 0)], epoch=other.node.leader.epoch
            )
            await other.start()
            await scenario(other)
            await other.controller.close()

        run(main)

    def test_while_another_node_leads_nothing_is_decided(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, *_ = await three_brokers(alone)
            alone.node.lead(NODE + 1)
            assert not alone.controller.is_active
            assert alone.controller.image.controller_id == NODE + 1
            (answer,) = await alone.controller.decisions.create_topics([NewTopic(T, 1, 1)])
            assert isinstance(answer, OttlaError)
            assert answer.code is ErrorCode.NOT_CONTROLLER
            assert await refusal(one.beat()) is ErrorCode.NOT_CONTROLLER
            assert await refusal(alone.controller.register_broker(registration(4))) is ErrorCode.NOT_CONTROLLER

        run(scenario)

    def test_a_new_controller_gives_every_broker_a_whole_session(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, *_ = await three_brokers(alone)
            one.kill()
            await asyncio.sleep(8)
            alone.node.resign(alone.node.leader.epoch)
            await alone.until(lambda: alone.controller.is_active)
            await asyncio.sleep(8)
            assert ONE in alone.controller.image.brokers
            await asyncio.sleep(4)
            assert ONE not in alone.controller.image.brokers

        run(scenario)

    def test_an_idle_log_advances(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            before = alone.replay.offset
            await asyncio.sleep(10)
            assert 15 <= alone.replay.offset - before <= 20

        run(scenario)

    def test_a_log_that_cannot_be_replayed_ends_the_node(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            strange = b"\x01\x7f\x00"
            await alone.node.append([strange], epoch=alone.node.leader.epoch)
            assert alone.replay.has_failed
            assert "newer version" in alone.failures.pop()

        run(scenario, metadata_max_idle_interval_ms="0")

    def test_a_metadata_version_of_the_future_ends_the_node_with_a_sentence(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            level = records.FeatureLevelRecord(name="metadata.version", feature_level=99)
            await alone.node.append([encode_record(level, 0)], epoch=alone.node.leader.epoch)
            assert "the cluster's metadata.version is 99" in alone.failures[0]
            assert "upgrade this node" in alone.failures.pop()

        run(scenario, metadata_max_idle_interval_ms="0")

    def test_a_snapshot_and_what_follows_make_the_same_image(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3], [2, 3, 1], retention_ms="1000")
            records = alone.replay.snapshot_records()
            assert records is not None
            await alone.node.write_snapshot(alone.replay.position, records)
            await create_topic(alone, "u", [1])
            follower = QuorumReplay(alone.controller.image.cluster_id, failed=alone.failures.append)
            alone.node.register(follower)
            ours, theirs = alone.controller.image, follower.image
            assert theirs._replace(features_epoch=0) == ours._replace(features_epoch=0)

        run(scenario, metadata_max_idle_interval_ms="0")


class TestBrokers:
    def test_epochs_are_offsets_and_grow(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one = await FakeBroker(alone, 1).start()
            assert isinstance(log_of(alone)[-2], records.RegisterBrokerRecord)
            assert alone.controller.image.brokers[ONE].epoch == one.epoch
            await one.stopped()
            again = await FakeBroker(alone, 1, process=2).start()
            assert again.epoch > one.epoch
            assert await refusal(one.beat()) is ErrorCode.STALE_BROKER_EPOCH

        run(scenario, metadata_max_idle_interval_ms="0")

    def test_a_number_is_free_once_its_session_is_over(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one = await FakeBroker(alone, 1).start()
            other = registration(1, process=2)
            assert await refusal(alone.controller.register_broker(other)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            one.kill()
            await asyncio.sleep(9.5)
            assert await alone.controller.register_broker(other) > one.epoch

        run(scenario)

    def test_a_silent_broker_is_fenced_and_others_lead(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, *_ = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3], [2, 3, 1])
            await create_topic(alone, "u", [1])
            one.kill()
            await asyncio.sleep(12)
            assert set(alone.controller.image.brokers) == {TWO, THREE}
            assert (part(alone).leader, part(alone).isr, part(alone).leader_epoch) == (2, (2, 3), 1)
            assert (part(alone, 1).leader, part(alone, 1).isr) == (2, (2, 3))
            assert (part(alone, 0, "u").leader, part(alone, 0, "u").isr) == (NO_LEADER, ())
            assert part(alone, 0, "u").eligible == (1,)
            again = await FakeBroker(alone, 1, process=2).start(previous_broker_epoch=one.epoch)
            assert part(alone, 0, "u").leader == ONE
            assert again.epoch == alone.controller.image.brokers[ONE].epoch

        run(scenario)

    def test_sessions_do_not_know_the_wall_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            await three_brokers(alone)
            for minutes in (10, -10, 60 * 24, -60 * 24 * 365):
                monkeypatch.setattr(SimClock, "now_ms", lambda _, jump=minutes: 1_700_000_000_000 + jump * 60_000)
                await asyncio.sleep(12)
            assert set(alone.controller.image.brokers) == {ONE, TWO, THREE}
            changes = [each for each in log_of(alone) if isinstance(each, records.BrokerRegistrationChangeRecord)]
            assert [each.fenced for each in changes] == [-1, -1, -1]  # each was unfenced, once

        run(scenario)

    def test_a_heartbeat_during_the_commit_of_a_fence_does_not_say_that_the_broker_may_lead(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, *_ = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3])
            at_once, asked = alone.node.append, list[object]()

            def slowly(values: Sequence[bytes], *, epoch: int) -> "asyncio.Future[int]":
                async def committed() -> int:
                    await asyncio.sleep(1)
                    return await at_once(values, epoch=epoch)

                asked.extend(type(decode_record(value)[0]) for value in values)
                return asyncio.ensure_future(committed())

            alone.node.append = slowly  # type: ignore[method-assign, assignment]  # a quorum whose disks are slow
            one.kill()
            await alone.until(lambda: records.BrokerRegistrationChangeRecord in asked)
            assert (await one.beat()).is_fenced is False
            await asyncio.sleep(4)
            assert ONE in alone.controller.image.brokers
            assert part(alone).leader == TWO

        run(scenario, metadata_max_idle_interval_ms="0")

    def test_a_controller_that_was_replaced_without_its_knowledge_answers_no_heartbeat(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, *_ = await three_brokers(alone)
            never = list[asyncio.Future[int]]()

            def cut_off(_values: Sequence[bytes], *, epoch: int) -> "asyncio.Future[int]":
                never.append(alone.loop.create_future())
                return never[-1]

            monkeypatch.setattr(alone.node, "append", cut_off)  # other voters follow another leader
            await asyncio.sleep(0.5)
            assert (await one.beat()).is_fenced is False, "half a second ago no other had been elected"
            await asyncio.sleep(1)
            answer = asyncio.create_task(one.beat())
            await asyncio.sleep(5)
            assert not answer.done()
            alone.node.lead(NODE + 1)
            for each in never:
                each.set_exception(NotQuorumLeader("another node leads"))
            assert await refusal(answer) is ErrorCode.NOT_CONTROLLER

        run(scenario, metadata_max_idle_interval_ms="0")

    def test_a_heartbeat_does_not_queue_behind_decisions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, *_ = await three_brokers(alone)
            await asyncio.sleep(0.9)  # the others have not sent any yet
            at_once = alone.node.append

            async def committed(values: Sequence[bytes], epoch: int) -> int:
                await asyncio.sleep(1)
                return await at_once(values, epoch=epoch)

            monkeypatch.setattr(
                alone.node, "append", lambda values, *, epoch: asyncio.ensure_future(committed(values, epoch))
            )
            topics = [asyncio.create_task(create_topic(alone, f"t{number}", [1])) for number in range(9)]
            await asyncio.sleep(0.5)
            began = alone.loop.time()
            await one.beat()
            assert alone.loop.time() - began < 1.5, "the commit of the first one shows enough"
            assert sum(topic.done() for topic in topics) < 3
            await asyncio.gather(*topics)

        run(scenario, metadata_max_idle_interval_ms="0")

    def test_heartbeats_alone_keep_a_controller_sure_of_itself(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            await three_brokers(alone)
            before = alone.replay.offset
            await asyncio.sleep(20)
            assert set(alone.controller.image.brokers) == {ONE, TWO, THREE}
            assert 15 <= alone.replay.offset - before <= 21, "one record a second, for all of them"

        run(scenario, metadata_max_idle_interval_ms="0")

    def test_a_late_heartbeat_keeps_a_broker(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one = await FakeBroker(alone, 1).start()
            one.kill()
            await asyncio.sleep(8.5)
            await one.beat()
            await asyncio.sleep(8.5)
            assert ONE in alone.controller.image.brokers

        run(scenario)

    def test_stops_in_order(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, two, _ = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3])
            await create_topic(alone, "u", [1])
            one.wants_shutdown = True
            answer = await one.beat()
            assert (answer.is_fenced, answer.should_shut_down) == (False, False)
            assert (part(alone).leader, part(alone).isr) == (2, (2, 3))
            assert ONE in alone.controller.image.brokers
            await one.stopped()
            assert ONE not in alone.controller.image.brokers
            assert part(alone, 0, "u").leader == NO_LEADER
            assert two.answers[-1].should_shut_down is False

        run(scenario)

    def test_a_broker_alone_may_stop(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one = await FakeBroker(alone, 1).start()
            await create_topic(alone, "t", [1])
            await one.stopped()
            assert part(alone).leader == NO_LEADER
            assert (part(alone).isr, part(alone).eligible) == ((), (1,))

        run(scenario)

    def test_no_replica_comes_into_sync_on_a_broker_that_stops(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, two, _ = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3])
            two.wants_shutdown = True
            await two.beat()
            assert part(alone).isr == (1, 3)
            (refused,) = await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE, TWO, THREE)])
            assert isinstance(refused, ApiError)
            assert refused.code is ErrorCode.INELIGIBLE_REPLICA

        run(scenario)

    def test_a_broker_is_unregistered(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, *_ = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3])
            await alone.controller.unregister_broker(1)
            assert 1 not in alone.replay.state.brokers
            assert part(alone).leader == TWO
            one.kill()
            assert await refusal(one.beat()) is ErrorCode.STALE_BROKER_EPOCH
            assert await refusal(alone.controller.unregister_broker(1)) is ErrorCode.BROKER_ID_NOT_REGISTERED
            assert await refusal(alone.controller.unregister_broker(-5)) is ErrorCode.BROKER_ID_NOT_REGISTERED

        run(scenario)

    def test_heartbeats_from_the_future_change_nothing(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one = await FakeBroker(alone, 1).start()
            asked = BrokerHeartbeatRequest(
                broker_id=1, broker_epoch=2**62, current_metadata_offset=2**62, want_fence=True, want_shut_down=True
            )
            assert await refusal(alone.controller.heartbeat(asked)) is ErrorCode.STALE_BROKER_EPOCH
            assert (await one.beat(current_metadata_offset=2**62)).is_fenced is False

        run(scenario)


class TestReplicas:
    def test_a_leader_changes_its_in_sync_set(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, two, _ = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3])
            assert await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE, THREE)]) == [None]
            assert (part(alone).isr, part(alone).leader_epoch, part(alone).partition_epoch) == ((1, 3), 0, 1)
            (refused,) = await alone.controller.change_in_sync(TWO, two.epoch, [shrink(alone, two, TWO)])
            assert isinstance(refused, ApiError)
            assert refused.code is ErrorCode.INVALID_REQUEST
            asked = alone.controller.change_in_sync(ONE, two.epoch, [shrink(alone, one, ONE)])
            assert await refusal(asked) is ErrorCode.STALE_BROKER_EPOCH

        run(scenario)

    def test_eligible_replicas_are_those_without_which_nothing_was_committed(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, two, three = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3], min_insync_replicas="2")
            assert await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE, TWO)]) == [None]
            assert part(alone).eligible == ()
            assert await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE)]) == [None]
            assert part(alone).eligible == (2,)
            two.kill()
            await asyncio.sleep(12)
            again = await FakeBroker(alone, 2, process=2).start(previous_broker_epoch=-1)
            assert part(alone).eligible == ()
            assert again.epoch > three.epoch

        run(scenario)

    def test_an_eligible_replica_leads_as_soon_as_the_last_one_in_sync_is_fenced(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, two, three = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3], min_insync_replicas="2")
            await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE, TWO)])
            await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE)])
            one.kill()
            await asyncio.sleep(12)
            assert (part(alone).leader, part(alone).isr, part(alone).eligible) == (2, (2,), (1,))
            two.kill()
            await asyncio.sleep(12)
            assert (part(alone).leader, part(alone).isr, part(alone).eligible) == (NO_LEADER, (), (2, 1))
            assert (await three.beat()).is_fenced is False
            again = await FakeBroker(alone, 1, process=2).start(previous_broker_epoch=one.epoch)
            assert (part(alone).leader, part(alone).isr, part(alone).eligible) == (1, (1,), (2,))
            again.kill()
            await asyncio.sleep(12)
            await FakeBroker(alone, 1, process=3).start(previous_broker_epoch=-1)
            assert (part(alone).leader, part(alone).eligible) == (NO_LEADER, (2,))
            await FakeBroker(alone, 2, process=2).start(previous_broker_epoch=-1)
            assert (part(alone).leader, part(alone).isr, part(alone).eligible) == (1, (1,), ())

        run(scenario)

    @pytest.mark.parametrize("is_replaced", [True, False])
    def test_the_order_in_which_replicas_left_outlives_the_disk_of_the_last_leader(self, is_replaced: bool) -> None:
        """An operator has one of the others lead. A disk that is there has everything, and its broker leads again."""

        async def scenario(alone: ControllerAlone) -> None:
            before, after = UUID(int=11 << 90), UUID(int=12 << 90)
            one = await FakeBroker(alone, 1).start(log_dirs=[before])
            for number in (2, 3):
                await FakeBroker(alone, number).start()
            await create_topic(alone, "t", [1, 2, 3], min_insync_replicas="1")
            await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE, THREE)])
            await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE)])
            one.kill()
            await asyncio.sleep(12)
            assert (part(alone).leader, part(alone).departed) == (NO_LEADER, (1, 3, 2))
            back = FakeBroker(alone, 1, process=2)
            await back.start(log_dirs=[after if is_replaced else before], previous_broker_epoch=-1)
            if not is_replaced:
                assert part(alone).leader == 1
                return
            assert (part(alone).leader, part(alone).departed, part(alone).eligible) == (NO_LEADER, (1, 3, 2), ())
            at = TopicPartition(T, PartitionId(0))
            chosen = await alone.controller.decisions.elect_leaders([at], ElectionType.UNCLEAN)
            assert (chosen, part(alone).leader) == ([None], 3)

        run(scenario)

    def test_a_broker_that_was_forgotten_is_not_eligible_when_it_registers_again(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, two, _ = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3], min_insync_replicas="2")
            await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE, TWO)])
            await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE)])
            two.kill()
            await alone.controller.unregister_broker(2)
            assert part(alone).eligible == (2,)
            await FakeBroker(alone, 2, process=2).start(previous_broker_epoch=two.epoch)
            assert part(alone).eligible == ()

        run(scenario)

    def test_a_lower_minimum_is_committed_together_with_what_it_makes_of_eligible_replicas(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, *_ = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3], min_insync_replicas="2")
            await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE)])
            assert set(part(alone).eligible) == {TWO, THREE}
            epoch = part(alone).leader_epoch
            edit = ConfigEdit("min.insync.replicas", ConfigOperation.SET, "1")
            await alone.controller.decisions.alter_configs([ConfigChange(ResourceType.TOPIC, "t", (edit,))])
            batch = [decode_record(value)[0] for value in alone.node.batches[-1].records]
            assert {type(each) for each in batch} >= {records.ConfigRecord, records.PartitionChangeRecord}
            assert (part(alone).eligible, part(alone).leader, part(alone).leader_epoch) == ((), 1, epoch)

        run(scenario, metadata_max_idle_interval_ms="0")

    @pytest.mark.parametrize("has_lost_nothing", [True, False])
    def test_a_broker_that_may_have_lost_records_is_not_eligible_if_it_is_back_before_it_was_fenced(
        self, has_lost_nothing: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, two, _ = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2, 3], min_insync_replicas="2")
            assert await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE, TWO)]) == [None]
            two.kill()
            monkeypatch.setattr(BrokerSessions, "is_valid", lambda _self, broker_id, _now: broker_id != TWO)
            again = FakeBroker(alone, 2, process=2)
            await again.start(previous_broker_epoch=two.epoch if has_lost_nothing else -1)
            assert part(alone).isr == (1,)
            assert part(alone).eligible == ((2,) if has_lost_nothing else ())

        run(scenario)

    def test_a_failed_directory_moves_leadership(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            kept, failing = UUID(int=11 << 90), UUID(int=12 << 90)
            one = await FakeBroker(alone, 1).start(log_dirs=[kept, failing])
            for number in (2, 3):
                await FakeBroker(alone, number).start()
            await create_topic(alone, "t", [1, 2, 3], [1, 2, 3])
            topic_id = alone.controller.image.topics[T].topic_id
            asked = AssignReplicasToDirsRequest(
                broker_id=1,
                broker_epoch=one.epoch,
                directories=[
                    DirectoryData(
                        id=place,
                        topics=[TopicData(topic_id=topic_id, partitions=[PartitionData(partition_index=number)])],
                    )
                    for place, number in ((kept, 0), (failing, 1), (kept, 7))
                ],
            )
            answer = await alone.controller.assign_directories(asked)
            codes = [each.topics[0].partitions[0].error_code for each in answer.directories]
            assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            await one.beat(offline_log_dirs=[failing])
            await alone.until(lambda: part(alone, 1).leader == TWO)
            assert part(alone, 0).leader == ONE
            assert alone.controller.image.failed_replicas == {(1, "t", 1)}

        run(scenario)

    def test_new_replicas_are_in_a_brokers_only_directory(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            await three_brokers(alone)
            await create_topic(alone, "t", [1, 2])
            state = alone.replay.state.topics.states[alone.controller.image.topics[T].topic_id].partitions[0]
            assert state.directories == tuple(alone.replay.state.brokers[number].directories[0] for number in (1, 2))

        run(scenario)

    def test_followers_may_be_on_fenced_brokers_where_living_ones_are_too_few(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, *_ = await three_brokers(alone)
            one.kill()
            await asyncio.sleep(12)
            few, many = await alone.controller.decisions.create_topics(
                [NewTopic(T, 4, 3), NewTopic(TopicName("u"), 1, 4)]
            )
            assert isinstance(few, CreateTopic)
            assert isinstance(many, OttlaError)
            for number in range(4):
                assert part(alone, number).replicas[2] == ONE
                assert set(part(alone, number).isr) == {TWO, THREE}

        run(scenario)

    def test_cordoned_brokers_get_no_new_replicas(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, *_ = await three_brokers(alone)
            await one.beat(cordoned_log_dirs=list(alone.replay.state.brokers[1].directories))
            (made,) = await alone.controller.decisions.create_topics([NewTopic(T, 6, 2)])
            assert isinstance(made, CreateTopic)
            assert {replica for each in made.topic.partitions for replica in each.replicas} == {TWO, THREE}

        run(scenario)

    def test_a_reassignment_ends_when_its_targets_are_in_sync(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, _, three = await three_brokers(alone)
            await create_topic(alone, "t", [1, 2])
            at = TopicPartition(T, PartitionId(0))
            assert await alone.controller.reassign([(at, [3, 2])]) == [None]
            assert set(part(alone).replicas) == {1, 2, 3}
            assert await alone.controller.change_in_sync(ONE, one.epoch, [shrink(alone, one, ONE, TWO, THREE)]) == [
                None
            ]
            await alone.until(lambda: part(alone).replicas == (3, 2))
            assert part(alone).leader in (2, 3)
            assert three.answers

        run(scenario)

    def test_producer_ids_are_given_once(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            one, two, _ = await three_brokers(alone)
            first = await alone.controller.allocate_producer_ids(1, one.epoch)
            second = await alone.controller.allocate_producer_ids(2, two.epoch)
            assert (first.first, first.last, second.first, second.last) == (0, 999, 1000, 1999)
            refused = alone.controller.allocate_producer_ids(2, one.epoch)
            assert await refusal(refused) is ErrorCode.STALE_BROKER_EPOCH

        run(scenario)


class TestSize:
    def test_a_thousand_topics_are_one_change(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            await three_brokers(alone)
            wanted = [NewTopic(TopicName(f"topic-{number}"), 12, 3) for number in range(1000)]
            seen: list[int] = []
            alone.replay.subscribe(lambda old, new: seen.append(len(new.topics)))
            answers = await alone.controller.decisions.create_topics(wanted)
            assert all(isinstance(answer, CreateTopic) for answer in answers)
            assert set(seen) == {1000}
            log = log_of(alone)
            begins = [at for at, record in enumerate(log) if isinstance(record, records.BeginTransactionRecord)]
            assert len(begins) == 2
            assert max(len(batch.records) for batch in alone.node.batches) <= 10_001
            follower = QuorumReplay(alone.controller.image.cluster_id, failed=alone.failures.append)
            alone.node.register(follower)
            assert follower.image == alone.controller.image

        run(scenario, metadata_max_idle_interval_ms="0")

    def test_without_transactions_too_large_a_change_is_refused(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            await three_brokers(alone)
            down = [FeatureUpdate("metadata.version", 12, 2)]
            assert await refusal(alone.controller.decisions.update_features(down)) is ErrorCode.INVALID_UPDATE_VERSION

        run(scenario)


class TestFeatures:
    def test_eligible_replicas_bring_one_number_of_in_sync_ones_for_all_brokers(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            await three_brokers(alone)
            decisions = alone.controller.decisions
            await decisions.update_features([FeatureUpdate("eligible.leader.replicas.version", 0, 2)])
            default = (ResourceType.BROKER, "")
            edit = ConfigEdit("min.insync.replicas", ConfigOperation.DELETE, None)
            (refused,) = await decisions.alter_configs([ConfigChange(*default, (edit,))])
            assert refused is None
            assert default not in alone.controller.image.configs
            await decisions.update_features([FeatureUpdate("eligible.leader.replicas.version", 1, 1)])
            assert alone.controller.image.configs[default] == {"min.insync.replicas": "1"}
            (refused,) = await decisions.alter_configs([ConfigChange(*default, (edit,))])
            assert isinstance(refused, InvalidConfig)

        run(scenario)

    def test_a_level_that_a_broker_lacks_is_refused(self) -> None:
        async def scenario(alone: ControllerAlone) -> None:
            await three_brokers(alone)
            decisions = alone.controller.decisions
            await decisions.update_features([FeatureUpdate("group.version", 0, 2)])
            assert "group.version" not in alone.controller.image.features
            await decisions.update_features([FeatureUpdate("group.version", 1, 1)])
            assert alone.controller.image.features["group.version"] == 1
            for update in (
                FeatureUpdate("group.version", 2, 1),
                FeatureUpdate("kraft.version", 2, 1),
                FeatureUpdate("no.version", 1, 1),
                FeatureUpdate("metadata.version", 31, 1),
                FeatureUpdate("metadata.version", 29, 3),
            ):
                assert await refusal(decisions.update_features([update])) is ErrorCode.INVALID_UPDATE_VERSION

        run(scenario)


def test_the_quorums_own_level_is_raised_with_all_others_or_not_at_all() -> None:
    async def scenario(alone: ControllerAlone) -> None:
        await three_brokers(alone)
        alone.node.kraft_version = 0
        update, decisions = FeatureUpdate("kraft.version", 1, 1), alone.controller.decisions
        too_high = FeatureUpdate("group.version", 7, 1)
        assert await refusal(decisions.update_features([update, too_high])) is ErrorCode.INVALID_UPDATE_VERSION
        await decisions.update_features([update], validate_only=True)
        assert alone.node.kraft_version == 0
        await decisions.update_features([update, FeatureUpdate("group.version", 0, 2)])
        assert alone.node.kraft_version == 1
        assert "group.version" not in alone.controller.image.features
        await decisions.update_features([update])  # again

    run(scenario)


def test_a_setting_that_grows_beyond_a_record_is_refused_by_itself() -> None:
    async def scenario(alone: ControllerAlone) -> None:
        await three_brokers(alone)
        await create_topic(alone, "t", [1])
        await create_topic(alone, "u", [1])

        def appended(topic: str, count: int) -> ConfigChange:
            throttled = ",".join(f"{count}:{number}" for number in range(count))
            edit = ConfigEdit("leader.replication.throttled.replicas", ConfigOperation.APPEND, throttled)
            return ConfigChange(ResourceType.TOPIC, topic, (edit,))

        assert await alone.controller.decisions.alter_configs([appended("t", 3000)]) == [None]
        refused, taken = await alone.controller.decisions.alter_configs([appended("t", 3001), appended("u", 1)])
        assert isinstance(refused, InvalidConfig)
        assert taken is None
        assert alone.controller.image.config(ResourceType.TOPIC, "u")

    run(scenario)


def test_a_commit_that_no_leader_confirms_ends_with_not_controller() -> None:
    async def scenario(alone: ControllerAlone) -> None:
        await three_brokers(alone)

        def refuse(*_: object, **__: object) -> object:
            raise NotQuorumLeader("another node leads")

        alone.node.append = refuse  # type: ignore[method-assign, assignment]
        (answer,) = await alone.controller.decisions.create_topics([NewTopic(T, 1, 1)])
        assert isinstance(answer, OttlaError)
        assert answer.code is ErrorCode.NOT_CONTROLLER
        assert T not in alone.controller.image.topics

    run(scenario, metadata_max_idle_interval_ms="0")
