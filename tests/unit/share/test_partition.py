"""One share partition: acquiring, acknowledging, locks, limits, and what is written."""

import pytest

from ottla.errors import ApiError, CorruptMessage, ErrorCode
from ottla.share.partition import Acknowledgement, Acquired, Fetched, Limits, SharePartition, Write
from ottla.share.state import DeliveryState, SharePartitionState, StateBatch, combine
from ottla.share.window import RecordState

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOCK = 30.0


def partition(
    start: int = 0,
    batches: tuple[StateBatch, ...] = (),
    *,
    log_end: int = 10_000,
    locks: int = 2_000,
    deliveries: int = 5,
    key_ordered: bool = False,
) -> SharePartition:
    return SharePartition(
        SharePartitionState(0, start, batches),
        start_offset=start,
        log_end_offset=log_end,
        limits=Limits(locks, deliveries),
        key_ordered=key_ordered,
    )


def acquire(
    machine: SharePartition,
    member: str,
    *fetched: Fetched,
    max_records: int = 500,
    batch_size: int = 500,
    now: float = 0,
    strictly: bool = False,
) -> list[Acquired]:
    offset = machine.next_offset()
    assert offset is not None
    return machine.acquire(
        member,
        offset,
        fetched,
        until=now + LOCK,
        max_records=max_records,
        batch_size=batch_size,
        strictly=strictly,
    )


def say(machine: SharePartition, member: str, first: int, last: int, *types: int) -> int:
    return machine.acknowledge(member, [Acknowledgement(first, last, types)])


def commit(machine: SharePartition) -> Write:
    write = machine.take_write()
    assert write is not None
    machine.written(committed=True)
    return write


def states(machine: SharePartition) -> list[tuple[int, int, str, int]]:
    return [(run.first, run.last, run.status.state.name, run.status.delivery_count) for run in machine.runs()]


def test_whole_batches_are_acquired_until_there_are_enough() -> None:
    machine = partition()
    assert acquire(machine, "a", Fetched(0, 4), Fetched(5, 9), Fetched(10, 14), max_records=6) == [Acquired(0, 9, 1)]
    assert machine.next_offset() == 10
    assert acquire(machine, "b", Fetched(10, 14), max_records=6) == [Acquired(10, 14, 1)]
    assert states(machine) == [(0, 9, "ACQUIRED", 1), (10, 14, "ACQUIRED", 1)]


def test_answers_are_cut_at_batches_near_the_batch_size() -> None:
    machine = partition()
    found = acquire(machine, "a", *(Fetched(at, at + 2) for at in range(0, 12, 3)), batch_size=4)
    assert found == [Acquired(0, 5, 1), Acquired(6, 11, 1)]


def test_acknowledged_records_let_the_start_move_once_they_are_written() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 9))
    number = say(machine, "a", 0, 9, ACCEPT)
    assert machine.start_offset == 0, "it is not written yet"
    assert machine.take_write() == Write(number, 10, ())
    machine.written(committed=True)
    assert (machine.start_offset, machine.runs(), machine.take_write()) == (10, [], None)


def test_out_of_order_acknowledgements_are_written_as_batches() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 9))
    machine.acknowledge("a", [Acknowledgement(3, 5, [ACCEPT]), Acknowledgement(7, 8, [REJECT, RELEASE])])
    assert commit(machine) == Write(
        1,
        0,
        (
            StateBatch(3, 5, DeliveryState.ACKNOWLEDGED, 1),
            StateBatch(7, 7, DeliveryState.ARCHIVED, 1),
            StateBatch(8, 8, DeliveryState.AVAILABLE, 1),
        ),
        4,
    )
    assert machine.next_offset() == 8
    assert acquire(machine, "b", Fetched(0, 9)) == [Acquired(8, 8, 2)]


def test_one_write_is_on_its_way_at_a_time_and_takes_all_that_came_up() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 9))
    first = say(machine, "a", 0, 1, ACCEPT)
    assert machine.take_write() == Write(first, 2, ())
    second = say(machine, "a", 2, 3, ACCEPT)
    assert say(machine, "a", 6, 6, ACCEPT) == second != first
    assert machine.take_write() is None
    machine.written(committed=True)
    assert machine.take_write() == Write(second, 4, (StateBatch(6, 6, DeliveryState.ACKNOWLEDGED, 1),), 1)


