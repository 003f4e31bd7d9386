"""A seed decides what is asked for and what breaks."""

from itertools import islice
from random import Random

import pytest

from tests.chaos.plan import Fault, Place, Role, first_task, strikes, tasks

KEYS = ["a-0", "a-1", "b-0"]


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.value)
def test_the_same_seed_asks_for_the_same(role: Role) -> None:
    place = Place("python-0", "python", role)
    once, again, other = (list(islice(tasks(place, 2, KEYS, Random(seed)), 200)) for seed in (7, 7, 8))
    assert once == again
    assert once != other


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.value)
def test_a_value_is_sent_once_in_a_run(role: Role) -> None:
    values = [
        step[2]
        for number in range(3)
        for task in islice(tasks(Place("x", "python", role), number, KEYS, Random(7)), 500)
        for step in task.get("steps", ())
        if step[0] == "send"
    ]
    assert len(values) == len(set(values))
    assert bool(values) is (role is not Role.RELAY), "a relay sends what it is given"


def test_a_new_process_first_says_what_it_reads() -> None:
    assert first_task(Place("x", "java", Role.SUBSCRIBE), KEYS) == {"what": "subscribe", "keys": ["a", "b"]}
    assert first_task(Place("x", "java", Role.ASSIGN), KEYS) == {"what": "assign", "keys": KEYS, "from_start": True}
    assert first_task(Place("x", "java", Role.FEED), KEYS) is None


def test_the_same_seed_breaks_the_same() -> None:
    once, again = (list(islice(strikes(5, tuple(Fault), Random(7)), 300)) for _ in range(2))
    assert once == again
    assert {strike.fault for strike in once} == set(Fault)
    assert {strike.place for strike in once} == set(range(5))


def test_only_what_is_named_breaks() -> None:
    assert {strike.fault for strike in islice(strikes(5, (Fault.PAUSE_BROKER,), Random(7)), 50)} == {Fault.PAUSE_BROKER}
    assert list(strikes(5, (), Random(7))) == []
