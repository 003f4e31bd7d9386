"""What a follower cuts off where its log and its leader's diverge (KIP-101, KIP-595)."""

import asyncio
import dataclasses
from itertools import pairwise
from pathlib import Path

import pytest
from tests.unit.replication.leader_and_follower import (
    FOLLOWER,
    LEADER,
    TOPIC_ID,
    Pair,
    eventually_true,
    run,
)

from ottla.errors import ErrorCode
from ottla.ids import Offset
from ottla.records.record import Record, encode_batch


def test_what_the_leader_never_had_is_dropped_by_epochs_not_by_the_high_watermark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-101: the follower's high watermark is behind what is committed, and must not decide."""

    async def story(pair: Pair) -> None:
        for side in (pair.leader, pair.follower):
            side.write(1, b"a", b"b")  # on both, committed, but the follower does not know that
        pair.follower.write(2, b"lost")
        pair.leader.become(LEADER, 3)
        pair.leader.write(3, b"c")
        pair.follower.become(LEADER, 3)
        assert pair.follower.log.high_watermark == 0
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert b"lost" not in pair.follower.contents()
        assert pair.asked[1].fetch_offset == 2

    run(tmp_path, monkeypatch, story)


def test_a_leader_that_refuses_an_offset_that_it_has_is_not_asked_without_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.write(0, b"a", b"b")
        pair.refusals = [ErrorCode.OFFSET_OUT_OF_RANGE] * 10_000
        pair.follower.become(LEADER, 0)
        pair.leader.become(LEADER, 0)
        asked_at: list[float] = []
        pair.when_asked_for_offsets = lambda: asked_at.append(asyncio.get_running_loop().time())
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await eventually_true(lambda: len(asked_at) > 13)  # of its end and of its start after each refusal
        ends = asked_at[::2]
        assert min(later - earlier for earlier, later in pairwise(ends[3:])) >= 0.049
        pair.refusals.clear()
        await pair.until_equal()

    run(tmp_path, monkeypatch, story)


def test_nothing_is_copied_over_what_was_cut_off_before_the_cut_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure would else bring back what was cut off, among what was copied since."""

    async def story(pair: Pair) -> None:
        pair.leader.write(0, b"a")
        pair.follower.write(0, b"a", b"never committed", b"nor this")
        pair.follower.log.flush()
        pair.leader.write(2, b"b", b"c")
        pair.follower.syncs = False
        pair.leader.become(LEADER, 2)
        pair.follower.become(LEADER, 2)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await eventually_true(lambda: pair.follower.log.log_end_offset == 1)
        asked = len(pair.asked)
        await asyncio.sleep(0.1)
        assert len(pair.asked) == asked
        assert pair.follower.log.log_end_offset == 1
        pair.follower.syncs = True
        await pair.until_equal()

    run(tmp_path, monkeypatch, story)


@pytest.mark.parametrize("allows_unclean", [False, True])
def test_what_is_committed_is_truncated_only_where_unclean_elections_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allows_unclean: bool
) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.leader.write(3, b"c")
        pair.follower.write(1, b"a", b"b")
        pair.follower.log.high_watermark = Offset(2)
        own = pair.follower.log
        own.update_config(dataclasses.replace(own.config, unclean_leader_election_enable=allows_unclean))
        pair.follower.become(LEADER, 3)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        if allows_unclean:
            await pair.until_equal()
            assert pair.started_over == []
            return
        while not pair.started_over:
            await asyncio.sleep(0.001)
        assert "below its own high watermark 2" in pair.started_over[0]
        assert (own.log_end_offset, own.high_watermark) == (2, 2)

    run(tmp_path, monkeypatch, story)


def compacted(pair: Pair) -> None:
    """The leader has records of the epochs 0 and 4 left; those between them were compacted, all of the epochs 1 and 2
    among them."""
    epochs = pair.leader.log.leader_epochs
    pair.leader.write(0, b"a")
    pair.leader.log.append_as_follower(encode_batch([Record(9, 1, None, b"c")], leader_epoch=4))
    epochs.gaps.clear()
    for epoch, start in ((1, 3), (2, 5), (4, 7)):
        epochs.assign(epoch, start)
    pair.leader.become(LEADER, 6)
    pair.follower.become(LEADER, 6)


def test_a_follower_of_a_compacted_log_asks_where_the_epochs_begin_that_it_has_no_record_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(pair: Pair) -> None:
        compacted(pair)
        epochs = pair.follower.log.leader_epochs
        pair.offset_refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert epochs.entries() == [(0, 0), (4, 1)]  # at once, as far as it knows itself
        await eventually_true(lambda: not epochs.gaps)
        assert epochs.entries() == [(0, 0), (1, 3), (2, 5), (4, 7)]  # as at the leader
        assert pair.epochs_asked == [3, 3, 1, 0]

    run(tmp_path, monkeypatch, story)


def test_the_epochs_that_a_leader_reports_come_to_the_disk_without_another_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a crash leaves of an epoch that begins too early is never asked for again."""

    async def story(pair: Pair) -> None:
        compacted(pair)
        own = pair.follower
        monkeypatch.setattr(own.partition._flusher, "mark_later", lambda partition: partition.log.flush())
        pair.fetchers.follow(own.partition, TOPIC_ID)
        await eventually_true(lambda: len(own.log.leader_epochs.entries()) == 4)
        assert not own.log.leader_epochs.dirty
        on_disk = (tmp_path / str(FOLLOWER) / "leader-epoch-checkpoint").read_text()
        assert on_disk.split("\n")[2:6] == ["0 0", "1 3", "2 5", "4 7"]

    run(tmp_path, monkeypatch, story)


