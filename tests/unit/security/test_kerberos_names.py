"""Rules from Kerberos principals to names of users; the expectations are those of Kafka's `KerberosRuleTest`s."""

import re

import pytest

from ottla.errors import InvalidConfig
from ottla.security.kerberos_names import check_rules, short_names
from ottla.security.principals import UnnamedClient

RULES = (
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1@$0](hdfs@HOME)s/@.*//U",
    "RULE:[2:$2;$1](^host;.*$)s/;.*//",
    "RULE:[1:$1@$0](.*@HOME)s/@.*//L",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("App.service-name@REALM", "service-name"),
        ("App.service-name/example.com@REALM", "service-name"),
        ("hdfs/example.com@HOME", "HDFS"),
        ("kafka/host@REALM", "host"),
        ("Alice@HOME", "alice"),
        ("Bob@REALM", "Bob"),
        ("kafka/other@REALM", "kafka"),
    ],
)
def test_the_first_rule_that_applies_gives_the_name(principal: str, name: str) -> None:
    assert short_names(RULES, "REALM")(principal) == name


@pytest.mark.parametrize(
    "principal", ["user@OTHER", "a/b@OTHER", "a/b/c@REALM", "a\\/b@REALM", "user", "a@b@REALM", ""]
)
def test_others_have_no_name(principal: str) -> None:
    with pytest.raises(UnnamedClient):
        short_names(RULES, "REALM")(principal)


@pytest.mark.parametrize("rule", ["RULE:[1:$1@$0]", "RULE:[2:$1/$2]", "RULE:[1:$1]s/.*//"])
def test_a_name_is_simple_and_not_empty(rule: str) -> None:
    with pytest.raises(UnnamedClient):
        short_names([rule, "DEFAULT"], "R")("a@R" if "[1" in rule else "a/b@R")


def test_the_first_match_is_replaced_or_all() -> None:
    assert short_names(["RULE:[1:$1]s/a/b/"], "")("banana@R") == "bbnana"
    assert short_names(["RULE:[1:$1]s/a/b/g"], "")("banana@R") == "bbnbnb"
    assert short_names(["RULE:[1:$1]s/(a)(n)/$2$1/g/U"], "")("banana@R") == "BNANAA"


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("", "neither the form"),
        ("default", "neither the form"),
        ("RULE:[1:$1](a)s/b/c", "neither the form"),
        ("RULE:[1:$1]x", "neither the form"),
        ("RULE:[0:$1]", "1 or 2 components"),
        ("RULE:[3:$1]", "1 or 2 components"),
        ("RULE:[:x]", "1 or 2 components"),
        ("RULE:[1:$2]", "$2 is neither $0, the realm, nor one of 1"),
        ("RULE:[1:$]", "$ is neither"),
        ("RULE:[1:$1](a(?=b)", "not a pattern of RE2"),
        ("RULE:[1:$1](*)", "not a pattern of RE2"),
        ("RULE:[1:$1]s/a/\\/", "refers to no group"),
    ],
)
def test_rules_that_cannot_be_read_are_refused(rule: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(why)):
        check_rules([rule])


def test_line_ends_escape_no_rule() -> None:
    with pytest.raises(UnnamedClient):
        short_names(["RULE:[1:$1](.*)"], "")("admin\nx@R")
