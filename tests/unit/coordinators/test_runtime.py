"""The runtime with a machine that adds."""

import asyncio
import threading
from typing import Any

import pytest
from tests.unit.coordinators.adder import EPOCH, Adder, Bench, P, code_of, run, settle

from ottla.coordination import newest
from ottla.coordination.state_machine import Append, Effect, Notify, SetTimer
from ottla.coordinators import stored_batches
from ottla.coordinators.batches import MAX_BATCH_BYTES
from ottla.coordinators.runtime import error_for_clients
from ottla.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CorruptMessage,
    ErrorCode,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotLeader,
)
from ottla.ids import LeaderEpoch, PartitionId
from ottla.records.batch import Compression, iter_batches
from ottla.records.control import ControlType, EndTransaction, encode_end_transaction
from ottla.records.record import Record, encode_batch, unpack_records


def test_a_reply_comes_after_the_commit_of_what_was_appended_before_it() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        added, read = bench.submit("add", 5), bench.submit("get")
        await settle()
        assert not added.done()
        assert not read.done()  # it has seen the 5
        bench.log.writes[0][1].set_result(None)
        assert (await added, await read) == (5, 5)

    run(test)


def test_what_comes_during_a_write_shares_the_next_one() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        first = bench.submit("add", 1)
        await settle()
        later = [bench.submit("add", n, n) for n in (2, 3)]
        await settle()
        assert len(bench.log.writes) == 1
        bench.log.held = False
        bench.log.writes[0][1].set_result(None)
        await asyncio.gather(first, *later)
        assert bench.log.numbers == [[1], [2, 2, 3, 3]]

    run(test)


def test_requests_of_one_moment_share_a_write() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        await asyncio.gather(*(bench.submit("add", n) for n in range(50)))
        assert bench.log.numbers == [list(range(50))]

    run(test)


def test_batches_stay_below_their_limit() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        big = 10**4_000
        await asyncio.gather(*(bench.submit("add", big) for _ in range(500)))
        assert len(bench.log.batches) == 3
        assert all(len(batch) < MAX_BATCH_BYTES + 100 for batch in bench.log.batches)

    run(test)


def test_what_is_decided_at_once_stands_in_one_batch() -> None:
    """Half of it is not to be what a crash leaves: members gone, say, and nobody told to take over from them."""

    async def test(bench: Bench) -> None:
        await bench.lead()
        big = 10**4_000
        await asyncio.gather(*(bench.submit("add", *[big + n] * 100) for n in range(3)))
        assert [len(numbers) for numbers in bench.log.numbers] == [200, 100]

    run(test)


def test_what_fits_into_no_batch_goes_into_one_write() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        big = 10**4_000
        bench.log.held = True
        asked = [bench.submit("add", *[big] * 100), bench.submit("add", *[big] * 500), bench.submit("add", 1)]
        await settle()
        bench.log.writes[0][1].set_result(None)
        await settle()
        batches = list(iter_batches(bench.log.writes[1][0]))
        assert len(batches) == 3
        assert all(header.size_bytes < MAX_BATCH_BYTES + 100 for header in batches)
        assert sum(header.record_count for header in batches) == 501
        bench.log.writes[1][1].set_result(None)
        await asyncio.gather(*asked)

    run(test)


