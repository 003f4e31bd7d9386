"""Roles, masks, origins and sessions of the console, by their rules alone."""

import json
from typing import Any, cast

import pytest

from ottla.console.access.access import Access, Settings
from ottla.console.access.masks import MASKED, MaskProblem, Masks, parse_masks
from ottla.console.access.origins import is_known_host, is_own_form, loads_from_elsewhere, local_path
from ottla.console.access.roles import Role, RoleProblem, parse_roles
from ottla.console.access.sessions import (
    IDLE_S,
    LONGEST_S,
    MOST_OF_USER,
    MOST_SESSIONS,
    Session,
    Sessions,
    TooManySessions,
)
from ottla.console.values import written


def test_roles_of_users_and_of_everybody_else() -> None:
    roles = parse_roles(["alice=admin", "# a comment", "", " bob = Editor ", "a=b=viewer"])
    assert [roles.of(name) for name in ("alice", "bob", "a=b", "carol")] == [
        Role.ADMIN,
        Role.EDITOR,
        Role.VIEWER,
        Role.VIEWER,
    ]
    closed = parse_roles(["*=none", "alice=viewer"])
    assert (closed.of("alice"), closed.of("Alice"), closed.of("*")) == (Role.VIEWER, Role.NONE, Role.NONE)
    assert parse_roles(["*=admin"]).of("*") is Role.NONE  # a user of this name is not everybody


@pytest.mark.parametrize("line", ["alice", "=admin", "alice=root", "alice=", "admin"])
def test_a_line_that_is_no_role(line: str) -> None:
    with pytest.raises(RoleProblem, match="NAME=ROLE"):
        parse_roles([line])
    with pytest.raises(RoleProblem, match="two roles"):
        parse_roles(["a=admin", "a=viewer"])


def test_masked_fields_are_replaced_wherever_they_are() -> None:
    masks = parse_masks(["value.card, value.customer.iban", "value.*.secret"])
    seen = masks.applied(
        "value",
        {"id": 1, "card": {"n": 4}, "customer": [{"iban": "DE", "name": "x"}, {"iban": None}], "a": {"secret": 1}},
    )
    assert seen == {
        "id": 1,
        "card": MASKED,
        "customer": [{"iban": MASKED, "name": "x"}, {"iban": MASKED}],
        "a": {"secret": MASKED},
    }
    assert masks.applied("value", [{"card": 1}]) == [{"card": MASKED}]
    assert masks.applied("key", {"card": 1}) == {"card": 1}


def test_names_with_dots_are_masked_like_fields_of_fields() -> None:
    masks = parse_masks(["value.card.number", "value.customer", "value.*.pin"])
    assert masks.applied(
        "value", {"card.number": 1, "card.kind": 2, "a": {"card.number": 3}, "customer.iban": 4, "x.pin": 5, "cards": 6}
    ) == {
        "card.number": MASKED,
        "card.kind": 2,
        "a": {"card.number": 3},
        "customer.iban": MASKED,
        "x.pin": MASKED,
        "cards": 6,
    }


@pytest.mark.parametrize("text", ["4111 1111", "{broken", 7, b"bytes"])
def test_a_value_that_is_not_an_object_is_masked_whole(text: object) -> None:
    assert parse_masks(["value.card"]).applied("value", text) == MASKED


def test_nesting_hides_nothing_and_breaks_nothing() -> None:
    deep: object = {"card": 1}
    for _ in range(400):
        deep = [deep]
    assert '"card": 1' not in json.dumps(parse_masks(["value.card"]).applied("value", deep))
    endless: dict[str, object] = {}
    inner = endless
    for _ in range(5000):
        inner["x"] = inner = {}
    assert written(parse_masks(["value.card"]).applied("value", {"y": endless})) == "(too deeply nested to be shown)"


def test_masked_headers_and_whole_parts() -> None:
    masks = parse_masks(["headers.Token", "key"])
    assert [masks.hides_header(name) for name in ("token", "TOKEN", "source")] == [True, True, False]
    assert parse_masks(["headers.a.b"]).hides_header("a.b")
    assert parse_masks(["headers"]).hides_header("anything")
    assert masks.applied("key", {"id": 1}) == MASKED
    assert not Masks()


def test_reasons_of_dead_letters_are_masked_since_they_may_name_values() -> None:
    for name in ("ottla.dead-letter.reason", "__connect.errors.exception.message"):
        assert parse_masks(["value.card"]).hides_header(name)
        assert not Masks().hides_header(name)


@pytest.mark.parametrize("text", ["card", "value.", "value..x", "values.card", ".card"])
def test_a_text_that_is_no_mask(text: str) -> None:
    with pytest.raises(MaskProblem, match="no mask"):
        parse_masks([text])


