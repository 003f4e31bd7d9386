"""What actions are shown to lose or to move, before they are done."""

import pytest

from ottla.client.moving import Target, move
from ottla.client.partition import Partition
from ottla.console.cluster import LagRow, PartitionRow
from ottla.console.previews import (
    beyond_size,
    format_offsets,
    keeps_less,
    lag_change,
    loss,
    older,
    parse_offsets,
    trims,
    whole,
)


def row(number: int, first: int | None, end: int | None, size_bytes: int | None = 1000) -> PartitionRow:
    return PartitionRow(number, None if end is None else 1, (1,), (1,), first, end, size_bytes)


def test_trimming_loses_records_and_about_so_many_bytes() -> None:
    rows = [row(0, 0, 100), row(1, 50, 100), row(2, None, None), row(3, 0, 10)]
    lost = trims(rows, {0: 25, 1: 20, 2: 5, 3: 99})
    found = [(each.partition, each.to, each.records, each.lost_bytes) for each in lost]
    assert found == [(0, 25, 25, 250), (3, 10, 10, 1000)]
    assert loss(lost) == "35 records (about 1.2 kB)"
    assert loss([]) == "0 records"
    assert loss(trims([row(0, 0, 1, None)], {0: 1})) == "1 record"
    assert loss(whole(rows)) == "160 records (about 3.0 kB)"


@pytest.mark.parametrize(
    ("name", "before", "value", "loses"),
    [
        ("retention.ms", "604800000", "1000", True),
        ("retention.ms", "-1", "1000", True),
        ("retention.ms", "1000", "-1", False),
        ("retention.ms", "1000", "1000", False),
        ("retention.ms", "1000", "2000", False),
        ("retention.ms", "1000", None, True),  # the default may be anything
        ("retention.ms", "1000", "soon", True),  # the broker refuses it, and the console does not guess
        ("retention.bytes", "-1", "0", True),
        ("cleanup.policy", "compact", "compact,delete", True),
        ("cleanup.policy", "delete", "delete", False),
        ("unclean.leader.election.enable", "false", "TRUE", True),
        ("remote.log.delete.on.disable", "false", "true", True),
        ("unclean.leader.election.enable", "true", "false", False),
        ("min.insync.replicas", "2", "1", True),
        ("min.insync.replicas", "1", "2", False),
        ("segment.bytes", "2000000", "1000000", False),
    ],
)
def test_settings_by_which_records_are_lost(name: str, before: str, value: str | None, loses: bool) -> None:
    assert keeps_less(name, before, value) is loses


def test_what_shorter_retention_deletes() -> None:
    rows = [row(0, 0, 100), row(1, 0, 40), row(2, 0, 10)]
    assert loss(older(rows, {0: 70, 1: -1})) == "110 records (about 1.7 kB)"
    assert beyond_size(rows, 600) == 1200
    assert beyond_size([row(0, 0, 1, None)], 0) == 0


def test_offsets_survive_their_way_through_a_form() -> None:
    offsets = {Partition("a.b-c", 0): 12, Partition("d", 3): 0}
    assert parse_offsets(format_offsets(offsets)) == offsets


@pytest.mark.parametrize("text", ["", "a", "a:0", ":0:1", "a:0:x", "a:-1:2", "a:0:-1", "a:0:1,,"])
def test_a_field_that_has_no_offsets(text: str) -> None:
    with pytest.raises(ValueError, match=r"offset|values to unpack|invalid literal"):
        parse_offsets(text)


def test_how_a_seek_changes_the_lag() -> None:
    first, second = Partition("t", 0), Partition("t", 1)
    moves = [move(first, 10, 0, 100, Target(latest=True)), move(second, None, 5, 50, Target(earliest=True))]
    lags = [LagRow(first, 10, 100, 90), LagRow(second, None, None, None)]
    assert lag_change(moves, lags) == (90, 45)
    assert lag_change(moves[1:], lags) == (None, 45)