def test_a_failed_write_gives_the_records_back_to_who_holds_them() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 4))
    say(machine, "a", 0, 4, ACCEPT)
    assert machine.next_expiry() is None
    machine.take_write()
    machine.written(committed=False)
    assert states(machine) == [(0, 4, "ACQUIRED", 1)]
    assert machine.next_expiry() == LOCK
    say(machine, "a", 0, 4, ACCEPT)
    assert commit(machine).start_offset == 5


def test_what_is_being_acknowledged_is_nobody_elses_and_cannot_be_acknowledged_again() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 4))
    say(machine, "a", 0, 4, RELEASE)
    assert machine.next_offset() == 5
    with pytest.raises(ApiError) as error:
        say(machine, "a", 2, 2, ACCEPT)
    assert error.value.code is ErrorCode.INVALID_RECORD_STATE
    commit(machine)
    assert machine.next_offset() == 0


def test_expired_locks_make_records_available_at_once_and_count_as_deliveries() -> None:
    machine = partition(deliveries=2)
    acquire(machine, "a", Fetched(0, 4))
    assert machine.next_expiry() == LOCK
    assert not machine.expire(LOCK - 0.1)
    assert machine.expire(LOCK)
    assert acquire(machine, "b", Fetched(0, 4)) == [Acquired(0, 4, 2)]
    assert commit(machine).batches == (StateBatch(0, 4, DeliveryState.AVAILABLE, 1),)
    machine.expire(LOCK)
    assert machine.start_offset == 5, "it was delivered as often as it may be"
    assert commit(machine) == Write(2, 5, ())


def test_what_is_finished_is_said_again_after_a_write_that_may_have_come_through() -> None:
    """A coordinator that answers too late has moved the start, and forgotten what lies before it."""
    machine = partition()
    acquire(machine, "m", Fetched(0, 9))
    remembered: tuple[StateBatch, ...] = ()
    for acknowledged in ((5, 5), (0, 4)):
        say(machine, "m", *acknowledged, ACCEPT)
        write = machine.take_write()
        assert write is not None
        remembered = combine(remembered, write.batches, write.start_offset)
        machine.written(committed=acknowledged == (5, 5))
    assert write is not None
    assert write.start_offset == 6
    machine.expire(LOCK)
    write = commit(machine)
    assert write.start_offset == 0
    successor = partition(0, combine(remembered, write.batches, write.start_offset))
    assert states(successor) == states(machine)


def test_what_expires_is_written_again_if_the_write_fails() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 4))
    machine.expire(LOCK)
    machine.take_write()
    machine.written(committed=False)
    assert commit(machine).batches == (StateBatch(0, 4, DeliveryState.AVAILABLE, 1),)


def test_a_released_record_is_rejected_when_it_was_delivered_often_enough() -> None:
    machine = partition(deliveries=2)
    for delivery in (1, 2):
        assert acquire(machine, "a", Fetched(0, 0)) == [Acquired(0, 0, delivery)]
        say(machine, "a", 0, 0, RELEASE)
        commit(machine)
    assert machine.start_offset == 1


def test_the_end_of_a_session_takes_its_deliveries_back() -> None:
    machine = partition(deliveries=2)
    acquire(machine, "a", Fetched(0, 4))
    acquire(machine, "b", Fetched(5, 9))
    assert machine.release("a")
    assert not machine.release("a")
    assert states(machine) == [(0, 4, "AVAILABLE", 0), (5, 9, "ACQUIRED", 1)]
    assert acquire(machine, "b", Fetched(0, 4)) == [Acquired(0, 4, 1)]


def test_no_more_than_the_limit_is_under_way_but_what_was_released_is_given_again() -> None:
    machine = partition(locks=10)
    acquire(machine, "a", Fetched(0, 4), Fetched(5, 9), Fetched(10, 14))
    assert machine.end_offset == 10
    assert machine.next_offset() is None
    say(machine, "a", 7, 7, RELEASE)
    commit(machine)
    assert machine.next_offset() == 7
    assert acquire(machine, "b", Fetched(5, 9), Fetched(10, 14)) == [Acquired(7, 7, 2)]
    assert machine.next_offset() is None
    say(machine, "a", 0, 4, ACCEPT)
    commit(machine)
    assert machine.next_offset() == 10