def test_a_log_with_many_unknown_epochs_is_asked_about_between_fetches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other partitions are fetched meanwhile, and this one only when its epochs are known."""

    async def story(pair: Pair) -> None:
        monkeypatch.setattr("ottla.replication.fetcher.LONGEST_ASKING_S", 0.005)
        epochs = pair.leader.log.leader_epochs
        pair.leader.write(0, b"a")
        pair.leader.log.append_as_follower(encode_batch([Record(60, 1, None, b"c")], leader_epoch=50))
        epochs.gaps.clear()
        for epoch in range(1, 51):
            epochs.assign(epoch, epoch)
        known = epochs.entries()
        pair.leader.become(LEADER, 60)
        pair.follower.become(LEADER, 60)
        fetched: list[bool] = []
        pair.when_asked_for_offsets = lambda: fetched.append(any(asked.fetch_offset == 61 for asked in pair.asked))
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await eventually_true(lambda: any(asked.fetch_offset == 61 for asked in pair.asked))
        assert pair.follower.log.leader_epochs.entries() == known
        assert fetched == [False] * 50  # its end is reported once all of them are known

    run(tmp_path, monkeypatch, story)


def test_who_leads_before_the_answer_comes_keeps_its_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        compacted(pair)
        pair.when_asked_for_offsets = lambda: pair.follower.become(FOLLOWER, 7)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await eventually_true(lambda: pair.follower.partition.leading)
        await asyncio.sleep(0.05)
        assert pair.follower.log.leader_epochs.entries() == [(0, 0), (4, 1), (7, 10)]
        assert pair.epochs_asked == [3]

    run(tmp_path, monkeypatch, story)


def test_a_leader_that_copied_a_compacted_log_has_its_follower_drop_what_was_never_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it has no record left at the offsets where the two differ (simulation, seed 26052)."""

    async def story(pair: Pair) -> None:
        pair.leader.write(0, b"a")
        pair.leader.log.append_as_follower(encode_batch([Record(5, 1, None, b"c")], leader_epoch=1))
        pair.leader.become(LEADER, 6)
        pair.follower.write(0, b"a", b"lost", b"lost, too")
        pair.follower.log.high_watermark = Offset(1)
        pair.follower.become(LEADER, 6)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert b"lost" not in pair.follower.contents()

    run(tmp_path, monkeypatch, story)


