"""An operator's authorizer refuses in doubt, and nothing waits for it longer than it may."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.authorizers import install
from tests.support.eventually import eventually

from ottla.authorizers import ANSWERED_WITHIN_S, KEPT_S, Action
from ottla.config import load
from ottla.config.authorizer import AuthorizerSettings, authorizer_settings
from ottla.errors import InvalidConfig
from ottla.metadata.own_authorizer import AuthorizerThread, OwnAuthorizer, open_authorizer_thread
from ottla.security.acls import AccessRule, PermissionType, ResourcePattern
from ottla.security.authorization import Operation, ResourceType

READ, TOPIC = Operation.READ, ResourceType.TOPIC
RULE = AccessRule("User:alice", "*", READ, PermissionType.ALLOW)


class Deciding:
    """Decides as the test says, and remembers what it was asked."""

    def __init__(self, decide: Callable[[Action], object]) -> None:
        self.decide = decide
        self.asked: list[Action] = []
        self.closed = False

    def configure(self, settings: object) -> None:
        pass

    def authorize(self, action: Action) -> bool:
        self.asked.append(action)
        return cast("bool", self.decide(action))

    def close(self) -> None:
        self.closed = True


def asking(
    decide: Callable[[Action], object], now: Callable[[], float] = lambda: 0.0
) -> tuple[OwnAuthorizer, Deciding]:
    deciding = Deciding(decide)
    settings = AuthorizerSettings(frozenset({"User:admin"}), False, "deciding")
    authorizer = OwnAuthorizer(settings, AuthorizerThread("deciding", deciding, now), now)
    authorizer.set_rules(ResourcePattern(TOPIC, "orders"), [RULE])
    return authorizer, deciding


def allows(authorizer: OwnAuthorizer, name: str = "orders", principal: str = "User:alice") -> bool:
    return authorizer.allows(principal, "10.0.0.1", READ, TOPIC, name)


def test_it_sees_what_the_rules_decide_and_may_decide_otherwise() -> None:
    authorizer, deciding = asking(lambda action: action.resource == "open" or action.allowed_by_rules)
    assert allows(authorizer)
    assert allows(authorizer, "open")
    assert not allows(authorizer, "other")
    assert [(action.resource, action.allowed_by_rules) for action in deciding.asked] == [
        ("orders", True),
        ("open", False),
        ("other", False),
    ]
    assert deciding.asked[0] == Action("User:alice", "10.0.0.1", "READ", "TOPIC", "orders", True)
    assert authorizer.allowed_operations("User:alice", "10.0.0.1", TOPIC, "open") != 0


def test_it_is_not_asked_about_super_users() -> None:
    authorizer, deciding = asking(lambda action: False)
    assert allows(authorizer, principal="User:admin")
    assert authorizer.allows_any("User:admin", "10.0.0.1", READ, TOPIC)
    assert deciding.asked == []


def test_any_resource_of_a_type() -> None:
    authorizer, deciding = asking(lambda action: action.allowed_by_rules)
    assert authorizer.allows_any("User:alice", "10.0.0.1", READ, TOPIC)
    assert not authorizer.allows_any("User:bob", "10.0.0.1", READ, TOPIC)
    assert [(action.resource, action.allowed_by_rules) for action in deciding.asked] == [(None, True), (None, False)]


def test_answers_are_used_again_for_a_second_and_until_a_rule_changes() -> None:
    now = [0.0]
    authorizer, deciding = asking(lambda action: True, lambda: now[0])
    assert all(allows(authorizer) for _ in range(10))
    assert len(deciding.asked) == 1
    now[0] = KEPT_S
    assert allows(authorizer)
    assert len(deciding.asked) == 2
    authorizer.set_rules(ResourcePattern(TOPIC, "orders"), [])
    assert allows(authorizer)
    assert deciding.asked[2].allowed_by_rules is False


def failing(error: BaseException) -> Callable[[Action], object]:
    def decide(action: Action) -> object:
        raise error

    return decide


@pytest.mark.parametrize(
    "decide",
    [failing(ValueError("no")), failing(SystemExit(1)), failing(KeyboardInterrupt()), lambda _: 1, lambda _: None],
)
def test_whatever_is_no_answer_refuses_and_is_reported(
    decide: Callable[[Action], object], caplog: pytest.LogCaptureFixture
) -> None:
    authorizer, _ = asking(decide)
    assert not any(allows(authorizer) for _ in range(3))
    reported = "a decision is refused: the authorizer deciding"
    assert [record.message.partition(" (")[0] for record in caplog.records] == [reported]


def test_one_that_hangs_refuses_and_nothing_waits_again(caplog: pytest.LogCaptureFixture) -> None:
    let_go = threading.Event()
    authorizer, _ = asking(lambda action: let_go.wait() and True)
    began = time.monotonic()
    assert not any(allows(authorizer, f"t{number}") for number in range(1000))
    assert time.monotonic() - began < 100 * ANSWERED_WITHIN_S
    assert "has not answered within 0.1 s" in caplog.text
    let_go.set()
    eventually(lambda: allows(authorizer))


def configured(name: str) -> Any:
    config, _ = load(None, {"authorizer.class.name": name, "super.users": "User:admin"})
    settings = authorizer_settings(config)
    assert settings is not None

    async def opened() -> OwnAuthorizer:
        assert settings.own is not None
        thread = await open_authorizer_thread(config, settings.own, lambda: 0.0)
        thread.close()
        return OwnAuthorizer(settings, thread, lambda: 0.0)

    return asyncio.run(opened())


BROKEN = """
# AUTHORIZER picky = broken:Picky
# AUTHORIZER half = broken:Half

class Half:
    def configure(self, settings): pass
    def close(self): pass

class Picky(Half):
    def configure(self, settings): raise ValueError("no such thing")
    def authorize(self, action): return True
"""


def test_an_installed_one_is_found_and_any_other_prevents_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(install(tmp_path, broken=BROKEN)))
    assert configured("payroll").is_super_user("User:admin")
    for name, problem in (("picky", "does not take the settings.*no such thing"), ("half", "has no method authorize")):
        with pytest.raises(InvalidConfig, match=problem):
            configured(name)
    with pytest.raises(InvalidConfig, match=r"authorizer\.class\.name"):
        load(None, {"authorizer.class.name": "missing"})
