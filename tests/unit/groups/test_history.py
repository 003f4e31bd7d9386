"""What a group remembers of its rebalances, and what counts as moved."""

import logging

import pytest

from ottla.groups.history import (
    KEPT_MOVES,
    KEPT_OF_NO_GROUP,
    KEPT_REBALANCES,
    Histories,
    Move,
    Rebalance,
    moves_between,
    with_reason,
)
from ottla.ids import GroupId, MemberId, TopicName

A, B = MemberId("a"), MemberId("b")
T, U = TopicName("t"), TopicName("u")
G = GroupId("g")


def rebalance(epoch: int, *reasons: str) -> Rebalance:
    return Rebalance(1_000, epoch, "consumer", "uniform", reasons, 2, 0, ())


def test_what_moves_from_whom_to_whom() -> None:
    before = {A: {T: frozenset({0, 1, 2}), U: frozenset({0})}}
    after = {A: {T: frozenset({0})}, B: {T: frozenset({1, 2, 3})}}
    assert moves_between(before, after) == (
        4,
        (Move(T, (1, 2), A, B), Move(T, (3,), None, B), Move(U, (0,), A, None)),
    )


def test_nothing_moves_where_everybody_keeps_what_they_have() -> None:
    same = {A: {T: frozenset({0})}, B: {}}
    assert moves_between(same, same) == (0, ())


def test_small_moves_of_many_are_only_counted() -> None:
    topics = {TopicName(f"t{number:03}"): frozenset({0}) for number in range(KEPT_MOVES + 5)}
    topics[T] = frozenset({0, 1})
    moved, moves = moves_between({}, {A: topics})
    assert (moved, len(moves)) == (KEPT_MOVES + 7, KEPT_MOVES)
    assert moves[0] == Move(T, (0, 1), None, A)


def test_the_last_rebalances_are_kept() -> None:
    history = Histories({G}).of(G)
    for epoch in range(KEPT_REBALANCES + 3):
        history.add(rebalance(epoch))
    assert [kept.epoch for kept in history.rebalances()] == list(range(3, KEPT_REBALANCES + 3))


def test_reasons_are_those_since_the_last_rebalance_each_once() -> None:
    history = Histories({G}).of(G)
    for reason in ("a joins", "b joins", "a joins"):
        history.because(reason)
    assert history.take_reasons() == ("a joins", "b joins")
    assert history.take_reasons() == ()


def test_a_rebalance_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla.groups.history"):
        Histories({G}).of(G).add(rebalance(7, "a joins", "b leaves"))
    (line,) = caplog.messages
    assert line == "consumer group g: assignment 7 by uniform: members 2, partitions moved 0 (a joins; b leaves)"


def test_a_reason_is_told_where_a_client_gives_one() -> None:
    assert with_reason("a leaves", "the consumer was closed") == "a leaves: the consumer was closed"
    assert with_reason("a leaves", "") == "a leaves"


def test_a_group_that_is_deleted_is_forgotten() -> None:
    histories = Histories({G})
    histories.of(G).add(rebalance(1))
    histories.forget(G)
    assert histories.of(G).rebalances() == ()


def test_groups_that_never_were_leave_nothing_behind() -> None:
    histories = Histories({G})
    histories.of(G).add(rebalance(1))
    for number in range(10 * KEPT_OF_NO_GROUP):
        histories.of(GroupId(f"refused-{number}"))
    assert len(histories) <= KEPT_OF_NO_GROUP + 3
    assert len(histories.of(G).rebalances()) == 1
