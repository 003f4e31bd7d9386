"""A partition that a broker holds: its high watermark, its readers, and its errors when the log cannot be written."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import pytest

from ottla.cluster.image import PartitionImage, empty_image
from ottla.config.log import LogConfig
from ottla.errors import ErrorCode, KafkaStorageError, UnknownLeaderEpoch
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.fs import RealFileSystem
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import iter_batches
from ottla.records.record import Record, decode_records, encode_batch
from ottla.replication import own_records
from ottla.replication.decisions.in_sync import Proposal
from ottla.replication.disk_threads import DiskThreads
from ottla.replication.environment import LedChanges, ReplicaEnvironment
from ottla.replication.manager import ReplicaManager
from ottla.replication.partition import Partition
from ottla.replication.throughput import Throughput
from ottla.testing.manual_clock import ManualClock

TP: Final = TopicPartition(TopicName("t"), PartitionId(0))
THREE: Final = (BrokerId(1), BrokerId(2), BrokerId(3))


def test_a_full_disk_is_told_once_and_that_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    full = KafkaStorageError("cannot append to t-0 in /data: [Errno 28] No space left on device")
    log = Mock()
    log.append_as_leader.side_effect = [full, full, Mock(size_bytes=1), Mock(size_bytes=1), full]
    partition = Partition(TP, log, Mock(), Mock(), Mock(led_changes=LedChanges()), Throughput())
    with caplog.at_level(logging.INFO):
        for refused in (True, True, False, False, True):
            if refused:
                with pytest.raises(KafkaStorageError):
                    partition.append(b"")
            else:
                partition.append(b"")
    trouble = (
        "cannot append to t-0 in /data: No space left on device; its producers are refused until it can be written"
    )
    assert [record.getMessage().removesuffix(" again") for record in caplog.records] == [
        trouble,
        "t-0 can be written",
        trouble,
    ]


class World:
    """Partition 0 of three replicas on broker 1, whose log is real and synced at once on request."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.now = 0.0
        self.alive: tuple[BrokerId, ...] = THREE
        self.proposals: list[Proposal] = []
        self.is_shown = False
        """Does the metadata show this leader each in-sync set?"""
        self.log = PartitionLog.open(
            directory / "t-0", TP, LogConfig(min_insync_replicas=2, **config), fs=RealFileSystem(), clock=ManualClock()
        )
        environment = ReplicaEnvironment(
            BrokerId(1),
            lambda: self.now,
            10.0,
            lambda: self.alive,
            lambda _, proposal: self.proposals.append(proposal),
            LedChanges(),
            lambda: self.is_shown,
        )
        self.flusher = Mock()
        self.partition = Partition(TP, self.log, self.flusher, Mock(), environment, Throughput())

    def state(
        self, leader: int, epoch: int, isr: tuple[int, ...] = (1, 2, 3), partition_epoch: int | None = None
    ) -> PartitionImage:
        return PartitionImage(
            TP.partition,
            BrokerId(leader),
            LeaderEpoch(epoch),
            THREE,
            tuple(map(BrokerId, isr)),
            epoch if partition_epoch is None else partition_epoch,
        )

    def append(self) -> None:
        self.partition.append(bytearray(encode_batch([Record(0, 1, None, b"v")])))

    def sync(self) -> None:
        ticket = self.partition.prepare_flush()
        assert ticket is not None
        ticket.sync()
        self.partition.flushed(ticket)

    def fetch(self, replica: int, offset: int) -> None:
        self.partition.fetched_by(BrokerId(replica), Offset(offset), Offset(0), 9)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.log.close()


def test_what_is_committed_is_synced_here_and_on_all_that_are_in_sync(world: World) -> None:
    world.partition.lead(world.state(1, 0))
    world.append()
    for replica in (2, 3):
        world.fetch(replica, 1)
    assert world.log.high_watermark == 0  # not synced
    world.sync()
    assert world.log.high_watermark == 1
    world.append()
    world.sync()
    world.fetch(2, 2)
    assert world.log.high_watermark == 1
    world.fetch(3, 2)
    assert world.log.high_watermark == 2


