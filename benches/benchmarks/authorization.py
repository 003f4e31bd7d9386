"""Processor time of one authorization check: rules of many users, a tenth of them for prefixes.

Without a broker: this is the authorizer that every guard asks.
"""

import time
from typing import Final

from benches.contestants import Contestant
from benches.model import Bench, Benchmark, Figure, Goal
from ottla.security.acls import (
    WILDCARD,
    AccessRule,
    PatternType,
    PermissionType,
    ResourcePattern,
    StandardAuthorizer,
)
from ottla.security.authorization import Operation, ResourceType

USERS: Final = 100
ASKED_FOR: Final = 5000
"""Topics that are asked for in turn, the same whatever the number of rules: a client has some, not all."""
PREFIX_SHARE: Final = 10
PREFIX_LENGTHS: Final = 3
"""Different lengths of prefixes: each is looked up once."""


def with_rules(count: int) -> StandardAuthorizer:
    """An authorizer with so many rules, each on a resource of its own."""
    authorizer = StandardAuthorizer()
    for number in range(count):
        rule = AccessRule(f"User:u{number % USERS}", WILDCARD, Operation.READ, PermissionType.ALLOW)
        if number % PREFIX_SHARE == 0:
            name = f"team{'-' * (number // PREFIX_SHARE % PREFIX_LENGTHS)}{number:07}"
            resource = ResourcePattern(ResourceType.TOPIC, name, PatternType.PREFIXED)
        else:
            resource = ResourcePattern(ResourceType.TOPIC, f"topic-{number:08}")
        authorizer.set_rules(resource, [*authorizer.rules(resource), rule])
    return authorizer


def check_us(rules: int, checks: int) -> tuple[float, float]:
    """Microseconds of processor time for a decision that is made for the first time, and for one that is known."""
    authorizer = with_rules(rules)
    names = [f"topic-{number * 7 % ASKED_FOR:08}" for number in range(checks)]
    allows = authorizer.allows
    began = time.process_time_ns()
    for number, name in enumerate(names):
        if not number % ASKED_FOR:
            authorizer.set_rules(ResourcePattern(ResourceType.GROUP, "g"), ())  # what was decided is forgotten
        allows("User:u7", "10.0.0.1", Operation.READ, ResourceType.TOPIC, name)
    first = time.process_time_ns() - began
    known = names[-1]
    began = time.process_time_ns()
    for _ in range(checks):
        allows("User:u7", "10.0.0.1", Operation.READ, ResourceType.TOPIC, known)
    return first / checks / 1000, (time.process_time_ns() - began) / checks / 1000


def _measure(contestant: Contestant, bench: Bench) -> dict[str, float]:
    checks = bench.scaled(200_000, 50_000)
    bench.say(f"{contestant.title}: deciding by 10,000 and by 100,000 rules")
    few, known = check_us(10_000, checks)
    many, _ = check_us(100_000, checks)
    return {"first_us": few, "first_of_100k_us": many, "known_us": known, "growth": many / few}


AUTHORIZATION: Final = Benchmark(
    "authorization",
    "One authorization check",
    (
        Figure(
            "first_us", "a new decision, 10,000 rules, 1,000 of prefixes", "us", "lower", {"ottla": Goal("value", 2)}
        ),
        Figure("first_of_100k_us", "the same with 100,000 rules", "us", "lower", {"ottla": Goal("value", 2)}),
        Figure("growth", "the second by the first", "x", "lower", {"ottla": Goal("value", 1.1)}),
        Figure("known_us", "a decision that was made before", "us", "lower"),
    ),
    _measure,
    contestants=frozenset({"ottla"}),
    disk_gb=0.1,
)