def test_control_batches_aborted_records_and_gaps_are_finished_without_anybody() -> None:
    machine = partition()
    assert acquire(machine, "a", Fetched(2, 4), Fetched(5, 5, False), Fetched(8, 9)) == [
        Acquired(2, 4, 1),
        Acquired(8, 9, 1),
    ]
    assert machine.start_offset == 2
    machine.acknowledge("a", [Acknowledgement(2, 4, [ACCEPT]), Acknowledgement(8, 9, [ACCEPT])])
    commit(machine)
    assert machine.start_offset == 10


def test_what_is_not_deliverable_is_written_even_if_nothing_else_happens() -> None:
    machine = partition()
    assert acquire(machine, "a", Fetched(0, 9, False)) == []
    assert machine.take_write() == Write(1, 10, ())


@pytest.mark.parametrize(
    ("member", "first", "last", "types", "code"),
    [
        ("b", 0, 4, (ACCEPT,), ErrorCode.INVALID_RECORD_STATE),
        ("a", 0, 9, (ACCEPT,), ErrorCode.INVALID_RECORD_STATE),
        ("a", 0, 14, (ACCEPT,), ErrorCode.INVALID_REQUEST),
        ("a", 20, 24, (ACCEPT,), ErrorCode.INVALID_REQUEST),
        ("a", 0, 4, (5,), ErrorCode.INVALID_REQUEST),
        ("a", 0, 4, (ACCEPT, ACCEPT), ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_acknowledgements_change_nothing(
    member: str, first: int, last: int, types: tuple[int, ...], code: ErrorCode
) -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 4))
    acquire(machine, "b", Fetched(5, 9))
    before = machine.runs()
    with pytest.raises(ApiError) as error:
        machine.acknowledge("a" if member == "a" else "b", [Acknowledgement(first, last, types)])
    assert (error.value.code, machine.runs(), machine.take_write()) == (code, before, None)


def test_one_bad_batch_of_acknowledgements_spoils_the_others() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 4))
    with pytest.raises(ApiError):
        machine.acknowledge("a", [Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(1, 2, [ACCEPT])])
    assert states(machine) == [(0, 4, "ACQUIRED", 1)]


def test_acknowledgements_of_what_the_log_has_let_go_are_passed_over() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 9))
    machine.move_start(5)
    assert say(machine, "a", 0, 4, ACCEPT) == 0
    say(machine, "a", 3, 9, ACCEPT)
    assert commit(machine).start_offset == 10


def test_the_log_may_begin_after_everything_that_is_known() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 9))
    say(machine, "a", 0, 2, ACCEPT)
    machine.take_write()
    machine.move_start(50)
    machine.written(committed=True)
    assert (machine.start_offset, machine.end_offset, machine.next_offset()) == (50, 50, 50)


def test_starts_from_what_is_remembered() -> None:
    machine = partition(
        10,
        (StateBatch(12, 13, DeliveryState.ACKNOWLEDGED, 1), StateBatch(16, 17, DeliveryState.AVAILABLE, 3)),
    )
    assert states(machine) == [
        (10, 11, "AVAILABLE", 0),
        (12, 13, "ACKNOWLEDGED", 1),
        (14, 15, "AVAILABLE", 0),
        (16, 17, "AVAILABLE", 3),
    ]
    assert acquire(machine, "a", Fetched(8, 20)) == [
        Acquired(10, 11, 1),
        Acquired(14, 15, 1),
    ], "what was delivered three times comes by itself"
    assert acquire(machine, "a", Fetched(8, 20)) == [Acquired(16, 16, 4)]


def test_forgets_what_a_crash_has_taken_from_the_log() -> None:
    machine = partition(10, (StateBatch(12, 20, DeliveryState.ACKNOWLEDGED, 1),), log_end=15)
    assert states(machine) == [(10, 11, "AVAILABLE", 0), (12, 14, "ACKNOWLEDGED", 1)]
    assert partition(20, log_end=15).next_offset() == 15