@pytest.mark.parametrize("is_synced_before", [False, True])
def test_a_request_for_the_end_is_notified_though_the_sync_ended_before_it_waits(
    world: World, is_synced_before: bool
) -> None:
    world.partition.lead(world.state(1, 0))
    world.append()
    for replica in (2, 3):
        world.fetch(replica, 1)
    if is_synced_before:
        world.sync()
    seen = [Mock(), Mock()]
    world.partition.when_visible(seen[0])
    world.partition.when_epoch_start_reached(seen[1])
    if not is_synced_before:
        seen[0].committed.assert_not_called()
        world.sync()
    for waiter in seen:
        waiter.committed.assert_called_once_with(0)


def test_nothing_is_committed_with_too_few_in_sync(world: World) -> None:
    world.partition.lead(world.state(1, 0, isr=(1,)))
    world.append()
    world.sync()
    assert world.log.high_watermark == 0
    world.fetch(2, 1)
    assert [proposal.isr for proposal in world.proposals] == [(1, 2)]
    assert world.log.high_watermark == 0
    world.partition.apply_isr((BrokerId(1), BrokerId(2)), 1)
    assert world.log.high_watermark == 1
    assert world.partition.isr == (1, 2)


def test_a_restarted_leader_with_too_few_in_sync_commits_nothing_of_what_it_had(world: World) -> None:
    """Neither the records that it had, nor the beginning of its epoch: an eligible replica may lack both (KIP-966)."""
    world.partition.lead(world.state(1, 0))
    world.append()
    world.sync()
    again = Partition(TP, world.log, world.flusher, Mock(), world.partition._environment, Throughput())
    again.lead(world.state(1, 1, isr=(1,)))
    again.drop_out_of_sync_followers()
    assert (world.log.high_watermark, again.has_reached_epoch_start, world.proposals) == (0, False, [])
    waiter = Mock()
    again.when_epoch_start_reached(waiter)
    again.fetched_by(BrokerId(3), Offset(0), Offset(0), 7)
    waiter.committed.assert_not_called()


def test_a_smaller_in_sync_set_counts_when_the_metadata_shows_it(world: World) -> None:
    """With the `min.insync.replicas` of that moment, which the answer does not have."""
    world.is_shown = True
    world.partition.lead(world.state(1, 0))
    world.append()
    world.sync()
    world.fetch(2, 1)
    world.now = 11.0
    world.fetch(2, 1)
    world.partition.drop_out_of_sync_followers()
    assert [proposal.isr for proposal in world.proposals] == [(1, 2)]
    world.partition.apply_isr((BrokerId(1), BrokerId(2)), 1)
    assert (world.partition.isr, world.log.high_watermark) == (THREE, 0)
    world.partition.lead(world.state(1, 0, isr=(1, 2))._replace(partition_epoch=1))
    assert (world.partition.isr, world.log.high_watermark) == ((1, 2), 1)
    world.fetch(3, 1)
    world.partition.apply_isr(THREE, 2)
    assert world.partition.isr == THREE, "a larger one counts at once"


def test_what_all_in_sync_have_is_kept_though_they_are_too_few(world: World) -> None:
    world.partition.lead(world.state(1, 0, isr=(1,)))
    world.append()
    assert world.partition.replicated == 0  # not synced
    world.sync()
    assert world.partition.replicated == 1
    assert world.log.high_watermark == 0
    world.partition.lead(world.state(1, 1))
    world.fetch(2, 1)
    assert world.partition.replicated == 0  # the third may be elected, and has not been heard of
    world.fetch(3, 1)
    assert world.partition.replicated == world.log.high_watermark == 1


def test_a_coordinator_reads_what_is_kept_and_waits_for_the_rest(world: World) -> None:
    """One that moves to the last replica in sync has all that was committed, and could else serve nobody."""
    world.partition.lead(world.state(1, 0, isr=(1,)))
    world.append()

    alone = False

    async def read() -> list[bytes]:
        nonlocal alone
        manager = object.__new__(ReplicaManager)
        manager._held = {(TP.topic, int(TP.partition)): world.partition}
        manager._metadata = Mock(image=empty_image(""))
        manager.threads = DiskThreads()
        manager.only_in_sync_may_lead = lambda _: alone
        with closing(manager.threads):
            reading = asyncio.ensure_future(anext(own_records.read_all(manager, TP.topic, TP.partition)))
            await asyncio.wait([reading], timeout=0.3)
            assert not reading.done()  # the disk may still lose it
            world.sync()
            await asyncio.wait([reading], timeout=0.3)
            assert not reading.done()  # an eligible replica may lead, and lack it
            alone = True
            return [record.value or b"" for record in _records(bytes(await reading))]

    assert asyncio.run(read()) == [b"v"]
    assert world.log.high_watermark == 0


