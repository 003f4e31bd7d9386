"""Logins, sessions and forged requests, through the whole application without brokers."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

import httpx
import pytest
from starlette.routing import Route

from ottla.client.errors import AuthenticationFailed, BrokerUnavailable
from ottla.console.access.access import Access, Settings
from ottla.console.access.audit import AuditTrail
from ottla.console.access.masks import parse_masks
from ottla.console.access.roles import Role, parse_roles
from ottla.console.access.sessions import IDLE_S
from ottla.console.app import PAGES, application
from ottla.console.cluster import Page
from ottla.console.pages.actions import ActionPages
from ottla.console.pages.base import Shell

PASSWORD: Final = "right"
ORIGIN: Final = {"Origin": "http://localhost"}


class View:
    """A cluster's stand-in, which notes what it is asked."""

    opened: Final[list["View"]] = []

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        self.user = properties.get("sasl.username")
        self.is_closed = False
        self.asked: list[str] = []
        self.opened.append(self)

    @property
    def library(self) -> object:
        self.asked.append("library")
        raise BrokerUnavailable("no broker")

    async def topics_page(self, *_: object, **__: object) -> Page:
        return Page([], 0, 0)

    def forget(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class Console:
    """A console with a login, its clock and its audit log."""

    def __init__(self, **settings: Any) -> None:
        self.now = 0.0
        self.lines: list[dict[str, Any]] = []
        self.problem: Exception | None = None
        self.disk_is_full = False
        View.opened.clear()
        given = {"asks_login": True, "roles": parse_roles(["ann=admin", "eve=none"]), **settings}
        self.access = Access(
            Settings("h:1", {"security.protocol": "SASL_SSL"}, trail=AuditTrail(self._append), **given),
            lambda: self.now,
            cast(Any, View),
            self._check,
        )
        transport = httpx.ASGITransport(application(self.access))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def _append(self, lines: bytes) -> None:
        if self.disk_is_full:
            raise OSError(28, "No space left on device")
        self.lines += map(json.loads, lines.splitlines())

    async def _check(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        if self.problem is not None:
            raise self.problem
        if properties["sasl.password"] != PASSWORD:
            raise AuthenticationFailed("no")

    async def log_in(self, user: str, password: str = PASSWORD, **form: str) -> httpx.Response:
        data = {"user": user, "password": password, "mechanism": "PLAIN", **form}
        return await self.http.post("/login", data=data, headers=ORIGIN)

    @property
    def token(self) -> str:
        (session,) = self.access.sessions._sessions.values()
        token: str = session.holder[0].token
        return token


def run(test: Callable[[Console], Awaitable[None]], **settings: Any) -> Console:
    async def main() -> Console:
        console = Console(**settings)
        await test(console)
        await console.http.aclose()
        console.access.close()
        return console

    return asyncio.run(main())


def test_nothing_is_shown_before_the_login_and_after_the_logout() -> None:
    async def test(console: Console) -> None:
        for path in ("/", "/topics?q=a", "/topics/x/records", "/groups/g", "/nowhere"):
            answer = await console.http.get(path)
            assert (answer.status_code, answer.headers["location"].startswith("/login")) == (303, True), path
        events = await console.http.get("/topics", headers={"Accept": "text/event-stream"})
        assert events.status_code == 401
        assert (await console.http.post("/logout", headers=ORIGIN)).status_code == 401
        assert (await console.http.get("/static/console.css")).status_code == 200
        assert (await console.http.get("/static/../app.py")).status_code in (303, 404)
        answer = await console.log_in("ann", next="/topics?q=a")
        assert (answer.status_code, answer.headers["location"]) == (303, "/topics?q=a")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        page = await console.http.get("/topics")
        assert (page.status_code, page.headers["cache-control"]) == (200, "no-store")
        assert "ann (admin)" in page.text
        out = await console.http.post("/logout", data={"csrf": console.token}, headers=ORIGIN)
        assert (out.status_code, out.headers["location"]) == (303, "/login")
        assert (await console.http.get("/topics", headers={"Cookie": cookie.split(";")[0]})).status_code == 303
        assert [view.is_closed for view in View.opened] == [True]

    run(test)


def test_the_cookie_goes_over_tls_alone_where_there_is_tls() -> None:
    async def test(console: Console) -> None:
        answer = await console.http.post(
            "/login", data={"user": "ann", "password": PASSWORD, "mechanism": "PLAIN"}, headers={"Origin": "https://localhost"}
        )  # fmt: skip
        assert answer.headers["set-cookie"].startswith("__Host-ottla-console-8080=")
        assert "Secure" in answer.headers["set-cookie"]

    run(test, scheme="https")


def test_who_may_not_log_in() -> None:
    async def test(console: Console) -> None:
        wrong = await console.log_in("ann", "wrong<script>")
        assert (wrong.status_code, "do not take this name" in wrong.text) == (403, True)
        assert (await console.log_in("eve")).status_code == 403
        assert (await console.log_in("ann", mechanism="GSSAPI")).status_code == 400
        assert (await console.log_in("a" * 300)).status_code == 400
        assert (await console.log_in("ann\0", "x")).status_code == 400
        assert (await console.log_in("<script>alert(1)</script>", "x")).text.count("<script>") == 0
        console.problem = BrokerUnavailable("no broker answers")
        assert (await console.log_in("ann")).status_code == 502
        answer = await console.http.post(
            "/login", content=b"{}", headers={**ORIGIN, "Content-Type": "application/json"}
        )
        assert answer.status_code == 415
        huge = await console.http.post("/login", data={"user": "a" * 100_000}, headers=ORIGIN)
        assert huge.status_code == 413
        assert (len(console.access.sessions), View.opened) == (0, [])

    console = run(test)
    events = [(each["event"], each["outcome"], each["principal"]) for each in console.lines]
    assert set(events) == {("authentication", "failed", None)}
    assert "wrong" not in json.dumps([each for each in console.lines if "reason" not in each])


def test_guessing_shuts_out_nobody_with_a_login_that_was_right_before() -> None:
    async def test(console: Console) -> None:
        assert (await console.log_in("ann")).status_code == 303
        assert [(await console.log_in("ann", "wrong")).status_code for _ in range(11)][-1] == 429
        assert (await console.log_in("ann")).status_code == 303
        assert (await console.log_in("bob")).status_code == 429
        console.problem = AuthenticationFailed("the password was changed")
        assert [(await console.log_in("ann")).status_code for _ in range(2)] == [403, 429]

    run(test)


def test_guessing_takes_time_and_keeps_out_no_answer_of_brokers() -> None:
    async def test(console: Console) -> None:
        console.problem = BrokerUnavailable("no broker answers")
        assert {(await console.log_in("ann")).status_code for _ in range(15)} == {502}
        console.problem = None
        codes = [(await console.log_in("ann", "wrong")).status_code for _ in range(15)]
        assert codes == [403] * 10 + [429] * 5
        late = await console.log_in("ann")
        assert (late.status_code, int(late.headers["retry-after"]) > 0) == (429, True)
        console.now += 7
        assert (await console.log_in("ann")).status_code == 303

    run(test)


def test_a_session_that_is_idle_ends_with_its_connections() -> None:
    async def test(console: Console) -> None:
        await console.log_in("bob")
        assert (await console.http.get("/topics")).status_code == 200
        console.now += IDLE_S
        assert (await console.http.get("/topics")).status_code == 303
        assert [view.is_closed for view in View.opened] == [True]

    run(test)


def test_what_a_session_watches_ends_with_it() -> None:
    async def test(console: Console) -> None:
        await console.log_in("bob")
        events = asyncio.ensure_future(console.http.get("/topics", headers={"Accept": "text/event-stream"}))
        while not console.access.streams:
            await asyncio.sleep(0)
        answer = await console.http.post("/logout", data={"csrf": console.token}, headers=ORIGIN)
        assert answer.status_code == 303
        assert (await asyncio.wait_for(events, 10)).text.startswith("event: part")
        assert console.access.streams == {}

    run(test)


def test_two_sessions_of_a_user_share_connections() -> None:
    async def test(console: Console) -> None:
        await console.log_in("bob")
        console.http.cookies.clear()
        await console.log_in("bob")
        assert len(View.opened) == 1
        first, second = console.access.sessions._sessions.values()
        console.access.sessions.end(first)
        assert not View.opened[0].is_closed
        console.access.sessions.end(second)
        assert View.opened[0].is_closed

    run(test)


def test_forged_requests() -> None:
    async def test(console: Console) -> None:
        assert (await console.http.post("/login", data={"user": "ann", "password": PASSWORD})).status_code == 403
        for origin in ("http://evil.example", "null", "http://localhost:81"):
            answer = await console.http.post("/login", data={"user": "ann"}, headers={"Origin": origin})
            assert answer.status_code == 403
        await console.log_in("ann")
        for token in ("", "x", console.token[:-1], console.token.swapcase(), "\u20ac"):
            answer = await console.http.post("/logout", data={"csrf": token}, headers=ORIGIN)
            assert answer.status_code == 403
        assert (await console.http.post("/logout", data={"csrf": console.token})).status_code == 403
        console.http.cookies.clear()
        for forged in (b"A" * 43, b"", b'"', b"\xff\x80"):
            cookie = console.access.cookie.encode() + b"=" + forged
            headers = httpx.Headers([(b"origin", b"http://localhost"), (b"cookie", cookie)])
            answer = await console.http.post("/logout", data={"csrf": console.token}, headers=headers)
            assert answer.status_code == 401
        assert len(console.access.sessions) == 1
        assert (await console.http.get("/topics", headers={"Host": "evil.example"})).status_code == 403
        assert (await console.http.delete("/topics")).status_code == 405

    console = run(test)
    refused = [each for each in console.lines if each["event"] == "refusal"]
    assert {(each["principal"], each["api"]) for each in refused} == {
        (None, "POST /login"),
        ("User:ann", "POST /logout"),
    }


def test_no_login_without_an_audit_log() -> None:
    async def test(console: Console) -> None:
        console.disk_is_full = True
        answer = await console.log_in("ann")
        assert (answer.status_code, "No space left" in answer.text) == (503, True)
        assert len(console.access.sessions) == 0

    run(test)


def test_repeated_refusals_are_counted_and_floods_are_cut() -> None:
    async def test(console: Console) -> None:
        for number in range(300):
            await console.http.post("/login", headers={"Origin": "http://evil.example"})
            await console.http.post(f"/topics/{number}/delete", headers={"Origin": "http://evil.example"})
        assert len(console.lines) < 200
        await console.access.settings.trail.close()

    console = run(test)
    assert [each["repeated"] for each in console.lines if "repeated" in each] == [299]


def test_an_action_that_cannot_be_noted_is_not_done() -> None:
    async def test(console: Console) -> None:
        await console.log_in("ann")
        console.disk_is_full = True
        form = {"csrf": console.token, "name": "t"}
        answer = await console.http.post("/create-topic", data=form, headers=ORIGIN)
        assert (answer.status_code, "No space left" in answer.text) == (503, True)
        assert View.opened[0].asked == []
        console.disk_is_full = False
        failed = await console.http.post("/create-topic", data=form, headers=ORIGIN)
        assert (failed.status_code, "It was not done: no broker" in failed.text) == (409, True)
        assert View.opened[0].asked == ["library"]

    console = run(test, changes=True)
    assert [each["outcome"] for each in console.lines if each["event"] == "change"] == ["begun", "failed"]


def test_masks_are_lifted_for_administrators_alone() -> None:
    async def test(console: Console) -> None:
        await console.log_in("ann")
        await console.log_in("bob")
        for session in console.access.sessions._sessions.values():
            viewer = session.holder[0]
            assert bool(viewer.masks) is (viewer.user != "ann")

    run(test, masks=parse_masks(["value.card"]))


@pytest.mark.parametrize(("changes", "may"), [(False, False), (True, True)])
def test_a_console_without_a_login_changes_something_only_if_it_may(changes: bool, may: bool) -> None:
    async def test(console: Console) -> None:
        viewer = console.access.viewer({})
        assert viewer is not None
        assert (viewer.may(Role.VIEWER), viewer.may("editor"), viewer.may("admin")) == (True, may, may)
        assert bool(viewer.masks)

    run(test, asks_login=False, changes=changes, masks=parse_masks(["key"]))


def test_every_form_that_is_posted_is_guarded() -> None:
    async def test(console: Console) -> None:
        shell = Shell(console.access)
        for pages in PAGES:
            for route in pages(shell).routes():
                assert isinstance(route, Route)
                if "POST" in (route.methods or ()) and route.path != "/login":
                    guard = ActionPages.action.__qualname__
                    assert guard in route.endpoint.__qualname__, route.path

    run(test)
