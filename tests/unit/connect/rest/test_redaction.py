"""Users who may only read see no passwords."""

from typing import Any

import pytest

from ottla.connect.rest.redaction import HIDDEN, redacted


def shown(body: Any) -> Any:
    return redacted(body, lambda connector: ("pin",) if connector == "safe" else (), lambda text: text)


@pytest.mark.parametrize(
    "name",
    [
        "database.password",
        "connection.password",
        "http.authorization",
        "http.headers",
        "aws.secret.access.key",
        "producer.override.sasl.jaas.config",
        "value.converter.basic.auth.user.info",
        "ssl.keystore.key",
        "api_key",
        "bearer.token",
        "pin",
    ],
)
def test_passwords_are_hidden_wherever_they_are(name: str) -> None:
    config = {"connector.class": "safe", name: "geheim", "topic": "t"}
    assert shown(config) == {**config, name: HIDDEN}
    assert shown([{"id": {"task": 0}, "config": config}])[0]["config"][name] == HIDDEN
    assert shown({"a": {"info": {"name": "a", "config": config}}})["a"]["info"]["config"][name] == HIDDEN
    assert shown({**config, name: "${file:/x:y}"})[name] == "${file:/x:y}", "stands for a password"


def test_passwords_in_urls_are_hidden() -> None:
    assert shown({"u": "postgres://me:geheim@db:5432/x"}) == {"u": f"postgres://me:{HIDDEN}@db:5432/x"}
    assert shown(["jdbc:x://db/y?user=me&password=geheim&a=b"]) == [f"jdbc:x://db/y?user=me&password={HIDDEN}&a=b"]
    assert shown("https://api/?api_key=geheim&since=3") == f"https://api/?api_key={HIDDEN}&since=3"


def test_everything_else_is_shown() -> None:
    body = {"key.converter": "x", "tasks.max": "3", "offset": {"lsn": 1}, "table.include.list": "a.b", "none": None}
    assert shown(body) == body
