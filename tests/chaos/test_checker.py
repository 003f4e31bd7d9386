"""The checker finds each anomaly in a history that has it, and none in the sound one beside it."""

import pytest

from tests.chaos.checker import RELAYED, Kind, check
from tests.chaos.hand_made import Story, poll, send
from tests.chaos.history import BrokenHistoryError, Outcome, decode, encode, operations


@pytest.fixture
def story() -> Story:
    return Story()


def kinds(story: Story, *, relays: bool = False) -> list[Kind]:
    return sorted((anomaly.kind for anomaly in check(story.operations, relays=relays)), key=lambda kind: kind.value)


def test_a_sound_history_has_no_anomaly(story: Story) -> None:
    story.assign("reader", "a-0", "b-0")
    story.send("one", send("a-0", 1, 0), send("b-0", 2, 0))
    story.txn("two", send("a-0", 3, 1), send("b-0", 4, 1))
    story.txn("two", send("a-0", 5, 3), state="fail")
    story.txn("two", send("a-0", 6), state="info")
    story.poll("reader", poll("a-0", (0, 1), (1, 3)))
    story.txn("reader", poll("b-0", (0, 2), (1, 4)), send("a-0", 7, 7))
    story.audit(a_0=[(0, 1), (1, 3), (7, 7)], b_0=[(0, 2), (1, 4)])
    assert kinds(story) == []


# --- records that are missing -------------------------------------------------------------------------------------


def test_an_acknowledged_record_that_an_audit_does_not_find_is_lost(story: Story) -> None:
    story.send("one", send("a-0", 1, 0), send("a-0", 2, 1))
    story.audit(a_0=[(0, 1)])
    (lost,) = check(story.operations)
    assert (lost.kind, lost.text) == (
        Kind.LOST_WRITE,
        "2 was acknowledged to one in a-0 at offset 1, and nobody was given it",
    )
    assert [operation.who for operation in lost.operations] == ["one"]


def test_an_acknowledged_record_that_readers_went_past_is_lost(story: Story) -> None:
    story.send("one", send("a-0", 1, 0))
    story.send("one", send("a-0", 2, 1))
    story.poll("reader", poll("a-0", (1, 2)))
    assert kinds(story) == [Kind.LOST_WRITE]


def test_a_record_that_nobody_has_come_to_is_not_lost(story: Story) -> None:
    story.send("one", send("a-0", 1, 0), send("a-0", 2, 1))
    story.poll("reader", poll("a-0", (0, 1)))
    assert kinds(story) == []


def test_an_acknowledged_record_is_lost_even_if_another_one_of_the_operation_failed(story: Story) -> None:
    story.send("one", send("a-0", 1, 0), send("b-0", 2), state="info")
    story.audit(a_0=[], b_0=[])
    assert kinds(story) == [Kind.LOST_WRITE]


def test_a_committed_transaction_of_which_nothing_is_left_is_lost(story: Story) -> None:
    story.txn("one", send("a-0", 1, 0), send("b-0", 2, 0))
    story.audit(a_0=[], b_0=[])
    assert kinds(story) == [Kind.LOST_WRITE, Kind.LOST_WRITE]


@pytest.mark.parametrize("state", ["ok", "info"])
def test_a_transaction_of_which_half_is_left_is_torn(story: Story, state: str) -> None:
    story.txn("one", send("a-0", 1), send("b-0", 2), state=state)
    story.audit(a_0=[(0, 1)], b_0=[])
    (torn,) = check(story.operations)
    assert torn.kind is Kind.TORN_TRANSACTION
    assert torn.text == "of a transaction of one, 1 in a-0 can be read and 2 in b-0 cannot"


def test_half_of_a_transaction_seen_by_those_who_have_read_no_further_is_not_torn(story: Story) -> None:
    story.txn("one", send("a-0", 1, 0), send("b-0", 2, 0))
    story.poll("reader", poll("a-0", (0, 1)))
    assert kinds(story) == []


