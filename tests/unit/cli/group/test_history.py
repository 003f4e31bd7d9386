"""How a group's history is put into words."""

import pytest

from ottla.admin import Move, Rebalance
from ottla.cli.group.history import in_words, spans


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([0, 1, 2], "0-2"), ([0, 1, 2, 5], "0-2,5"), ([1, 3, 4, 9], "1,3-4,9"), ([7, 8], "7-8")],
)
def test_runs_are_drawn_together(numbers: list[int], text: str) -> None:
    assert spans(numbers) == text


def rebalance(moved: int, *moves: Move) -> Rebalance:
    return Rebalance(
        timestamp_ms=1_700_000_000_000,
        epoch=3,
        protocol="consumer",
        assignor="uniform",
        reasons=("b joins", "a has other subscriptions"),
        member_count=2,
        moved_partitions=moved,
        moves=moves,
    )


def test_who_gives_what_to_whom() -> None:
    given = Move(topic="orders", partitions=(0, 1), source_member_id="a", target_member_id="b")
    new = Move(topic="returns", partitions=(4,), source_member_id=None, target_member_id="b")
    gone = Move(topic="old", partitions=(0,), source_member_id="a", target_member_id=None)
    row = in_words(rebalance(4, given, new, gone))
    assert row["moves"] == "orders 0-1: a -> b; returns 4: nobody -> b; old 0: a -> nobody"
    assert row["why"] == "b joins; a has other subscriptions"
    assert (row["time"], row["moved"]) == ("2023-11-14T22:13:20.000Z", 4)


def test_what_the_broker_only_counted_is_counted() -> None:
    given = Move(topic="orders", partitions=(0, 1), source_member_id="a", target_member_id="b")
    assert in_words(rebalance(5, given))["moves"] == "orders 0-1: a -> b; and 3 partitions more"
    assert in_words(rebalance(0))["moves"] == ""