def test_a_state_of_a_later_version_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="unknown state 9"):
        partition(0, (StateBatch(0, 1, 9, 1),))


def test_the_first_start_is_written_at_once() -> None:
    machine = SharePartition(SharePartitionState(0, -1), start_offset=40, log_end_offset=50, limits=Limits(2_000, 5))
    assert machine.take_write() == Write(1, 40, ())


# -- key order --------------------------------------------------------------------------------------------------------


def learn(machine: SharePartition, first: int, keys: str) -> None:
    """A batch with a record per letter; `-` has no key, `.` is not there."""
    machine.learn(
        Fetched(first, first + len(keys) - 1),
        [(first + at, None if key == "-" else key.encode()) for at, key in enumerate(keys) if key != "."],
    )


def take(machine: SharePartition, member: str, wanted: int = 500, now: float = 0) -> list[int]:
    ready = machine.ready(wanted)
    found = machine.acquire_ready(member, ready, until=now + LOCK, batch_size=500)
    assert [offset for one in found for offset in range(one.first, one.last + 1)] == ready
    return ready


def test_of_one_key_one_record_is_held_and_others_go_on() -> None:
    machine = partition(key_ordered=True)
    assert machine.unknown_from() == 0
    learn(machine, 0, "aab-a-bc")
    assert take(machine, "m1", 2) == [0, 2]
    assert take(machine, "m2") == [3, 5, 7]
    assert take(machine, "m3") == []
    say(machine, "m1", 2, 2, ACCEPT)
    assert take(machine, "m3") == [], "the acknowledgement is not written yet"
    commit(machine)
    assert take(machine, "m3") == [6]


@pytest.mark.parametrize("how", ["release", "expire", "close"])
def test_a_key_never_overtakes_itself(how: str) -> None:
    machine = partition(key_ordered=True)
    learn(machine, 0, "aab")
    assert take(machine, "m1", 1) == [0]
    if how == "release":
        say(machine, "m1", 0, 0, RELEASE)
        commit(machine)
    elif how == "expire":
        machine.expire(LOCK)
    else:
        machine.release("m1")
    assert take(machine, "m2") == [0, 2]


def test_a_record_that_is_given_up_frees_its_key() -> None:
    machine = partition(key_ordered=True, deliveries=2)
    learn(machine, 0, "aa")
    for _ in range(2):
        assert take(machine, "m") == [0]
        machine.expire(LOCK)
    assert take(machine, "m") == [1]


def test_reads_on_while_too_little_can_be_delivered_and_not_too_much_is_waiting() -> None:
    machine = partition(key_ordered=True, locks=10)
    learn(machine, 0, "aaaa")
    assert take(machine, "m") == [0]
    assert machine.unknown_from() == 4
    learn(machine, 4, "bbbbbb")
    assert take(machine, "m") == [4]
    assert machine.unknown_from() is None, "as much is waiting as may"
    say(machine, "m", 4, 4, ACCEPT)
    commit(machine)
    assert take(machine, "m") == [5]
    assert machine.unknown_from() == 10


def test_what_is_learnt_can_be_delivered_after_what_was_ready_before() -> None:
    machine = partition(key_ordered=True)
    learn(machine, 0, "ab")
    ready = machine.ready(500)
    ready += machine.learn(Fetched(2, 5), [(2, b"a"), (3, b"c"), (4, None), (5, b"c")])
    assert ready == machine.ready(500) == [0, 1, 3, 4]


def test_a_gap_of_any_size_costs_nothing() -> None:
    """A hundred million offsets that compaction took would stop the broker for seconds, one by one."""
    machine = partition(key_ordered=True)
    learn(machine, 0, "a")
    assert machine.learn(Fetched(10**15, 10**15), [(10**15, b"b")]) == [10**15]
    assert take(machine, "m") == [0, 10**15]
    machine.set_order(key_ordered=False)
    machine.set_order(key_ordered=True)
    machine.learn(Fetched(0, 0), [(0, b"a")])
    machine.learn(Fetched(10**15, 10**15), [(10**15, b"b")])
    machine.release("m")
    assert take(machine, "m") == [0, 10**15]


