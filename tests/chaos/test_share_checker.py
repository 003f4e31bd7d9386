"""The checker of share groups finds each thing that can be wrong, and nothing in what is right."""

import pytest

from tests.chaos.share_checker import Shared, ShareKind, check_shared, taken_late
from tests.support.share_workers import Handled

S = 1_000_000_000
SENT = {(0, 0): "a", (0, 1): "a", (0, 2): "b"}


def handled(offset: int, began_s: float, *, count: int = 1, member: int = 0, outcome: str = "accept") -> Handled:
    return Handled(member, 0, offset, SENT[0, offset], count, int(began_s * S), int((began_s + 0.1) * S), outcome)


SOUND = [handled(0, 1.0), handled(1, 1.2), handled(2, 1.0, member=1)]
CONFIRMED = {(0, 0): 2 * S, (0, 1): 2 * S, (0, 2): 2 * S}


def kinds(
    *ones: Handled,
    confirmed: dict[tuple[int, int], int] = CONFIRMED,
    fault_at: float | None = None,
    start: int = 0,
) -> set[str]:
    faults = [] if fault_at is None else [(int(fault_at * S), int((fault_at + 0.5) * S))]
    shared = Shared(SENT, ones, confirmed, {0: start}, 6 * S, 3, faults)
    return {anomaly.kind.value for anomaly in check_shared(shared)}


def test_nothing_is_wrong_with_records_that_are_given_out_once_in_order() -> None:
    assert kinds(*SOUND) == set()


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        (handled(2, 9.0, count=2), ShareKind.GIVEN_AGAIN),
        (handled(2, 1.5, count=2), ShareKind.TWO_HANDS),
        (handled(2, 1.9, count=4), ShareKind.DELIVERY_COUNT),
        (handled(2, 1.9, count=1), ShareKind.DELIVERY_COUNT),
        (handled(1, 0.9, member=1), ShareKind.KEY_ORDER),
    ],
)
def test_each_anomaly_is_found(more: Handled, kind: ShareKind) -> None:
    assert kind.value in kinds(*SOUND, more)


def test_what_is_not_finished_is_missed_unless_it_was_tried_as_often_as_allowed() -> None:
    confirmed = {place: at for place, at in CONFIRMED.items() if place != (0, 2)}
    assert kinds(*SOUND, confirmed=confirmed) == {ShareKind.LEFT_OUT.value}
    assert kinds(*SOUND, confirmed=confirmed, start=3) == set(), "the answer was lost"
    assert kinds(*SOUND[:2], confirmed=confirmed, start=3) == {ShareKind.LEFT_OUT.value}, "it was skipped"
    tried = [handled(2, 10.0, count=2), handled(2, 20.0, count=3)]
    assert kinds(*SOUND, *tried, confirmed=confirmed) == set()


def test_a_released_record_may_come_again_at_once() -> None:
    again = [handled(2, 1.0, outcome="release"), handled(2, 1.2, count=2)]
    assert kinds(*SOUND[:2], *again) == set()


def test_around_a_fault_locks_and_counts_in_memory_begin_anew_but_keys_stay_in_order() -> None:
    assert kinds(*SOUND, handled(2, 1.9), fault_at=1.4) == set()
    assert kinds(*SOUND, handled(1, 0.9, member=1), fault_at=0.8) == {ShareKind.KEY_ORDER.value}


def test_what_a_member_had_fetched_before_it_was_held_up_is_not_held_against_the_broker() -> None:
    held_up = [handled(0, 9.0, count=1), handled(1, 9.2, count=1), handled(2, 9.4, count=1)]
    other_member = handled(2, 9.0, member=1)
    assert list(taken_late([SOUND[0], *held_up], 6 * S, 2)) == held_up[:2]
    assert list(taken_late([SOUND[2], other_member, *SOUND[:2]], 6 * S, 2)) == [other_member]
    shared = Shared(SENT, [*SOUND, *held_up], CONFIRMED, {}, 6 * S, 3, late=frozenset(held_up[:2]))
    assert {anomaly.text.split(" was")[0] for anomaly in check_shared(shared)} >= {"(0, 2)"}
    assert not any(anomaly.text.startswith(("(0, 0)", "(0, 1) was finished")) for anomaly in check_shared(shared))