def _records(batches: bytes) -> list[Record]:
    return [record for header in iter_batches(batches) for record in decode_records(batches, header)]


def test_a_new_leader_syncs_what_it_has_copied_and_waits_for_its_followers(world: World) -> None:
    world.partition.follow(world.state(2, 0))
    batch = bytearray(encode_batch([Record(0, 1, None, b"v")]))
    world.partition.append_fetched(batch)
    world.partition.update_from_leader(Offset(0), Offset(0))
    world.flusher.reset_mock()
    world.partition.lead(world.state(1, 1))
    world.flusher.mark.assert_called_once_with(world.partition)
    assert not world.partition.has_reached_epoch_start
    world.sync()
    for replica in (2, 3):
        world.fetch(replica, 1)
    assert world.log.high_watermark == 1
    assert world.partition.has_reached_epoch_start
    assert world.log.leader_epochs.entries() == [(1, 1)]


def test_a_leader_confirms_that_it_leads_when_it_has_synced_what_it_had_and_commits_nothing_before(
    world: World,
) -> None:
    world.partition.follow(world.state(2, 0))
    world.partition.append_fetched(bytearray(encode_batch([Record(0, 1, None, b"v")])))
    world.partition.lead(world.state(1, 1), is_confirmed=False)
    assert world.proposals == []
    world.sync()
    assert [proposal.isr for proposal in world.proposals] == [THREE]
    for replica in (2, 3):
        world.fetch(replica, 1)
    world.partition.drop_out_of_sync_followers()
    assert (world.log.high_watermark, world.partition.replicated, len(world.proposals)) == (0, 0, 1)
    world.partition.apply_isr(THREE, 2)
    assert world.log.high_watermark == 1


def test_a_leader_with_nothing_to_sync_confirms_at_once_and_again_if_it_was_not_heard(world: World) -> None:
    world.partition.lead(world.state(1, 1), is_confirmed=False)
    assert len(world.proposals) == 1
    assert world.partition.in_sync is not None
    assert world.partition.in_sync.refused(ErrorCode.OPERATION_NOT_ATTEMPTED, 0.0) is None
    world.partition.drop_out_of_sync_followers()
    assert len(world.proposals) == 2


def test_a_leader_that_has_not_confirmed_changes_no_in_sync_set(world: World) -> None:
    world.partition.lead(world.state(1, 1, isr=(1, 2)), is_confirmed=False)
    world.append()
    world.now = 11.0
    world.partition.drop_out_of_sync_followers()
    world.fetch(3, 1)
    assert [proposal.isr for proposal in world.proposals] == [(1, 2)]


def test_what_held_the_high_watermark_back_and_is_gone_holds_it_no_more(world: World) -> None:
    """Nobody else may write or fetch for a long time."""
    world.partition.lead(world.state(1, 0, isr=(1, 2)))
    world.fetch(3, 0)
    world.append()
    world.sync()
    world.fetch(2, 1)
    assert world.partition.in_sync is not None
    world.partition.in_sync.refused(ErrorCode.INELIGIBLE_REPLICA, 0.0)
    world.partition.drop_out_of_sync_followers()
    held_back = world.log.high_watermark
    world.now = 11.0
    world.partition.drop_out_of_sync_followers()
    assert (held_back, world.log.high_watermark) == (0, 1)


def test_an_older_state_changes_nothing(world: World) -> None:
    world.partition.lead(world.state(1, 3))
    assert not world.partition.follow(world.state(2, 2))
    assert world.partition.leading
    world.partition.lead(world.state(1, 2, isr=(1,)))
    assert (world.partition.leader_epoch, world.partition.isr) == (3, THREE)


def test_a_state_that_is_known_forgets_no_proposal(world: World) -> None:
    """The controller says once more what it has said, while a follower that has caught up is proposed to it."""
    state = world.state(1, 4, isr=(1, 2))
    world.partition.lead(state)
    world.append()
    world.sync()
    for follower in (2, 3):
        world.partition.fetched_by(BrokerId(follower), Offset(1), Offset(0), 100)
    assert [proposal.isr for proposal in world.proposals] == [(1, 2, 3)]
    world.partition.lead(state)
    assert world.partition.in_sync is not None
    assert world.partition.in_sync.pending == world.proposals[0]


