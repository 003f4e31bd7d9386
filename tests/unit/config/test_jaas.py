"""JAAS configurations, as administrators write them."""

import pytest

from ottla.config.jaas import login_module
from ottla.errors import InvalidConfig

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_words_and_quoted_texts() -> None:
    module = login_module(
        "sasl.jaas.config",
        f"""  {PLAIN} required
             username="admin" password='it"s; = "' user_alice=plain user_end=";"
             user_bob="tab\\t \\"quoted\\" back\\\\slash" ; """,
    )
    assert module.name == "PlainLoginModule"
    assert module.options == {
        "username": "admin",
        "password": 'it"s; = "',
        "user_alice": "plain",
        "user_end": ";",
        "user_bob": 'tab\t "quoted" back\\slash',
    }
    assert "admin" not in repr(module)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not begin with the class"),
        (";", "does not begin with the class"),
        (f"{PLAIN} username=a;", "is not followed by one of required"),
        (f"{PLAIN} required username=;", "option 1 is not of the form name=value"),
        (f"{PLAIN} required a=b username;", "option 2 is not of the form"),
        (f'{PLAIN} required password="hidden', "a quotation mark is not closed"),
        (f"{PLAIN} required password=hidden", "does not end with a semicolon"),
        (f"{PLAIN} required a=b; {PLAIN} required c=hidden;", "more than one login module"),
    ],
)
def test_what_is_malformed_is_refused_without_its_secrets(text: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why) as refused:
        login_module("listener.name.sasl.plain.sasl.jaas.config", text)
    assert str(refused.value).startswith("listener.name.sasl.plain.sasl.jaas.config is not a JAAS configuration")
    assert "hidden" not in str(refused.value)


def test_a_hostile_text_is_read_in_linear_time() -> None:
    with pytest.raises(InvalidConfig):
        login_module("sasl.jaas.config", f'{PLAIN} required a="' + "\\" * 200_001)
