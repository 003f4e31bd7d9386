"""What a follower makes of its leader's answers: real logs, and a leader that is a function."""

import asyncio
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from tests.unit.replication.leader_and_follower import (
    FOLLOWER,
    LEADER,
    TOPIC_ID,
    TP,
    Pair,
    batch,
    eventually_true,
    run,
)

from ottla.client.errors import BrokerUnavailable
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, LeaderEpoch, Offset
from ottla.log.partition_log import PartitionLog
from ottla.replication.fetcher import SHORT_WAIT_S


def test_a_follower_copies_bytes_high_watermark_and_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a", b"b")
        pair.leader.log.high_watermark = Offset(1)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        await eventually_true(lambda: pair.follower.log.high_watermark == 1 and pair.asked[-1].fetch_offset == 2)
        assert pair.follower.log.latest_epoch == 3
        assert (pair.asked[0].current_leader_epoch, pair.asked[0].last_fetched_epoch) == (3, -1)
        assert (pair.asked[-1].fetch_offset, pair.asked[-1].last_fetched_epoch) == (2, 3)

    run(tmp_path, monkeypatch, story)


@pytest.mark.parametrize("turns", range(5))
def test_it_stops_although_something_to_copy_comes_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """It rests since its leader is away; `asyncio.wait_for` would lose the cancellation in one of these turns."""

    async def story(pair: Pair) -> None:
        pair.follower.become(LEADER, 3)
        away = Mock(side_effect=BrokerUnavailable("broker 1 is away"))
        monkeypatch.setattr("ottla.replication.fetcher.AsyncConnection", away)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await asyncio.sleep(0.05)
        pair.fetchers._fetchers[LEADER].add(pair.follower.partition, TOPIC_ID)
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await pair.fetchers.close()

    run(tmp_path, monkeypatch, story)


def test_a_fetch_says_only_what_is_new_until_the_leader_has_forgotten_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        await eventually_true(lambda: pair.said[-1] == 0)
        assert pair.said[0] == 1
        pair.session_id = 12
        requests = len(pair.said)
        await eventually_true(lambda: 1 in pair.said[requests:] and pair.said[-1] == 0)
        assert pair.said[requests:].count(1) == 1
        pair.leader.write(3, b"b")
        await pair.until_equal()
        assert pair.replaced == [0, 0]

    run(tmp_path, monkeypatch, story)


def test_a_partition_without_news_is_looked_at_now_and_then_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    epoch_of = cast(Any, PartitionLog.latest_epoch).fget

    def latest_epoch(log: PartitionLog) -> LeaderEpoch:
        looked_at.append(1)
        return epoch_of(log)

    async def until_asked_for(pair: Pair, requests: int) -> None:
        wanted = len(pair.said) + requests
        while len(pair.said) < wanted:
            await asyncio.sleep(0.002)

    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a", b"b")
        pair.leader.log.high_watermark = Offset(2)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        pair.has_news = False
        await until_asked_for(pair, 3)
        monkeypatch.setattr(PartitionLog, "latest_epoch", property(latest_epoch))
        await until_asked_for(pair, 20)
        assert len(looked_at) < 4

        pair.follower.log.delete_records_before(Offset(1))  # as retention does
        monkeypatch.setattr("ottla.replication.fetcher.LOOK_AT_ALL_S", 0.0)
        while pair.told.log_start_offset != 1:
            await asyncio.sleep(0.002)

    run(tmp_path, monkeypatch, story)


def test_a_fetch_that_is_given_up_names_the_session_that_the_next_one_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader would else keep one more of its few places with every partition that comes."""
    monkeypatch.setattr("ottla.replication.fetcher.EXPECTED_S", 0.0)

    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        (fetcher,) = pair.fetchers._fetchers.values()
        pair.open.clear()  # a fetch waits at the leader now
        while not pair.waits:
            await asyncio.sleep(0.002)
        fetcher.add(pair.follower.partition, TOPIC_ID)
        await asyncio.sleep(0.01)
        pair.open.set()
        pair.leader.write(3, b"b")
        await pair.until_equal()
        assert pair.replaced == [0, 11]

    run(tmp_path, monkeypatch, story)


def test_of_many_partitions_that_come_in_a_row_few_give_up_a_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that does has all others named anew: the square of their number."""
    monkeypatch.setattr("ottla.replication.fetcher.REPEAT_S", 3600.0)
    monkeypatch.setattr("ottla.replication.fetcher.EXPECTED_S", 0.0)

    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        (fetcher,) = pair.fetchers._fetchers.values()
        pair.open.clear()
        await eventually_true(lambda: pair.waits)
        first = fetcher._round
        fetcher.add(pair.follower.partition, TOPIC_ID)
        await eventually_true(lambda: fetcher._round not in (None, first))
        second = fetcher._round
        assert second is not None
        fetcher.add(pair.follower.partition, TOPIC_ID)
        for _ in range(20):
            await asyncio.sleep(0)
        assert fetcher._round is second
        assert not second.cancelling()
        pair.open.set()
        pair.leader.write(3, b"b")
        await pair.until_equal()

    run(tmp_path, monkeypatch, story)


