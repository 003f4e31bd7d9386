"""What the pages of pipelines and connectors change, through the whole application without brokers: who may, and that
it is noted."""

import asyncio
import html
import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from tests.support.fake_connect import fake_connect
from tests.support.run_homes import run_home

from ottla.console import diffs
from ottla.console.access.access import Access, Settings
from ottla.console.access.audit import AuditTrail
from ottla.console.access.masks import MASKED, parse_masks
from ottla.console.access.viewer import Viewer
from ottla.console.app import application
from ottla.console.cluster import ClusterView
from ottla.console.connectors import WorkerAddress
from ottla.console.pages.base import Shell
from ottla.console.pages.topic_actions import TopicActions
from ottla.console.sharing import Shared
from ottla.pipeline.run_store import find_run

REASON = "connect.errors.ConnectException: no login"
ORIGIN = {"Origin": "http://localhost"}


class View:
    """A cluster's stand-in."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        self.client_properties: dict[str, Any] = {"bootstrap.servers": bootstrap, **properties}
        self.shared = Shared()

    async def groups(self) -> list[Any]:
        raise TimeoutError

    def forget(self) -> None:
        pass

    def close(self) -> None:
        pass


class Console:
    """A console without a login, and its audit log."""

    def __init__(self, **settings: Any) -> None:
        self.lines: list[dict[str, Any]] = []
        trail = AuditTrail(lambda lines: self.lines.extend(map(json.loads, lines.splitlines())))
        given = {"changes": True, **settings}
        self.access = Access(Settings("h:1", {}, trail=trail, **given), connect=cast(Callable[..., ClusterView], View))
        transport = httpx.ASGITransport(application(self.access))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    @property
    def everybody(self) -> Viewer:
        found = self.access.viewer({})
        assert found is not None
        return found

    async def post(self, page: str, path: str, **form: str) -> httpx.Response:
        """Send a form with the token that a page has."""
        token = re.search(r'name="csrf" value="([^"]+)"', (await self.http.get(page)).text)
        sent = {"csrf": "" if token is None else token[1], **form}
        return await self.http.post(path, data=sent, headers=ORIGIN)


def run(test: Callable[[Console], Awaitable[None]], **settings: Any) -> Console:
    async def main() -> Console:
        console = Console(**settings)
        await test(console)
        await console.http.aclose()
        console.access.close()
        return console

    return asyncio.run(main())


def test_a_replay_takes_its_runs_place_once_it_has_caught_up(tmp_path: Path) -> None:
    run_home(tmp_path, replayed=10)

    async def test(console: Console) -> None:
        refused = await console.post("/pipelines/shop", "/promote-replay/v2", confirm="v2")
        assert refused.status_code == 400
        done = await console.post("/pipelines/shop", "/promote-replay/v2", confirm="shop")
        assert done.headers["location"].startswith("/pipelines/shop?")
        assert "start it again" in (await console.http.get(done.headers["location"])).text

    console = run(test, home=tmp_path, promotes=True)
    assert find_run(tmp_path, "shop").read().flows["copies"].output == "topic copies-v2"
    assert [(line["api"], line["outcome"]) for line in console.lines] == [
        ("PROMOTE", "begun"),
        ("PROMOTE", "succeeded"),
    ]


def test_a_replay_that_is_behind_stays_where_it_is(tmp_path: Path) -> None:
    run_home(tmp_path)

    async def test(console: Console) -> None:
        refused = await console.post("/pipelines/shop", "/promote-replay/v2", confirm="shop")
        assert refused.status_code == 409
        assert "4 records of topic &#39;orders&#39; behind" in refused.text

    console = run(test, home=tmp_path, promotes=True)
    assert console.lines[-1]["outcome"] == "failed"
    assert find_run(tmp_path, "v2").read().promoted_to is None


@pytest.mark.parametrize(("changes", "promotes"), [(True, False), (False, True)])
def test_nothing_is_promoted_where_that_was_not_meant(tmp_path: Path, changes: bool, promotes: bool) -> None:
    run_home(tmp_path, replayed=10)

    async def test(console: Console) -> None:
        assert "Promote v2" not in (await console.http.get("/pipelines/shop")).text
        refused = await console.post("/new-connector/0", "/promote-replay/v2", confirm="shop")
        assert refused.status_code == 403

    with fake_connect() as fake:
        run(test, home=tmp_path, changes=changes, promotes=promotes, workers=(WorkerAddress(fake.url),))
    assert find_run(tmp_path, "v2").read().promoted_to is None


def test_pages_without_a_home_a_worker_or_a_cluster_are_sentences(tmp_path: Path) -> None:
    async def test(console: Console) -> None:
        assert "no Connect cluster" in (await console.http.get("/connectors")).text
        assert (await console.http.get("/pipelines")).status_code == 404

    run(test)

    async def test_home(console: Console) -> None:
        page = (await console.http.get("/pipelines")).text
        assert "Nothing has run" in page
        assert "does not show its groups" in page

    run(test_home, home=tmp_path)


def test_a_console_that_only_reads_orders_no_worker_about() -> None:
    async def test(console: Console) -> None:
        page = (await console.http.get("/connectors/0/orders")).text
        assert "<form" not in page.split("<main")[1]
        assert (await console.http.get("/edit-connector/0/orders")).status_code == 403
        for path in ("order", "reset", "delete", "edit", "check"):
            answer = await console.http.post(f"/{path}-connector/0/orders", data={"order": "stop"}, headers=ORIGIN)
            assert answer.status_code in (403, 404), path

    with fake_connect() as fake:
        run(test, changes=False, workers=(WorkerAddress(fake.url),))
        assert {method for method, _, _ in fake.asked} == {"GET"}


def test_a_secret_that_was_not_shown_is_not_lost_and_a_worker_away_changes_nothing() -> None:
    async def test(console: Console) -> None:
        form = {"config": "connector.class=x\ndb.pin=[hidden]\ndb.password=[hidden]\nnew=1"}
        done = await console.post("/edit-connector/0/orders", "/edit-connector/0/orders", **form)
        assert done.status_code == 303
        away = await console.post("/new-connector/0", "/edit-connector/1/orders", **form)
        assert away.status_code == 400
        assert "No worker answers" in away.text
        typo = await console.post("/new-connector/0", "/new-connector/0", name="x", config="no equals")
        assert (typo.status_code, "line 1 is not name=value" in typo.text) == (400, True)
        unknown = await console.post("/new-connector/0", "/order-connector/0/orders", order="explode")
        assert unknown.status_code == 400

    with fake_connect() as fake:
        console = run(test, workers=(WorkerAddress(fake.url), WorkerAddress("127.0.0.1:1")))
        assert fake.configs["orders"]["db.pin"] == "1234"
        assert fake.configs["orders"]["new"] == "1"
    assert "hunter2" not in str(console.lines)
    assert [line["api"] for line in console.lines] == ["ALTER_CONNECTOR"] * 2


def test_offsets_of_a_connector_are_edited_as_json() -> None:
    async def test(console: Console) -> None:
        page = (await console.http.get("/connectors/0/orders")).text
        shown = html.unescape(page.split("<textarea")[1].split(">", 1)[1].split("</textarea>")[0])
        assert json.loads(shown) == [{"partition": {"table": "orders"}, "offset": {"id": 7}}]
        form = {"confirm": "orders", "offsets": shown.replace("7", "3")}
        assert (await console.post("/new-connector/0", "/move-connector/0/orders", **form)).status_code == 303
        for wrong in ("{", "{}", "[1]"):
            refused = await console.post(
                "/new-connector/0", "/move-connector/0/orders", confirm="orders", offsets=wrong
            )
            assert refused.status_code == 400

    with fake_connect() as fake:
        run(test, workers=(WorkerAddress(fake.url),))
        (sent,) = (body for method, _, body in fake.asked if method == "PATCH")
        assert sent == {"offsets": [{"partition": {"table": "orders"}, "offset": {"id": 3}}]}


def test_masks_cover_reasons_which_may_name_values() -> None:
    async def test(console: Console) -> None:
        for path in ("/connectors", "/connectors/0/orders"):
            assert REASON in (await console.http.get(path)).text
        console.everybody.masks = parse_masks(["value.card"])
        for path in ("/connectors", "/connectors/0/orders"):
            page = (await console.http.get(path)).text
            assert (REASON in page, MASKED in page) == (False, True), path

    with fake_connect() as fake:
        run(test, workers=(WorkerAddress(fake.url),))


def test_outputs_are_compared_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = {"equal": 3, "only_in_a": 0, "only_in_b": 1, "differing": 0, "columns": {}}
    answer = {"flows": {"copies": {**flow, "examples": [{"key": "k", "in_a": [], "in_b": ["<b>new</b>"]}]}}}
    program = f"print({json.dumps(answer)!r})"
    monkeypatch.setattr(diffs, "ottla_command", lambda *_: [sys.executable, "-c", program])
    run_home(tmp_path)

    async def test(console: Console) -> None:
        refused = await console.post("/pipelines/shop", "/compare-runs/v2/shop")
        assert refused.status_code == 404
        done = await console.post("/pipelines/shop", "/compare-runs/shop/v2")
        assert done.status_code == 303
        async with asyncio.timeout(20):
            while "Examples of copies" not in (page := (await console.http.get("/pipelines/shop")).text):
                await asyncio.sleep(0.05)
        assert "&lt;b&gt;new&lt;/b&gt;" in page
        console.everybody.masks = parse_masks(["value.card"])
        masked = (await console.http.get("/pipelines/shop")).text
        assert "Only in v2" in masked
        assert "&lt;b&gt;new&lt;/b&gt;" not in masked

    console = run(test, home=tmp_path)
    assert [line["api"] for line in console.lines] == ["COMPARE"] * 2


@pytest.mark.parametrize("path", ["/new-connector/{}", "/topics/t/records/{}/0", "/topics/t/records/0/{}"])
def test_a_number_of_thousands_of_digits_is_no_address(path: str) -> None:
    async def ask() -> int:
        return (await Console().http.get(path.format("9" * 5_000))).status_code

    assert asyncio.run(ask()) == 404


@pytest.mark.parametrize("value", ["\N{SUPERSCRIPT TWO}", "9" * 5_000, "-1", "x", None])
def test_what_a_value_of_a_setting_loses_is_not_counted_if_it_is_no_number(value: str | None) -> None:
    actions = TopicActions(Shell(Console().access))
    view = cast(ClusterView, View("h:1", {}))
    assert asyncio.run(actions._setting_loss(view, "t", [], "retention.bytes", value)) == ""
