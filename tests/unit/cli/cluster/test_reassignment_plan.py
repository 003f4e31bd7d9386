"""Plans for adding and draining brokers: what they move, and what they leave alone."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.cluster.reassignment_plan import Move, parse_plan, plan_adding, plan_document, plan_draining
from ottla.cli.terminal.exits import CommandFailed
from ottla.client.partition import Partition

NO_RACKS = dict.fromkeys((1, 2, 3))


def assignments(*replicas: tuple[int, ...], topic: str = "t") -> dict[Partition, tuple[int, ...]]:
    return {Partition(topic, number): brokers for number, brokers in enumerate(replicas)}


def after(before: dict[Partition, tuple[int, ...]], moves: list[Move]) -> dict[Partition, tuple[int, ...]]:
    assert all(before[move.partition] == move.before != move.replicas for move in moves)
    return {**before, **{move.partition: move.replicas for move in moves}}


def test_draining_moves_what_is_there_and_nothing_else() -> None:
    before = assignments((1, 2), (2, 3), (3, 1), (2, 1))
    moves = plan_draining(before, NO_RACKS, [3])
    assert after(before, moves) == assignments((1, 2), (2, 1), (2, 1), (2, 1))


def test_who_holds_least_takes_over_and_leads_where_it_has_led() -> None:
    before = assignments((4, 1), (1, 2), (1, 3))
    (move,) = plan_draining(before, dict.fromkeys((1, 2, 3, 4)), [4])
    assert move.replicas in ((2, 1), (3, 1))


def test_a_replica_goes_to_a_rack_that_has_none() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "c"}
    before = assignments((1, 4), (3, 1), (3, 1))
    (move,) = plan_draining(before, racks, [4])
    assert move.replicas == (1, 3)  # though it holds most


def test_a_broker_that_is_gone_for_good_can_be_drained() -> None:
    (move,) = plan_draining(assignments((9, 1)), NO_RACKS, [9])
    assert move.replicas in ((2, 1), (3, 1))


def test_too_few_brokers_left() -> None:
    with pytest.raises(CommandFailed, match=r"t-0 has 3 replicas, and only 2 brokers"):
        plan_draining(assignments((1, 2, 3)), NO_RACKS, [3])


def test_a_new_broker_gets_its_share_of_replicas_and_of_leadership() -> None:
    before = assignments(*[(1, 2), (2, 3), (3, 1)] * 8)
    moves = plan_adding(before, dict.fromkeys((1, 2, 3, 4)), [4])
    assert len(moves) == 12
    now = after(before, moves)
    assert Counter(replicas[0] for replicas in now.values()) == {1: 6, 2: 6, 3: 6, 4: 6}
    assert Counter(broker for replicas in now.values() for broker in replicas) == {1: 12, 2: 12, 3: 12, 4: 12}


def test_shares_of_small_topics_add_up() -> None:
    before = {
        partition: replicas
        for number in range(12)
        for partition, replicas in assignments((1 + number % 3,), topic=f"t{number}").items()
    }
    moves = plan_adding(before, dict.fromkeys((1, 2, 3, 4)), [4])
    assert 2 <= len(moves) <= 3


def test_a_broker_that_has_its_share_gets_nothing() -> None:
    before = assignments((1, 2), (2, 3), (3, 1))
    assert plan_adding(before, NO_RACKS, [3]) == []


def test_no_partition_comes_to_lie_in_fewer_racks() -> None:
    racks = {1: "a", 2: "b", 3: "b"}
    before = assignments(*[(1, 2)] * 6)
    moves = plan_adding(before, racks, [3])
    assert moves
    assert all(set(move.replicas) == {1, 3} for move in moves)


BROKERS = st.integers(1, 6)


@given(
    st.lists(st.lists(BROKERS, min_size=1, max_size=3, unique=True).map(tuple), min_size=1, max_size=30),
    st.dictionaries(BROKERS, st.sampled_from(["a", "b", None]), min_size=6, max_size=6),
    st.sets(BROKERS, min_size=1, max_size=3),
)
def test_whatever_is_drained_or_added(
    replicas: list[tuple[int, ...]], racks: dict[int, str | None], brokers: set[int]
) -> None:
    before = assignments(*replicas)
    drained = after(before, plan_draining(before, racks, brokers))
    for partition, was in before.items():
        now = drained[partition]
        assert len(set(now)) == len(now) == len(was)
        assert not set(now) & brokers
        assert [a for a, b in zip(was, now, strict=True) if a == b] == [a for a in was if a not in brokers]
    grown = after(before, plan_adding(before, racks, brokers))
    for partition, was in before.items():
        now = grown[partition]
        assert len(set(now)) == len(now) == len(was)
        assert {b for a, b in zip(was, now, strict=True) if a != b} <= brokers
    held = Counter(broker for now in grown.values() for broker in now)
    had = Counter(broker for was in before.values() for broker in was)
    assert all(held[broker] >= had[broker] for broker in brokers) or len(brokers) > 1


def test_a_plan_can_be_written_and_read() -> None:
    moves = [Move(Partition("t", 3), (1, 2), (2, 3))]
    assert parse_plan(json.dumps(plan_document(moves)), {Partition("t", 3): (1, 2)}) == moves


def test_directories_in_a_plan() -> None:
    move = Move(Partition("t", 3), (1, 2), (2, 3), ("any", "/disk/2"))
    assert move.places == {3: "/disk/2"}
    assert parse_plan(json.dumps(plan_document([move])), {Partition("t", 3): (1, 2)}) == [move]
    with pytest.raises(KeyError):
        parse_plan(json.dumps(plan_document([move])), {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "no JSON"),
        ("[]", "no plan"),
        ('{"version": 2, "partitions": []}', "version 2"),
        ('{"partitions": [1]}', "entry 1 is no object"),
        ('{"partitions": [{"topic": "t", "replicas": [1]}]}', "names no topic and partition"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', r"t-0\) has no list of brokers"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "a broker twice"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["a", "b"]}]}', "log directory"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "t-0 twice",
        ),
    ],
)
def test_plans_that_cannot_be_read(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_plan(text, {Partition("t", 0): (1,)})