def test_a_leader_that_could_not_ask_for_a_compacted_epoch_has_the_follower_start_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the epoch of its next record to begin where the gap does: this costs a copy, where a later offset might
    keep records that differ."""

    async def story(pair: Pair) -> None:
        pair.leader.write(0, b"a")
        newest = encode_batch([Record(5, 1, None, b"c")], leader_epoch=4)
        pair.leader.log.append_as_follower(newest)
        assert pair.leader.log.leader_epochs.entries() == [(0, 0), (4, 1)]
        pair.leader.become(LEADER, 6)
        pair.follower.write(0, b"a")
        pair.follower.write(1, b"compacted at the leader", b"this, too")
        own = pair.follower.log
        own.high_watermark = Offset(3)
        pair.follower.become(LEADER, 6)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        while not pair.started_over:
            await asyncio.sleep(0.001)
        assert "in epoch 0, at 1, below its own high watermark 3" in pair.started_over[0]
        assert own.log_end_offset == 3

    run(tmp_path, monkeypatch, story)


def test_what_parts_again_as_soon_as_it_is_copied_is_copied_again_only_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's epochs lack one that its records have."""

    async def story(pair: Pair) -> None:
        pair.leader.write(1, b"a")
        pair.leader.write(2, b"b")
        pair.leader.log.leader_epochs.truncate_end(Offset(1))
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        while sum(asked.fetch_offset == 2 for asked in pair.asked) < 5:
            await asyncio.sleep(0.001)
        assert loop.time() - began >= 3 * 0.05
        assert pair.started_over == []

    run(tmp_path, monkeypatch, story)


def test_logs_that_part_several_times_are_compared_epoch_by_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-279: fast failovers leave epochs that only one of the two knows."""

    async def story(pair: Pair) -> None:
        for side in (pair.leader, pair.follower):
            side.write(1, b"a")
        pair.leader.write(2, b"b", b"c")
        pair.follower.write(3, b"x")
        pair.leader.write(4, b"d")
        pair.follower.write(5, b"y", b"z")
        pair.leader.become(LEADER, 6)
        pair.follower.become(LEADER, 6)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert pair.follower.log.leader_epochs.entries() == [(1, 0), (2, 1), (4, 3)]

    run(tmp_path, monkeypatch, story)


def test_an_epoch_without_records_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        for side in (pair.leader, pair.follower):
            side.write(1, b"a")
        pair.follower.become(FOLLOWER, 2)  # led, and wrote nothing
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        assert pair.follower.log.latest_epoch == 2
        pair.leader.write(3, b"b")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert pair.follower.log.leader_epochs.entries() == [(1, 0), (3, 1)]

    run(tmp_path, monkeypatch, story)


def parted(pair: Pair) -> None:
    """A follower of a leader that has nothing, and knows of no epoch."""
    pair.follower.become(LEADER, 1)
    pair.follower.write(1, b"a", b"b", b"c")
    pair.follower.become(LEADER, 3)


def test_a_leader_that_does_not_say_where_its_log_ends_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And holds up no other partition."""

    async def story(pair: Pair) -> None:
        parted(pair)
        pair.offset_refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH]
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()

    run(tmp_path, monkeypatch, story)
    assert "broker 1 does not report where its log begins and ends: NOT_LEADER_OR_FOLLOWER" in caplog.text
    assert "nothing can be copied" not in caplog.text


def test_who_leads_before_the_answer_comes_keeps_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        parted(pair)
        pair.when_asked_for_offsets = lambda: pair.follower.become(FOLLOWER, 4)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await eventually_true(lambda: pair.follower.partition.leading)
        await asyncio.sleep(0.05)
        assert pair.follower.log.log_end_offset == 3

    run(tmp_path, monkeypatch, story)
