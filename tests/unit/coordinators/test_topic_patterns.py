"""Regular expressions of subscriptions, as RE2 reads them."""

import asyncio

import pytest

from ottla.coordinators.topic_patterns import matching_topics, regex_problem
from ottla.ids import TopicName

NAMES = tuple(TopicName(name) for name in ("orders", "orders.eu", "returns", "__consumer_offsets"))


def matches(*regexes: str) -> dict[str, set[str]]:
    return {regex: set(found) for regex, found in asyncio.run(matching_topics(regexes, NAMES)).items()}


@pytest.mark.parametrize(
    ("regex", "topics"),
    [
        ("orders", {"orders"}),
        ("order", set()),
        ("orders.*", {"orders", "orders.eu"}),
        ("orders|returns", {"orders", "returns"}),
        ("(?i)ORDERS", {"orders"}),
        (r"[a-z]+\.[a-z]+", {"orders.eu"}),
        (".*", set(NAMES)),
        ("", set()),
        (r"\Qorders.eu\E", {"orders.eu"}),
    ],
)
def test_the_whole_name_is_matched(regex: str, topics: set[str]) -> None:
    assert regex_problem(regex) is None
    assert matches(regex) == {regex: topics}


def test_several_at_once_and_bad_ones_match_nothing() -> None:
    assert matches("ret.*", "(", "ord.*") == {"ret.*": {"returns"}, "(": set(), "ord.*": {"orders", "orders.eu"}}
    assert matches() == {}


@pytest.mark.parametrize(
    ("regex", "problem"),
    [
        ("[", "missing ]"),
        ("(", "missing )"),
        ("a**", "bad repetition operator"),
        ("(?=a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        (r"(\pL{1000})", "pattern too large"),
        ("\ud800", "invalid UTF-8"),
    ],
)
def test_what_re2_refuses_is_refused(regex: str, problem: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = regex_problem(regex)
    assert found is not None
    assert problem in found
    assert capfd.readouterr() == ("", "")


def test_an_expression_that_backtracks_elsewhere_takes_no_time() -> None:
    name = TopicName("a" * 240 + "b")
    found = asyncio.run(asyncio.wait_for(matching_topics(["(a*)*(a*)*c", "(a|a)*b"], [name]), 5))
    assert found == {"(a*)*(a*)*c": frozenset(), "(a|a)*b": {name}}