def test_while_more_partitions_are_expected_a_fetch_waits_shortly_and_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fetch that is given up costs the session: all partitions are named anew."""

    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        (fetcher,) = pair.fetchers._fetchers.values()
        assert max(pair.waits_ms) <= SHORT_WAIT_S * 1000
        pair.open.clear()
        await eventually_true(lambda: pair.waits)
        waiting = fetcher._round
        fetcher.add(pair.follower.partition, TOPIC_ID)
        for _ in range(20):
            await asyncio.sleep(0)
        assert fetcher._round is waiting
        pair.open.set()
        fetcher._expects_until = 0.0
        await eventually_true(lambda: pair.waits_ms[-1] == 500)
        assert pair.replaced == [0]

    run(tmp_path, monkeypatch, story)


def test_what_could_not_be_asked_since_nobody_knew_the_leaders_address_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session would else take it for said, and the leader would never hear of the partition's new offset."""

    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        (fetcher,) = pair.fetchers._fetchers.values()
        await pair.until_equal()
        unknown: list[BrokerId] = []

        def not_known_for_a_moment(broker: BrokerId) -> tuple[str, int] | None:
            if pair.follower.log.log_end_offset < 2 or len(unknown) == 2:
                return ("h", 1)
            unknown.append(broker)
            return None

        fetcher._address = not_known_for_a_moment
        pair.leader.write(3, b"b")  # the next fetch would say that the follower has it
        await pair.until_equal()
        pair.leader.write(3, b"c")
        await pair.until_equal()
        assert len(unknown) == 2
        assert pair.replaced == [0, 11]

    run(tmp_path, monkeypatch, story)


def test_a_leader_without_room_for_sessions_is_told_everything_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(pair: Pair) -> None:
        pair.session_id = 0
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        await eventually_true(lambda: len(pair.said) > 2)
        assert set(pair.said) == {1}

    run(tmp_path, monkeypatch, story)


def test_a_follower_behind_the_leaders_start_begins_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        pair.leader.write(1, *(b"%d" % number for number in range(6)))
        pair.leader.log.high_watermark = Offset(6)
        pair.leader.log.delete_records_before(Offset(4))
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert (pair.follower.log.log_start_offset, pair.follower.log.log_end_offset) == (4, 6)

    run(tmp_path, monkeypatch, story)


def test_a_follower_begins_with_the_batch_in_the_midst_of_which_the_leader_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeleteRecords knows no batches."""

    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        for _ in range(2):
            pair.leader.log.append_as_leader(batch(count=3), LeaderEpoch(1))
        pair.leader.log.high_watermark = Offset(6)
        pair.leader.log.delete_records_before(Offset(1))
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert (pair.follower.log.log_start_offset, pair.follower.log.log_end_offset) == (1, 6)

    run(tmp_path, monkeypatch, story)


def test_the_start_of_the_leaders_log_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        pair.leader.write(1, b"a", b"b", b"c")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        pair.leader.log.high_watermark = Offset(3)
        pair.leader.log.delete_records_before(Offset(2))
        for _ in range(200):
            if pair.follower.log.log_start_offset == 2:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(pair.follower.log)

    run(tmp_path, monkeypatch, story)


def test_a_leader_that_has_deleted_all_that_could_be_compared_is_copied_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the follower has of an epoch that the leader has forgotten may never have been committed."""

    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.leader.write(1, b"a")
        pair.leader.become(LEADER, 2)
        pair.leader.write(2, b"b", b"c")
        pair.leader.log.high_watermark = Offset(3)
        pair.leader.log.delete_records_before(Offset(3))
        pair.follower.write(1, b"a", b"never", b"committed")
        pair.follower.become(LEADER, 2)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        for _ in range(200):
            if pair.follower.log.log_start_offset == 3:
                break
            await asyncio.sleep(0.005)
        assert pair.follower.log.size_bytes == 0, "nothing of it is left to come back after a crash"
        pair.leader.write(2, b"d")
        await pair.until_equal()

    run(tmp_path, monkeypatch, story)


def test_errors_make_it_wait_longer_and_longer_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        pair.leader.write(1, b"a")
        pair.refusals = [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID]
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()

    run(tmp_path, monkeypatch, story)


def test_who_leads_by_now_copies_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        pair.leader.write(1, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        pair.follower.become(FOLLOWER, 2)
        pair.leader.write(1, b"of the past")
        await asyncio.sleep(0.05)
        assert pair.follower.log.log_end_offset == 1

    run(tmp_path, monkeypatch, story)


def test_nothing_is_followed_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        pair.follower.become(LEADER, 1)
        await pair.fetchers.close()
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await asyncio.sleep(0.02)
        assert pair.asked == []

    run(tmp_path, monkeypatch, story)


def test_who_has_to_catch_up_is_held_back_and_who_is_in_sync_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(pair: Pair) -> None:
        monkeypatch.setattr("ottla.replication.fetcher.LONGEST_REST_S", 0.02)
        pair.throttle.set_partitions({TP.topic: None})
        pair.throttle.rate.change(1, asyncio.get_running_loop().time())
        pair.throttle.spend(TP, 1000, asyncio.get_running_loop().time())
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        pair.leader.write(1, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()  # the in-sync set has it
        pair.fetchers.stop(pair.follower.partition)
        pair.follower.partition.isr = (LEADER,)
        pair.leader.write(1, b"b")
        asked = len(pair.asked)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await asyncio.sleep(0.1)
        assert len(pair.asked) == asked
        pair.throttle.rate.change(1 << 20, asyncio.get_running_loop().time())
        await pair.until_equal()

    run(tmp_path, monkeypatch, story)


def test_a_broker_that_is_given_all_its_partitions_asks_for_them_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a")
        with pair.fetchers.held():
            pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
            await asyncio.sleep(0.05)
            assert pair.said == []
        await pair.until_equal()
        assert pair.said[0] == 1

    run(tmp_path, monkeypatch, story)