def test_a_transaction_with_an_unknown_end_may_be_there_or_not(story: Story) -> None:
    story.txn("one", send("a-0", 1), send("b-0", 2), state="info")
    story.txn("one", send("a-0", 3), send("b-0", 4), state="info")
    story.audit(a_0=[(0, 1)], b_0=[(0, 2)])
    assert kinds(story) == []


def test_what_a_consumer_was_given_may_not_vanish(story: Story) -> None:
    story.send("one", send("a-0", 1, 0))
    story.poll("reader", poll("a-0", (0, 1)))
    story.audit(a_0=[])
    (found,) = check(story.operations)
    assert found.kind is Kind.VANISHED
    assert found.text == "reader was given 1 at offset 0 of a-0, and audit did not find it there"


def test_what_came_during_an_audit_may_be_missing_in_it(story: Story) -> None:
    story.begin("audit", "audit", keys=["a-0"])
    story.send("one", send("a-0", 1, 0))
    story.poll("reader", poll("a-0", (0, 1)))
    story.end("audit", "audit", ["poll", {"a-0": []}])
    assert kinds(story) == []


# --- records that should not be there -----------------------------------------------------------------------------


def test_a_value_at_two_offsets_is_a_duplicate(story: Story) -> None:
    story.send("one", send("a-0", 1, 0))
    story.audit(a_0=[(0, 1), (3, 1)])
    (found,) = check(story.operations)
    assert (found.kind, found.text) == (Kind.DUPLICATE, "1 is in a-0 at the offsets 0, 3")


def test_a_value_read_elsewhere_than_acknowledged_is_a_duplicate(story: Story) -> None:
    story.send("one", send("a-0", 1, 0))
    story.audit(a_0=[(3, 1)])
    assert kinds(story) == [Kind.DUPLICATE, Kind.SKIPPED]


def test_two_values_at_one_offset(story: Story) -> None:
    story.send("one", send("a-0", 1))
    story.send("two", send("a-0", 2))
    story.poll("early", poll("a-0", (0, 1)))
    story.poll("late", poll("a-0", (0, 2)))
    (found,) = check(story.operations)
    assert (found.kind, found.text) == (Kind.TWO_VALUES, "a-0 has the values 1, 2 at offset 0")


def test_an_acknowledged_record_in_whose_place_another_one_is_read(story: Story) -> None:
    story.send("one", send("a-0", 1, 0))
    story.send("two", send("a-0", 2), state="info")
    story.audit(a_0=[(0, 2)])
    assert kinds(story) == [Kind.LOST_WRITE, Kind.TWO_VALUES]


def test_a_record_of_an_aborted_transaction_may_not_be_read(story: Story) -> None:
    story.txn("one", send("a-0", 1, 0), state="fail")
    story.poll("reader", poll("a-0", (0, 1)))
    (found,) = check(story.operations)
    assert (found.kind, found.text) == (Kind.ABORTED_READ, "reader was given 1 of a-0, which one had failed to write")


def test_an_aborted_read_counts_even_if_the_reader_failed(story: Story) -> None:
    story.txn("one", send("a-0", 1, 0), state="fail")
    story.txn("two", poll("a-0", (0, 1)), state="fail")
    assert kinds(story) == [Kind.ABORTED_READ]


def test_what_nobody_wrote_may_not_be_read(story: Story) -> None:
    story.poll("reader", poll("a-0", (0, 99)))
    assert kinds(story) == [Kind.UNWRITTEN_READ]


def test_a_record_in_the_wrong_partition_is_told(story: Story) -> None:
    story.send("one", send("a-0", 1), state="info")
    story.poll("reader", poll("a-1", (0, 1)))
    (found,) = check(story.operations)
    assert (found.kind, found.text) == (Kind.UNWRITTEN_READ, "reader was given 1 of a-1, which was sent to a-0")


