"""Regular expressions of connectors take a bounded time, whatever they and the names are."""

import re
import time

import pytest
from tests.support.connect_tasks import sink_record

from ottla.connect.connectors.capture.selection import Names
from ottla.connect.errors import ConfigError
from ottla.connect.patterns import compiled
from ottla.connect.transforms.base import Options
from ottla.connect.transforms.routing import regex_router

NAME = "a" * 249
EXPLODING = [
    "(a+)+",
    "(a|a)*",
    "(.*)*",
    "(a|aa)+",
    "(.*a){20}",
    "([a-z]+)*",
    "((a?){3})*",
    "(?:a{1,9}){1,9}",
    ".*.*.*.*",
]


@pytest.mark.parametrize("text", EXPLODING)
def test_an_expression_that_explodes_in_python_does_not_here(text: str) -> None:
    began = time.process_time()
    assert compiled(f"{text}!").fullmatch(NAME) is None
    assert not Names([f"{text}!"], []).has(NAME)
    route = regex_router(Options("transforms.r.", {"regex": f"{text}!", "replacement": "x"}), "key")
    assert route(sink_record(NAME, 0, None)).topic == NAME
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "text",
    [
        r"(a+)+\1!",
        "(?=(a+)+!)x",
        r"(a|a)*(?!b)!",
        r"(?!b)(a|aa){1,}!",
        r"(?<!b)(?:a+)+!",
        r"(?!b)a*a*a*a*!",
        r"(?=[)])(a+)+",
        r"(a+)+(?=\))",
        "(a{1000}){1000}",
    ],
)
def test_what_could_explode_and_re2_does_not_have_is_refused(text: str) -> None:
    with pytest.raises(re.error, match="it may take very long"):
        compiled(text)
    with pytest.raises(ConfigError, match=r"transforms.r.regex is no regular expression: it has lookaround"):
        regex_router(Options("transforms.r.", {"regex": text, "replacement": "x"}), "key")


@pytest.mark.parametrize(
    ("text", "name", "fits"),
    [
        (r"(?!internal\.).*", "orders", True),
        (r"(?!internal\.).*", "internal.x", False),
        (r"(?:public|shop)\.(?!tmp_)\w+", "shop.orders", True),
        (r"(?:public|shop)\.(?!tmp_)\w+", "shop.tmp_x", False),
        (r"(?P<first>\w)(?P=first).*?", "aab", True),
        (r"([^.]+)\.([^.]+)\.([^.]+)", "a.b.c", True),
        (r"a[)*+]+", "a)*+", True),
    ],
)
def test_what_people_write_works(text: str, name: str, fits: bool) -> None:
    assert (compiled(text).fullmatch(name) is not None) is fits
    assert (compiled(text, any_case=True).fullmatch(name.upper()) is not None) is fits


def test_groups_are_as_in_java() -> None:
    settings = {"regex": r"(?<db>[^.]+)\.([^.]+)", "replacement": r"${db}-$2-\$1"}
    assert regex_router(Options("transforms.r.", settings), "key")(sink_record("shop.orders", 0, None)).topic == (
        "shop-orders-$1"
    )