def test_what_followers_have_is_remembered_within_an_epoch_only(world: World) -> None:
    world.partition.lead(world.state(1, 0))
    world.append()
    world.sync()
    for replica in (2, 3):
        world.fetch(replica, 1)
    world.partition.lead(world.state(1, 0, partition_epoch=1))
    world.append()
    world.sync()
    world.fetch(2, 2)
    assert world.log.high_watermark == 1  # broker 3 is known to have come to 1
    world.partition.lead(world.state(1, 1, partition_epoch=2))
    world.fetch(2, 2)
    assert world.log.high_watermark == 1  # and now not to have come anywhere


def test_who_waits_is_told_when_another_leads(world: World) -> None:
    world.partition.lead(world.state(1, 0))
    world.append()
    waiter = Mock()
    world.partition.when_committed(Offset(1), 5, waiter)
    assert world.partition.follow(world.state(2, 1))
    waiter.failed.assert_called_once_with(5, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not world.partition.leading


def test_a_broker_that_holds_no_replica_is_no_follower(world: World) -> None:
    world.partition.lead(world.state(1, 0))
    with pytest.raises(UnknownLeaderEpoch):
        world.fetch(4, 0)
    world.partition.follow(world.state(2, 1))
    with pytest.raises(UnknownLeaderEpoch):
        world.fetch(2, 0)


def test_out_of_sync_followers_are_proposed_to_leave(world: World) -> None:
    world.partition.lead(world.state(1, 0))
    world.append()
    world.fetch(2, 1)
    world.now = 11.0
    world.partition.drop_out_of_sync_followers()
    assert [proposal.isr for proposal in world.proposals] == [(1, 2)]


def test_what_follows_a_refused_batch_is_refused_likewise(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap in the sequence would have its producer begin a new epoch, and write twice what is on its way elsewhere."""

    def sent(sequence: int) -> bytearray:
        return encode_batch([Record(0, 1, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence)

    world.partition.lead(world.state(1, 0))
    for known in (False, True):  # by the time, a producer that is not known may begin with any sequence
        first = 10 if known else 0
        with monkeypatch.context() as full:
            full.setattr(world.log, "_append", Mock(side_effect=KafkaStorageError("No space left on device")))
            with pytest.raises(KafkaStorageError):
                world.partition.append(sent(first))
        with pytest.raises(KafkaStorageError, match=f"sequence {first} of producer 7"):
            world.partition.append(sent(first + 1))
        for sequence in range(first, 10 + first):
            world.partition.append(sent(sequence))
    assert world.log.log_end_offset == 20


@pytest.mark.parametrize("leader", [1, 2])
def test_a_record_of_an_epoch_that_has_not_begun_is_dropped_unless_it_was_synced(world: World, leader: int) -> None:
    """A leader epoch that reads as it likes after a power failure."""
    world.log.append_as_leader(bytearray(encode_batch([Record(0, 1, None, b"v")])), LeaderEpoch(3))
    world.sync()
    world.log.append_as_leader(bytearray(encode_batch([Record(0, 1, None, b"v")])), LeaderEpoch(1027))
    for state in (world.state(leader, 4), world.state(leader, 5)):
        (world.partition.lead if leader == 1 else world.partition.follow)(state)
        assert world.log.log_end_offset == 1
    assert world.log.latest_epoch == (5 if leader == 1 else 3)


def test_what_was_synced_is_not_dropped_for_its_epoch(world: World) -> None:
    world.log.append_as_leader(bytearray(encode_batch([Record(0, 1, None, b"v")])), LeaderEpoch(1027))
    world.sync()
    world.partition.follow(world.state(2, 4))
    assert world.log.log_end_offset == 1


def test_a_replica_that_fetched_before_its_broker_was_alive_is_taken_in_without_another_fetch(world: World) -> None:
    world.partition.lead(world.state(1, 0, isr=(1,)))
    world.alive = (BrokerId(1),)
    for replica in (2, 3):
        world.fetch(replica, 0)
    assert world.proposals == []
    world.alive = THREE
    world.partition.take_in_followers()
    assert [proposal.isr for proposal in world.proposals] == [(1, 2)]
    world.partition.apply_isr((BrokerId(1), BrokerId(2)), 1)
    assert [proposal.isr for proposal in world.proposals] == [(1, 2), (1, 2, 3)]