def test_a_transaction_may_not_read_its_own_records(story: Story) -> None:
    story.txn("one", send("a-0", 1, 0), poll("a-0", (0, 1)))
    assert kinds(story) == [Kind.PRECOMMITTED_READ]


# --- order --------------------------------------------------------------------------------------------------------


def test_records_of_one_producer_stand_in_the_order_they_were_sent(story: Story) -> None:
    story.begin("one", "send", send("a-0", 1), send("a-0", 2))
    story.end("one", "send", send("a-0", 1, 5), send("a-0", 2, 4))
    story.audit(a_0=[(4, 2), (5, 1)])
    assert kinds(story) == [Kind.PRODUCER_ORDER]


def test_a_producer_is_in_order_across_operations_too(story: Story) -> None:
    story.txn("one", send("a-0", 1, 5))
    story.txn("one", send("a-0", 2, 4))
    story.audit(a_0=[(4, 2), (5, 1)])
    assert kinds(story) == [Kind.PRODUCER_ORDER, Kind.OFFSET_WENT_BACK]


def test_what_was_sent_after_an_acknowledgement_stands_after_it(story: Story) -> None:
    story.send("one", send("a-0", 1, 5))
    story.send("two", send("a-0", 2, 4))
    story.audit(a_0=[(4, 2), (5, 1)])
    (found,) = check(story.operations)
    assert found.kind is Kind.OFFSET_WENT_BACK
    assert found.text == "a-0 had 1 at offset 5 when 2 was sent, which was then put at offset 4"


def test_those_who_send_at_the_same_time_may_stand_in_any_order(story: Story) -> None:
    story.begin("one", "send", send("a-0", 1))
    story.begin("two", "send", send("a-0", 2))
    story.end("one", "send", send("a-0", 1, 5))
    story.end("two", "send", send("a-0", 2, 4))
    story.audit(a_0=[(4, 2), (5, 1)])
    assert kinds(story) == []


# --- consumers ----------------------------------------------------------------------------------------------------


def three_records(story: Story) -> None:
    story.send("one", send("a-0", 1, 0), send("a-0", 2, 1), send("a-0", 3, 2))
    story.audit(a_0=[(0, 1), (1, 2), (2, 3)])


def test_a_poll_that_skips_a_record(story: Story) -> None:
    three_records(story)
    story.assign("reader", "a-0")
    story.poll("reader", poll("a-0", (0, 1), (2, 3)))
    (found,) = check(story.operations)
    assert found.kind is Kind.SKIPPED
    assert found.text == "reader was given offset 2 of a-0 next after offset 0, without 1 between them"


def test_two_polls_that_skip_a_record_between_them(story: Story) -> None:
    three_records(story)
    story.assign("reader", "a-0")
    story.poll("reader", poll("a-0", (0, 1)))
    story.poll("reader", poll("a-0", (2, 3)))
    assert kinds(story) == [Kind.SKIPPED]


def test_a_first_poll_that_skips_the_start(story: Story) -> None:
    three_records(story)
    story.assign("reader", "a-0")
    story.poll("reader", poll("a-0", (1, 2)))
    assert kinds(story) == [Kind.SKIPPED]


def test_an_audit_that_skips_what_others_were_given(story: Story) -> None:
    story.send("one", send("a-0", 1, 0), send("a-0", 2, 1))
    story.poll("reader", poll("a-0", (0, 1)))
    story.audit(a_0=[(1, 2)])
    assert kinds(story) == [Kind.VANISHED, Kind.SKIPPED]


def test_offsets_without_visible_records_are_no_gap(story: Story) -> None:
    story.txn("one", send("a-0", 1, 0))
    story.txn("one", send("a-0", 2, 2), state="fail")
    story.txn("one", send("a-0", 3, 4))
    story.assign("reader", "a-0")
    story.poll("reader", poll("a-0", (0, 1), (4, 3)))
    assert kinds(story) == []