def test_a_record_that_no_batch_takes_is_refused_and_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.coordinators.runtime.MAX_RECORD_BYTES", 1_000)

    async def test(bench: Bench) -> None:
        await bench.lead()
        parked = bench.submit("park")
        await bench.submit("add", 5)
        refused = bench.submit("add", 1, 10**2_000)
        assert code_of(refused) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await bench.submit("get") == 5
        assert (parked.done(), len(bench.machines), bench.log.numbers) == (False, 1, [[5]])
        parked.cancel()

    run(test)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_the_loop_leaves_compressed_batches_of_a_log_to_a_thread(
    is_compacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Genuine brokers may have written them, and one may unpack to megabytes."""
    unpacked_by: set[int] = set()

    def spy(*batch: Any) -> Any:
        unpacked_by.add(threading.get_ident())
        return unpack_records(*batch)

    monkeypatch.setattr(newest, "unpack_records", spy)
    monkeypatch.setattr(stored_batches, "unpack_records", spy)
    monkeypatch.setattr(Adder, "is_compacted", is_compacted)

    async def test(bench: Bench) -> None:
        records = [Record(offset, 0, b"n", b"%d" % number) for offset, number in enumerate((1, 2, 4))]
        bench.log.store(bytes(encode_batch(records, compression=Compression.GZIP)))
        bench.log.store(bytes(encode_batch([Record(0, 0, b"of another kind", b"8")])))
        bench.runtime.on_leadership(P, EPOCH)
        assert await bench.runtime.until_active(P, 10)
        assert bench.machines[-1].positions == [2] if is_compacted else [0, 1, 2]
        assert await bench.submit("get") == (4 if is_compacted else 7)
        assert unpacked_by
        assert threading.get_ident() not in unpacked_by

    run(test)


def test_a_listener_that_fails_ends_neither_a_load_nor_the_writes(caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        def hear(partition: PartitionId, epoch: LeaderEpoch, message: object) -> None:
            bench.heard.append((partition, epoch, message))
            if message in ("bad", "added 2"):
                raise ValueError("a defect")

        bench.runtime._listener = hear
        bench.first_effects = [Notify("bad"), Notify("good")]
        await bench.lead()
        await settle()
        assert [message for _, _, message in bench.heard] == ["bad", "good"]
        await bench.submit("tell", 2)
        await bench.submit("tell", 3)
        assert [message for _, _, message in bench.heard[2:]] == ["added 2", "added 3"]
        logged = [record.getMessage() for record in caplog.records if record.name == "ottla.coordinators.runtime"]
        assert logged == ["test 7: the listener failed on str"] * 2

    run(test)


def test_a_successor_reads_the_log() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        for n in range(5):
            await bench.submit("add", n)
        bench.runtime.on_resign(P)
        with pytest.raises(NotCoordinator):
            bench.submit("get")
        bench.runtime.on_leadership(P, LeaderEpoch(1))
        with pytest.raises(CoordinatorLoadInProgress):
            bench.submit("get")
        await settle()
        await settle()
        assert await bench.submit("get") == 10
        await bench.submit("add", 1)
        assert bench.machines[-1].positions == [0, 1, 2, 3, 4, 5]

    run(test)


def test_transactions_and_unknown_records_are_read() -> None:
    async def test(bench: Bench) -> None:
        def commit(value: bytes, producer_id: int) -> bytes:
            record = Record(0, 0, b"n", value)
            return bytes(encode_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True))

        def end(producer_id: int, kind: ControlType) -> bytes:
            marker = EndTransaction(kind, 0, 0)
            return bytes(encode_end_transaction(marker, producer_id=producer_id, producer_epoch=0))

        bench.log.store(commit(b"1", 8))
        bench.log.store(commit(b"10", 9))
        bench.log.store(end(8, ControlType.COMMIT))
        bench.log.store(end(9, ControlType.ABORT))
        bench.log.store(bytes(encode_batch([Record(0, 0, b"x", b"?"), Record(1, 0, b"n", b"100")])))
        await bench.lead()
        assert await bench.submit("get") == 101

    run(test)


def test_one_can_wait_for_a_partition_to_be_read() -> None:
    async def test(bench: Bench) -> None:
        assert not await bench.runtime.until_active(P, 5)
        bench.runtime.on_leadership(P, EPOCH)
        assert await bench.runtime.until_active(P, 5)
        bench.runtime.on_resign(P)
        bench.log.store(bytes(encode_batch([Record(0, 0, b"n", b"4")])))
        bench.log.unreadable = CorruptMessage("a flipped bit")
        bench.runtime.on_leadership(P, LeaderEpoch(1))
        assert not await bench.runtime.until_active(P, 0.01)

    run(test)


def test_a_newer_epoch_of_the_same_leader_changes_nothing() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        parked = bench.submit("park")
        bench.runtime.on_leadership(P, LeaderEpoch(3))
        await settle()
        assert not parked.done()
        assert len(bench.machines) == 1

    run(test)


def test_after_a_failed_write_the_log_is_read_anew() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        await bench.submit("add", 1)
        bench.log.held = True
        parked, added = bench.submit("park"), bench.submit("add", 5)
        await settle()
        queued = bench.submit("add", 6)
        bench.log.held = False
        bench.log.writes[0][1].set_exception(KafkaStorageError("disk full"))
        await settle()
        assert code_of(added) is ErrorCode.NOT_COORDINATOR
        assert code_of(parked) is code_of(queued) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await settle()
        assert await bench.submit("get") == 1

    run(test)


def test_a_leader_whose_session_is_suspended_goes_on_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        parked, added = bench.submit("park"), bench.submit("add", 5)
        await settle()
        bench.log.writes[0][1].set_exception(NotLeader("the session is in doubt"))
        await settle()
        assert code_of(parked) is code_of(added) is ErrorCode.NOT_COORDINATOR
        with pytest.raises(CoordinatorLoadInProgress):
            bench.submit("get")
        bench.log.held = False
        while not bench.runtime.is_active(P):
            await asyncio.sleep(0.001)
        assert await bench.submit("add", 3) == 3

    monkeypatch.setattr("ottla.coordinators.runtime.LOAD_RETRY_S", 0.05)
    run(test)


def test_a_write_under_way_at_resignation_is_not_missed_by_the_next_term() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        added = bench.submit("add", 5)
        await settle()
        bench.runtime.on_resign(P)
        assert code_of(added) is ErrorCode.NOT_COORDINATOR
        bench.runtime.on_leadership(P, LeaderEpoch(2))
        await settle()
        assert not bench.runtime.is_active(P)
        bench.log.held = False
        bench.log.writes[0][1].set_result(None)
        await settle()
        assert await bench.submit("get") == 5

    run(test)


def test_nobody_waits_longer_than_the_commit_timeout() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        added = bench.submit("add", 5)
        with pytest.raises(ApiError) as caught:
            await added
        assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        late = bench.submit("get")
        assert code_of(late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        bench.log.held = False
        bench.log.writes[0][1].set_result(None)
        await settle()
        assert await bench.submit("get") == 5  # it was committed after all

    run(test, commit_timeout_ms=20)


def test_the_coordinator_is_told_what_is_committed_even_if_it_comes_late() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        told = bench.submit("tell", 5)
        with pytest.raises(ApiError):
            await told
        assert bench.heard == []
        bench.log.held = False
        bench.log.writes[0][1].set_result(None)
        await settle()
        assert bench.heard == [(P, EPOCH, "added 5")]

    run(test, commit_timeout_ms=20)


def test_the_coordinator_is_not_told_of_what_a_failed_write_takes_back() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        told, queued = bench.submit("tell", 5), bench.submit("tell", 6)
        await settle()
        bench.log.held = False
        bench.log.writes[0][1].set_exception(KafkaStorageError("disk full"))
        await settle()
        assert told.exception() is not None
        assert queued.exception() is not None
        assert bench.heard == []

    run(test)


def test_a_defect_costs_one_machine_and_the_log_tells_what_led_to_it(caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        await bench.submit("add", 3)
        failed = bench.submit("bug")
        assert code_of(failed) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "cannot handle Do; the events that led to it: Do add, Do bug" in caplog.text
        await settle()
        assert await bench.submit("get") == 3

    run(test)


def test_timers_come_back_as_events() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        parked = bench.submit("park", 30_000)
        bench.clock.at += 29.9
        bench.runtime.fire_timers(P)
        assert not parked.done()
        bench.clock.at += 0.2
        bench.runtime.fire_timers(P)
        assert await parked == ("wake", "up")

    run(test)


def test_timers_fire_by_themselves() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        parked = bench.submit("park", 1)
        bench.clock.at += 1
        assert await asyncio.wait_for(parked, 5) == ("wake", "up")

    run(test)


def test_stopping_lets_writes_arrive_and_sends_the_rest_away() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.lead()
        parked, added = bench.submit("park"), bench.submit("add", 5)
        await bench.runtime.stop()
        assert await added == 5
        assert code_of(parked) is ErrorCode.NOT_COORDINATOR

    asyncio.run(main())


def test_a_broker_that_stops_waits_no_longer_than_it_may_and_expires_nobody() -> None:
    """What it is writing may wait for followers that have no leader to fetch from any more."""

    async def main() -> None:
        bench = Bench(commit_timeout_ms=60_000)
        await bench.lead()
        bench.log.held = True
        parked, added = bench.submit("park", 30_000), bench.submit("add", 5)
        await settle()
        async with asyncio.timeout(10):
            await bench.runtime.drain(0.01)
            bench.clock.at += 31
            bench.runtime.fire_timers(P)
            assert not parked.done()
            with pytest.raises(NotCoordinator):
                bench.submit("get")
            bench.runtime.on_leadership(PartitionId(P + 1), EPOCH)
            assert bench.runtime.partitions() == [P]
            await bench.runtime.stop()
        assert code_of(parked) is code_of(added) is ErrorCode.NOT_COORDINATOR

    asyncio.run(main())


def test_a_log_that_cannot_be_read_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(bench: Bench) -> None:
        bench.log.store(bytes(encode_batch([Record(0, 0, b"n", b"4")])))
        bench.log.unreadable = CorruptMessage("a flipped bit")
        bench.runtime.on_leadership(P, EPOCH)
        await settle()
        with pytest.raises(CoordinatorLoadInProgress):
            bench.submit("get")
        bench.log.unreadable = None
        while not bench.runtime.is_active(P):
            await asyncio.sleep(0.001)
        assert await bench.submit("get") == 4

    monkeypatch.setattr("ottla.coordinators.runtime.LOAD_RETRY_S", 0.001)
    run(test)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotLeader(), ErrorCode.NOT_COORDINATOR),
        (KafkaStorageError(), ErrorCode.NOT_COORDINATOR),
        (MessageTooLarge(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ApiError(ErrorCode.NOT_ENOUGH_REPLICAS), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (OSError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_clients_hear_of_the_coordinator_not_of_its_log(error: Exception, code: ErrorCode) -> None:
    assert error_for_clients(error) is code


def test_a_machine_of_many_groups_begins_in_several_turns_of_the_loop() -> None:
    """It takes requests, and listeners are notified, only after all its first effects."""

    async def test(bench: Bench) -> None:
        timers = [SetTimer(("wake", str(number)), 60_000) for number in range(1_000)]
        bench.first_effects[:] = [*timers, Append((5,)), Notify("first"), None, *timers, Append((6,)), Notify("last")]
        bench.clock.step_s = 0.001
        bench.runtime.on_leadership(P, EPOCH)
        turns = 0
        while not bench.runtime.is_active(P):
            assert not bench.heard
            await asyncio.sleep(0)
            turns += 1
        bench.clock.step_s = 0
        assert turns > 200
        assert await bench.submit("get") == 11
        await settle()
        assert [message for _, _, message in bench.heard] == ["first", "last"]
        bench.clock.at += 60
        parked = bench.submit("park")
        bench.runtime.fire_timers(P)
        assert parked.done()

    run(test)


def test_a_machine_that_cannot_write_at_first_is_made_anew() -> None:
    async def test(bench: Bench) -> None:
        bench.log.held = True
        bench.clock.step_s = 0.001
        bench.first_effects[:] = [Append((5,)), *[None] * 3_000, Append((6,))]
        bench.runtime.on_leadership(P, EPOCH)
        await settle()
        bench.log.held = False
        bench.log.writes[0][1].set_exception(KafkaStorageError("disk full"))
        while not bench.runtime.is_active(P):
            await asyncio.sleep(0)
        assert len(bench.machines) == 2
        assert await bench.submit("get") == 11

    run(test)


def test_thousands_of_timers_that_are_due_together_fire_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        waiting = [bench.submit("park", 1_000) for _ in range(2)]
        for number in range(10):
            bench.first_effects.append(SetTimer(("wake", str(number)), 1_000))
        bench.runtime.on_resign(P)
        assert all(code_of(each) is ErrorCode.NOT_COORDINATOR for each in waiting)
        await bench.lead()
        fired: list[object] = []

        def handle(event: object, now_ms: int) -> list[Effect]:
            fired.append(event)
            bench.clock.at += 0.002  # what a session's end takes
            return []

        monkeypatch.setattr(bench.machines[-1], "handle", handle)
        bench.clock.at += 1
        bench.runtime.fire_timers(P)
        assert 0 < len(fired) < 10
        while len(fired) < 10:
            await asyncio.sleep(0)

    run(test)


def test_a_batch_of_many_records_is_replayed_in_several_turns_of_the_loop() -> None:
    async def test(bench: Bench) -> None:
        bench.log.store(bytes(encode_batch([Record(number, 0, b"n", b"1") for number in range(1_000)])))
        bench.clock.step_s = 0.001
        bench.runtime.on_leadership(P, EPOCH)
        turns = 0
        while not bench.runtime.is_active(P):
            await asyncio.sleep(0)
            turns += 1
        assert turns > 200
        assert await bench.submit("get") == 1_000

    run(test)