def test_keys_of_what_is_remembered_are_learnt_before_anything_is_delivered() -> None:
    machine = partition(
        0,
        (StateBatch(1, 2, DeliveryState.ACKNOWLEDGED, 1), StateBatch(3, 3, DeliveryState.AVAILABLE, 2)),
        key_ordered=True,
    )
    assert machine.ready(500) == []
    assert machine.unknown_from() == 0
    learn(machine, 0, "aabba")
    assert take(machine, "m") == [0, 3]


def test_records_that_compaction_takes_do_not_hold_their_key_up() -> None:
    machine = partition(key_ordered=True)
    learn(machine, 0, "a.ab")
    assert machine.runs()[1].status.state is RecordState.ARCHIVED
    assert machine.ready(500) == [0, 3]
    machine.not_there(0)
    assert take(machine, "m") == [2, 3]
    learn(machine, 8, "c")
    assert take(machine, "m") == [8]


def test_the_log_may_let_go_of_what_was_waiting() -> None:
    machine = partition(key_ordered=True)
    learn(machine, 0, "aaab")
    take(machine, "m", 1)
    machine.move_start(2)
    assert take(machine, "m") == [2, 3]
    machine.move_start(20)
    assert machine.unknown_from() == 20


def test_the_order_can_change_while_records_are_held() -> None:
    machine = partition()
    acquire(machine, "m1", Fetched(0, 1))
    machine.set_order(key_ordered=True)
    assert machine.unknown_from() == 0
    learn(machine, 0, "abab")
    assert take(machine, "m2") == []
    say(machine, "m1", 0, 0, ACCEPT)
    commit(machine)
    assert take(machine, "m2") == [2]
    machine.set_order(key_ordered=False)
    assert acquire(machine, "m3", Fetched(0, 3)) == [Acquired(3, 3, 1)]


# -- renewal of locks (KIP-1222) -------------------------------------------------------------------------------------


def test_a_renewed_lock_lasts_longer_and_nothing_is_written() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 9))
    renewal = [Acknowledgement(0, 3, [RENEW]), Acknowledgement(5, 6, [RENEW, RENEW])]
    assert machine.acknowledge("a", renewal, until=2 * LOCK) == 0
    assert machine.take_write() is None
    assert machine.next_expiry() == LOCK
    assert machine.expire(LOCK)
    held = [(run.first, run.last) for run in machine.runs() if run.status.is_held]
    assert held == [(0, 3), (5, 6)]
    assert machine.next_expiry() == 2 * LOCK
    assert machine.expire(2 * LOCK)
    assert machine.next_expiry() is None


def test_some_records_of_a_batch_are_renewed_and_others_are_done() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 3))
    number = machine.acknowledge("a", [Acknowledgement(0, 3, [ACCEPT, RENEW, RELEASE, RENEW])], until=2 * LOCK)
    assert number
    commit(machine)
    assert states(machine) == [(1, 1, "ACQUIRED", 1), (2, 2, "AVAILABLE", 1), (3, 3, "ACQUIRED", 1)]


@pytest.mark.parametrize("member", ["a", "b"])
def test_only_the_holder_renews_and_only_what_it_holds(member: str) -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 3))
    say(machine, "a", 0, 1, RELEASE)
    commit(machine)
    before = machine.runs()
    with pytest.raises(ApiError) as error:
        machine.acknowledge(member, [Acknowledgement(2 if member == "b" else 0, 3, [RENEW])], until=2 * LOCK)
    assert (error.value.code, machine.runs()) == (ErrorCode.INVALID_RECORD_STATE, before)


# -- strict limits (KIP-1206) ----------------------------------------------------------------------------------------


def test_strictly_not_one_record_more_than_wanted() -> None:
    machine = partition()
    assert acquire(machine, "a", Fetched(0, 9), Fetched(10, 19), max_records=4, strictly=True) == [Acquired(0, 3, 1)]
    assert machine.next_offset() == 4
    assert acquire(machine, "b", Fetched(0, 9), Fetched(10, 19), max_records=8, strictly=True) == [Acquired(4, 11, 1)]
    assert acquire(machine, "c", Fetched(10, 19), max_records=500, strictly=True) == [Acquired(12, 19, 1)]