OWN = {"host": "console.example:8080", "origin": "https://console.example:8080", "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize(
    ("changed", "is_own"),
    [
        ({}, True),
        ({"sec-fetch-site": None}, True),  # an older browser, or one without TLS
        ({"origin": None}, True),
        ({"origin": None, "sec-fetch-site": None}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),  # another port, or another host of the domain
        ({"sec-fetch-site": "none"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://console.example:8080"}, False),
        ({"origin": "https://console.example"}, False),
        ({"origin": "https://console.example:8080.evil.example"}, False),
    ],
)
def test_forms_of_other_pages(changed: dict[str, str | None], is_own: bool) -> None:
    headers = {name: value for name, value in {**OWN, **changed}.items() if value is not None}
    assert is_own_form(headers, "https") is is_own


def test_names_by_which_the_console_is_known() -> None:
    for host in ("localhost:1", "127.0.0.1", "[::1]:8080", "", "console.example", "CONSOLE.example:9"):
        assert is_known_host(host, {"console.example"}, is_local=True), host
    for host in ("10.0.0.7", "evil.example", "127.0.0.1.evil.example", "[", "localhost.evil.example"):
        assert not is_known_host(host, {"console.example"}, is_local=True), host
    assert is_known_host("10.0.0.7:8080", (), is_local=False)
    assert not is_known_host("evil.example", (), is_local=False)


def test_pages_of_other_sites_lead_here_and_load_nothing() -> None:
    assert not loads_from_elsewhere({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
    assert loads_from_elsewhere({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"})
    assert loads_from_elsewhere({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"})  # of another port
    framed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
    assert loads_from_elsewhere(framed)
    assert not loads_from_elsewhere({**framed, "sec-fetch-dest": "document"})
    assert not loads_from_elsewhere({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"})


@pytest.mark.parametrize("other", ['j={"a": 1}', "foo[bar]=1", "x", 'q="abc', "a b=c"])
def test_cookies_of_other_servers_hide_no_session(other: str) -> None:
    access = Access(Settings("h:1", {}, asks_login=True), connect=cast(Any, lambda *_: None))
    viewer = object()
    session_id = access.sessions.begin("alice", (viewer, b""))
    cookies = f"{other}; {access.cookie}={session_id}"
    assert cast(Any, access.viewer({"cookie": cookies})) is viewer


@pytest.mark.parametrize("text", ["https://evil.example", "//evil.example", "/\\evil.example", "evil", "", "/a\nb"])
def test_a_login_leads_nowhere_else(text: str) -> None:
    assert local_path(text) == "/"
    assert local_path("/topics?q=a") == "/topics?q=a"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def kept() -> tuple[Sessions, Clock, list[str]]:
    clock = Clock()
    ended: list[str] = []

    def note(session: Session) -> None:
        ended.append(session.user)

    return Sessions(clock, note), clock, ended


def test_a_session_ends_when_it_is_idle_and_after_its_longest_time() -> None:
    sessions, clock, ended = kept()
    idle, used = sessions.begin("idle", None), sessions.begin("used", None)
    watched = sessions.find(used, is_used=False)
    assert watched is not None
    while clock.now < 1000 + LONGEST_S - IDLE_S / 2:
        clock.now += IDLE_S / 2
        sessions.find(idle, is_used=False)  # an open page that is watched by nobody
        assert sessions.find(used, is_used=True) is not None
    assert (ended, sessions.find(idle, is_used=True)) == (["idle"], None)
    clock.now += IDLE_S / 2
    assert not sessions.is_on(watched)
    assert (ended, len(sessions)) == (["idle", "used"], 0)


def test_ids_are_random_and_not_kept() -> None:
    sessions, _, _ = kept()
    first, second = sessions.begin("a", None), sessions.begin("a", None)
    assert first != second
    assert len(first) >= 43
    session = sessions.find(first, is_used=True)
    assert first not in repr(session)
    for forged in ("", "a", first[:-1], first.swapcase(), "\udcff", "x" * 100_000):
        assert sessions.find(forged, is_used=True) is None
    assert session is not None
    sessions.end(session)
    sessions.end(session)
    assert sessions.find(first, is_used=True) is None


def test_sessions_are_bounded() -> None:
    sessions, _, ended = kept()
    own = [sessions.begin("greedy", None) for _ in range(MOST_OF_USER + 3)]
    assert (len(sessions), ended) == (MOST_OF_USER, ["greedy"] * 3)
    assert sessions.find(own[0], is_used=True) is None
    for number in range(MOST_SESSIONS - MOST_OF_USER):
        sessions.begin(f"user {number}", None)
    with pytest.raises(TooManySessions):
        sessions.begin("late", None)
    sessions.end_all()
    assert len(sessions) == 0