def test_a_consumer_that_is_given_a_record_twice(story: Story) -> None:
    three_records(story)
    story.assign("reader", "a-0")
    story.poll("reader", poll("a-0", (0, 1)))
    story.poll("reader", poll("a-0", (0, 1)))
    (found,) = check(story.operations)
    assert (found.kind, found.text) == (Kind.WENT_BACK, "reader was given offset 0 of a-0 after offset 0")


def test_a_consumer_that_goes_back_within_a_poll(story: Story) -> None:
    three_records(story)
    story.poll("reader", poll("a-0", (0, 1), (1, 2), (0, 1)))
    assert kinds(story) == [Kind.WENT_BACK]


def test_a_consumer_may_go_back_when_told_to(story: Story) -> None:
    three_records(story)
    story.assign("reader", "a-0")
    story.poll("reader", poll("a-0", (0, 1)))
    story.assign("reader", "a-0", from_start=True)
    story.poll("reader", poll("a-0", (0, 1)))
    assert kinds(story) == []


def test_a_consumer_goes_on_where_it_was_when_it_keeps_a_partition(story: Story) -> None:
    three_records(story)
    story.assign("reader", "a-0")
    story.poll("reader", poll("a-0", (0, 1)))
    story.assign("reader", "a-0", "b-0")
    story.poll("reader", poll("a-0", (2, 3)))
    assert kinds(story) == [Kind.SKIPPED]


def test_a_rebalance_may_move_a_consumer(story: Story) -> None:
    three_records(story)
    story.tell("reader", "subscribe")
    story.poll("reader", poll("a-0", (0, 1)), moved=True)
    story.poll("reader", poll("a-0", (2, 3)), moved=True)
    story.poll("reader", poll("a-0", (0, 1)))
    assert kinds(story) == []


def test_between_rebalances_a_subscriber_goes_record_by_record(story: Story) -> None:
    three_records(story)
    story.tell("reader", "subscribe")
    story.poll("reader", poll("a-0", (0, 1)))
    story.poll("reader", poll("a-0", (2, 3)))
    assert kinds(story) == [Kind.SKIPPED]


def test_a_consumer_whose_transaction_failed_reads_again(story: Story) -> None:
    three_records(story)
    story.assign("reader", "a-0")
    story.txn("reader", poll("a-0", (0, 1), (1, 2)), state="fail")
    story.txn("reader", poll("a-0", (0, 1), (1, 2)))
    story.txn("reader", poll("a-0", (2, 3)))
    assert kinds(story) == []


# --- circles ------------------------------------------------------------------------------------------------------


def test_transactions_that_read_each_others_records(story: Story) -> None:
    story.begin("one", "txn", send("a-0", 1), poll("b-0"))
    story.begin("two", "txn", send("b-0", 2), poll("a-0"))
    story.end("one", "txn", send("a-0", 1, 0), poll("b-0", (0, 2)))
    story.end("two", "txn", send("b-0", 2, 0), poll("a-0", (0, 1)))
    (found,) = check(story.operations)
    assert found.kind is Kind.CYCLE
    assert found.text == "two (lines 2-4) -> one (lines 1-3) -> two (lines 2-4)"


def test_a_circle_that_needs_time_to_close(story: Story) -> None:
    story.begin("one", "txn", send("a-0", 1), poll("b-0"))
    story.poll("early", poll("a-0", (0, 1)))
    story.txn("two", send("b-0", 2, 0))
    story.end("one", "txn", send("a-0", 1, 0), poll("b-0", (0, 2)))
    (found,) = check(story.operations)
    assert found.kind is Kind.REALTIME_CYCLE
    assert {operation.who for operation in found.operations} == {"one", "early", "two"}