def test_strictly_across_what_others_hold() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 9))
    say(machine, "a", 2, 3, RELEASE)
    commit(machine)
    assert acquire(machine, "b", Fetched(0, 9), Fetched(10, 19), max_records=3, strictly=True) == [
        Acquired(2, 3, 2),
        Acquired(10, 10, 1),
    ]
    assert machine.next_offset() == 11


# -- records that fail their readers ---------------------------------------------------------------------------------


def test_a_record_that_fails_takes_fewer_and_fewer_others_along() -> None:
    """Record 5 of 16 fails each reader: nothing else is given up but it."""
    machine = partition(deliveries=6)
    given: list[list[Acquired]] = []
    for _ in range(60):
        if machine.start_offset > 15:
            break
        offset = machine.next_offset()
        assert offset is not None
        got = acquire(machine, "a", Fetched(0, 15))
        given.append(got)
        fails = any(one.first <= 5 <= one.last for one in got)
        for one in got:
            say(machine, "a", one.first, one.last, RELEASE if fails else ACCEPT)
        commit(machine)
    assert [got[0] for got in given[:3]] == [Acquired(0, 15, 1), Acquired(0, 15, 2), Acquired(0, 15, 3)]
    assert given[3] == [Acquired(0, 7, 4)]
    last = [got for got in given if any(one.delivery_count == 6 for one in got)]
    assert all(len(got) == 1 and got[0].first == got[0].last for got in last), "for the last time, alone"
    assert machine.start_offset == 16


def test_limits_that_change_hold_for_what_comes() -> None:
    machine = partition(deliveries=5, locks=100)
    acquire(machine, "a", Fetched(0, 99))
    assert machine.next_offset() is None
    machine.set_limits(Limits(200, 2))
    assert machine.next_offset() == 100
    say(machine, "a", 0, 99, RELEASE)
    commit(machine)
    acquire(machine, "a", Fetched(0, 99))
    say(machine, "a", 0, 99, RELEASE)
    commit(machine)
    assert machine.start_offset == 100, "delivered twice, and no third time"


def test_a_write_says_how_many_records_are_finished() -> None:
    machine = partition()
    acquire(machine, "a", Fetched(0, 9))
    say(machine, "a", 4, 6, ACCEPT)
    assert commit(machine).complete_count == 3
    say(machine, "a", 0, 1, ACCEPT)
    assert commit(machine)[1:] == (2, (), 3)
    say(machine, "a", 2, 3, REJECT)
    assert commit(machine)[1:] == (7, (), 0)


def test_batches_before_the_offset_that_was_read_are_passed_over() -> None:
    machine = partition(5)
    assert acquire(machine, "a", Fetched(0, 4), Fetched(5, 9)) == [Acquired(5, 9, 1)]


def test_a_remembered_batch_that_the_log_does_not_have_is_dropped() -> None:
    remembered = (StateBatch(0, 4, DeliveryState.AVAILABLE, 1), StateBatch(20, 30, DeliveryState.ACKNOWLEDGED, 1))
    assert states(partition(0, remembered, log_end=10)) == [(0, 4, "AVAILABLE", 1)]


def test_nothing_is_learnt_while_as_many_keys_wait_as_may() -> None:
    machine = partition(key_ordered=True, locks=2)
    learn(machine, 0, "ab")
    assert machine.unknown_from() is None
    assert machine.learn(Fetched(2, 3), [(2, b"c"), (3, b"d")]) == []
    assert take(machine, "m") == [0, 1]


def test_offsets_without_a_record_are_finished_where_keys_are_learnt() -> None:
    machine = partition(key_ordered=True)
    learn(machine, 0, "a..b.")
    assert take(machine, "m") == [0, 3]
    say(machine, "m", 0, 0, ACCEPT)
    say(machine, "m", 3, 3, ACCEPT)
    commit(machine)
    assert machine.next_offset() == 5


def test_keys_of_what_is_finished_are_not_learnt() -> None:
    machine = partition()
    acquire(machine, "m", Fetched(0, 1))
    machine.set_order(key_ordered=True)
    assert machine.unknown_from() == 0
    say(machine, "m", 0, 1, ACCEPT)
    commit(machine)
    assert machine.unknown_from() == 2
