"""Random changes of random tables, captured amid kills: what is in the topics is what the tables have.

A seed that fails prints the command that runs it again; see plan.py for what it is a seed of.
"""

import random
from collections.abc import Iterator

import pytest

from tests.connect.generated.__main__ import how_to_rerun
from tests.connect.generated.kinds import Database
from tests.connect.generated.plan import make_plan
from tests.connect.generated.rebuild import Event
from tests.connect.generated.running import Outcome, Stand, carry_out, problems_of, stand

SHORT = [("postgres", 1), ("postgres", 3), ("mariadb", 1)]
LONG = [(database, seed) for seed in range(101, 126) for database in ("postgres", "mariadb")]


@pytest.fixture(scope="module")
def stands() -> Iterator[dict[Database, Stand]]:
    """One for each database, that all seeds share."""
    with stand("postgres") as postgres, stand("mariadb") as mariadb:
        yield {"postgres": postgres, "mariadb": mariadb}


def check(database: Database, seed: int, where: Stand, statements: int, kills: int, biggest: int) -> Outcome:
    """Carry out a plan, and see that nothing is wrong with what comes of it."""
    plan = make_plan(seed, database, statements=statements, kills=kills, biggest=biggest)
    print(how_to_rerun(plan, statements, kills, biggest))
    outcome = carry_out(plan, where)
    print(outcome)
    assert outcome.problems() == []
    return outcome


@pytest.mark.parametrize(("database", "seed"), SHORT)
def test_tables_rebuilt_from_topics_are_the_tables(
    database: Database, seed: int, stands: dict[Database, Stand]
) -> None:
    outcome = check(database, seed, stands[database], statements=250, kills=2, biggest=100)
    dice = random.Random(seed)
    for name in outcome.topics:
        for breakage in (without_one, with_one_twice, with_two_exchanged):
            if len(outcome.topics[name]) > 50:
                broken = {**outcome.topics, name: breakage(outcome.topics[name], dice)}
                assert problems_of(outcome.plan, broken, outcome.real), f"{breakage.__name__} in {name} is not found"


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("database", "seed"), LONG)
def test_so_are_those_of_thousands_of_statements(database: Database, seed: int, stands: dict[Database, Stand]) -> None:
    check(database, seed, stands[database], statements=2500, kills=6, biggest=3000)


def without_one(events: list[Event], dice: random.Random) -> list[Event]:
    """Not the last change of a row: nothing tells that it is missing if the table is gone by now."""
    last = {str(event.key): at for at, event in enumerate(events)}
    at = dice.choice([at for at, event in enumerate(events) if event.op is not None and last[str(event.key)] != at])
    return events[:at] + events[at + 1 :]


def with_one_twice(events: list[Event], dice: random.Random) -> list[Event]:
    at = dice.randrange(len(events))
    return [*events[: at + 1], *events[at:]]


def with_two_exchanged(events: list[Event], dice: random.Random) -> list[Event]:
    """Two changes, one after the other, of one row."""
    places: dict[str, int] = {}
    pairs = []
    for at, event in enumerate(events):
        before = places.get(str(event.key))
        if before is not None and events[before].op is not None and event.op is not None:
            pairs.append((before, at))
        places[str(event.key)] = at
    first, second = dice.choice(pairs)
    exchanged = list(events)
    exchanged[first], exchanged[second] = events[second], events[first]
    return exchanged