def test_one_transaction_may_read_what_another_one_wrote(story: Story) -> None:
    story.begin("one", "txn", send("a-0", 1), poll("b-0"))
    story.txn("two", send("b-0", 2, 0))
    story.end("one", "txn", send("a-0", 1, 0), poll("b-0", (0, 2)))
    story.txn("three", poll("a-0", (0, 1)), send("b-0", 3, 2))
    assert kinds(story) == []


def test_a_failed_transaction_is_in_no_circle(story: Story) -> None:
    story.begin("one", "txn", send("a-0", 1), poll("b-0"))
    story.begin("two", "txn", send("b-0", 2), poll("a-0"))
    story.end("one", "txn", send("a-0", 1, 0), poll("b-0", (0, 2)), state="fail")
    story.end("two", "txn", send("b-0", 2, 0), poll("a-0", (0, 1)))
    assert kinds(story) == [Kind.ABORTED_READ]


# --- relays -------------------------------------------------------------------------------------------------------


def relayed(story: Story, *values: int) -> None:
    story.send("feeder", send("in-0", 1, 0), send("in-0", 2, 1))
    out = [(offset, value + RELAYED) for offset, value in enumerate(values)]
    story.audit(in_0=[(0, 1), (1, 2)], out_0=out)


def test_every_input_once_in_the_output(story: Story) -> None:
    relayed(story, 1, 2)
    assert kinds(story, relays=True) == []


def test_an_input_that_is_not_in_the_output(story: Story) -> None:
    relayed(story, 1)
    assert kinds(story, relays=True) == [Kind.NOT_RELAYED]


def test_an_input_that_is_twice_in_the_output(story: Story) -> None:
    relayed(story, 1, 2, 1)
    assert kinds(story, relays=True) == [Kind.DUPLICATE, Kind.RELAYED_TWICE]


def test_an_output_without_an_input(story: Story) -> None:
    relayed(story, 1, 2, 3)
    assert kinds(story, relays=True) == [Kind.RELAYED_FROM_NOWHERE]


def test_nothing_is_said_of_relays_without_an_audit(story: Story) -> None:
    story.send("feeder", send("in-0", 1, 0))
    story.poll("reader", poll("in-0", (0, 1)))
    with pytest.raises(ValueError, match="in-0 was not read to its end"):
        check(story.operations, relays=True)


# --- the history itself -------------------------------------------------------------------------------------------


def test_a_killed_worker_may_have_sent_all_that_it_was_told_to(story: Story) -> None:
    story.begin("one.1", "txn", send("a-0", 1), poll("b-0"))
    story.lines.append({"who": "one.1", "state": "info", "what": "txn", "error": "killed"})
    story.begin("one.2", "send", send("a-0", 2))
    killed, unfinished = story.operations
    assert (killed.outcome, unfinished.outcome) == (Outcome.INFO, Outcome.INFO)
    assert [one.value for one in killed.sends] == [1]
    assert (killed.lines, unfinished.lines) == ("lines 1-2", "line 3")
    story.audit(a_0=[(0, 2), (1, 1)])
    assert kinds(story) == []


def test_a_history_survives_its_file(story: Story) -> None:
    three_records(story)
    text = "".join(encode(line) + "\n" for line in story.lines)
    assert operations(decode(text)) == story.operations
    assert operations(decode(text + '{"who": "on')) == story.operations, "a torn last line"


def test_a_line_that_is_no_json_is_named() -> None:
    with pytest.raises(BrokenHistoryError, match="line 1 is not JSON"):
        decode("nonsense\n{}\n")


def test_a_worker_does_one_thing_at_a_time(story: Story) -> None:
    story.begin("one", "poll")
    story.begin("one", "poll")
    with pytest.raises(BrokenHistoryError, match="line 2: one has not finished line 1"):
        _ = story.operations


def test_a_worker_answers_only_what_it_was_asked(story: Story) -> None:
    story.end("one", "poll")
    with pytest.raises(BrokenHistoryError, match="line 1: one was not asked"):
        _ = story.operations
