"""What a group's seek skips and reads again."""

import pytest

from ottla.cli.group.moving import parse_selection
from ottla.client.moving import Target, describe_moves, move
from ottla.client.partition import Partition

P0 = Partition("orders", 0)


@pytest.mark.parametrize(
    ("target", "was", "to", "skipped", "replayed"),
    [
        (Target(earliest=True), 50, 10, 0, 40),
        (Target(latest=True), 50, 100, 50, 0),
        (Target(latest=True), 100, 100, 0, 0),
        (Target(offset=60), 50, 60, 10, 0),
        (Target(offset=5), 50, 10, 0, 40),
        (Target(offset=500), 50, 100, 50, 0),
        (Target(shift=-20), 50, 30, 0, 20),
        (Target(shift=20), 50, 70, 20, 0),
        (Target(shift=20), None, 30, 0, 0),
        (Target(shift=-1000), 50, 10, 0, 40),
        # The group had stood on records that are gone: they can be neither skipped nor read again.
        (Target(offset=30), 2, 30, 20, 0),
        (Target(earliest=True), 2, 10, 0, 0),
        # The topic was made anew, and the old commit lies beyond its end.
        (Target(earliest=True), 900, 10, 0, 90),
        (Target(latest=True), None, 100, 0, 0),
    ],
)
def test_moves(target: Target, was: int | None, to: int, skipped: int, replayed: int) -> None:
    moved = move(P0, was, 10, 100, target)
    assert (moved.to, moved.skipped, moved.replayed) == (to, skipped, replayed)


def test_a_time_moves_to_the_offset_found_or_to_the_end() -> None:
    target = Target(time_ms=1_767_225_600_000)
    assert move(P0, 50, 10, 100, target, at_time=70).to == 70
    assert move(P0, 50, 10, 100, target, at_time=None).to == 100


def test_description_counts_over_all_partitions() -> None:
    moves = [move(P0, 50, 10, 100, Target(offset=60)), move(Partition("orders", 1), 61, 0, 100, Target(offset=60))]
    assert describe_moves(moves, done=False) == (
        "10 records would be skipped, 1 record would be read again; 80 records then lie ahead"
    )
    assert describe_moves(moves, done=True).startswith("10 records will be skipped")
    assert describe_moves([], done=True) == "none skipped and none read again; 0 records then lie ahead"


def test_selection_of_topics_and_partitions() -> None:
    assert parse_selection(["a", "b:0,2", "b:3"]) == {"a": set(), "b": {0, 2, 3}}


@pytest.mark.parametrize("text", ["a:", ":1", "a:x", "a:1,,2"])
def test_a_bad_selection_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not TOPIC or TOPIC:0,2"):
        parse_selection([text])
