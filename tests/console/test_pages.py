"""Transactions, the cluster, figures over time, connectors and pipelines in a real browser: by clicks and keys, with
hostile names, without barriers."""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, expect
from tests.support.console_process import Console
from tests.support.eventually import eventually
from tests.support.fake_connect import PLUGIN, FakeConnect, fake_connect
from tests.support.ottla_process import OttlaProcess
from tests.support.run_homes import run_home

SCRIPT: Final = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
ID: Final = f"pays {SCRIPT}/../?a=1#b"
CONNECTOR: Final = f"odd {SCRIPT}/../?a=1#b"
LETTERS: Final = "shop.dead-letters"


class Shown(NamedTuple):
    """What the console shows."""

    broker: OttlaProcess
    connect: FakeConnect
    console: Console


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    home = tmp_path_factory.mktemp("home")
    run_home(home, LETTERS)
    with OttlaProcess() as broker, fake_connect() as connect:
        _fill(broker.bootstrap)
        connect.configs[CONNECTOR] = {"connector.class": PLUGIN, "topics": SCRIPT}
        connect.states[CONNECTOR] = ["PAUSED"]
        options = ("--connect", connect.url, "--connect", "127.0.0.1:1", "--pipelines", str(home))
        console = Console(broker.bootstrap, *options, "--audit-log", str(home / "audit.jsonl"))
        yield Shown(broker, connect, console)
        console.close()


def _fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic("orders", 2, 1, config={"max.message.bytes": "2000000"}), NewTopic("copies", 1, 1)]
    for created in admin.create_topics([*topics, NewTopic(LETTERS, 1, 1)]).values():
        created.result(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "waits", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    consumer.close()
    letters = Producer({"bootstrap.servers": bootstrap})
    said = {
        "reason": f"odd {SCRIPT}",
        "topic": "copies",
        "partition": "0",
        "timestamp": "1",
        "job": "shop",
        "view": "x",
    }
    for offset in range(5):
        every = {**said, "offset": str(offset)}
        headers: list[tuple[str, str | bytes | None]] = [(f"ottla.dead-letter.{name}", every[name]) for name in every]
        letters.produce(LETTERS, b"row", headers=headers)
    assert letters.flush(20) == 0


@pytest.fixture(scope="module")
def opened(shown: Shown) -> Iterator[None]:
    """A transaction that is open: three records of it, and the group that waits for them."""
    producer = Producer(
        {"bootstrap.servers": shown.broker.bootstrap, "transactional.id": ID, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(3):
        producer.produce("orders", b"held back", partition=0)
    assert producer.flush(20) == 0
    yield
    producer.abort_transaction(20)


@pytest.fixture
def page(browser: Browser, shown: Shown) -> Iterator[Page]:
    """A page whose console stays empty, which runs no script of a name, and asks no other host."""
    url = shown.console.url
    opened = browser.new_page(base_url=url, viewport={"width": 1100, "height": 700})
    problems: list[str] = []
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda asked: problems.append(asked.url) if not asked.url.startswith(url) else None)
    yield opened
    assert not opened.evaluate("window.hacked")
    assert problems == []
    opened.close()


@pytest.mark.usefixtures("opened")
def test_what_a_transaction_holds_back_and_from_whom(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("x")
    page.get_by_role("link", name="pays").click()
    expect(page.locator("h1")).to_have_text(ID)
    expect(page.get_by_role("region", name="What it holds back")).to_contain_text("3")
    page.get_by_role("link", name="waits").click()
    expect(page.locator("figure", has_text="Lag in records")).to_be_visible()


def test_settings_are_compared_with_the_defaults_and_with_another_topic(page: Page) -> None:
    page.goto("/topics/orders")
    page.get_by_role("link", name="Compare settings").click()
    expect(page.locator("tr.differs")).to_have_count(1)
    expect(page.locator("tr.differs")).to_contain_text("1048588")
    page.get_by_label("Compare with topic").fill("copies")
    page.keyboard.press("Enter")
    expect(page.locator("thead")).to_contain_text("copies")
    expect(page.locator("tr.differs")).to_contain_text("max.message.bytes")


def test_a_failed_task_is_seen_first_and_restarted(page: Page, shown: Shown) -> None:
    shown.connect.states["orders"][2] = "FAILED"
    page.goto("/connectors")
    rows = page.locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("orders")
    expect(rows.nth(1)).to_contain_text("no login")
    expect(page.get_by_role("alert")).to_contain_text("No worker answers at http://127.0.0.1:1")
    page.get_by_role("link", name="orders").click()
    expect(page.locator("main")).not_to_contain_text("hunter2")
    page.get_by_role("button", name="Restart what has failed").click()
    expect(page.get_by_role("status").first).to_contain_text("restarted")
    assert shown.connect.states["orders"] == ["RUNNING"] * 3


def test_a_configuration_is_checked_while_it_is_typed_and_keeps_its_secrets(page: Page, shown: Shown) -> None:
    page.goto("/connectors/0/orders")
    page.get_by_role("link", name="Change the configuration").click()
    form = page.locator("textarea")
    assert "hunter2" not in form.input_value()
    form.press("Control+End")
    form.press_sequentially("db.url=elsewhere")
    expect(page.locator("#checked")).to_contain_text("1 setting is not right")
    expect(page.get_by_role("region", name="Not right")).to_contain_text("Invalid value elsewhere")
    form.fill(form.input_value().replace("elsewhere", "jdbc:here"))
    expect(page.locator("#checked")).to_contain_text("The configuration is right")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("status").first).to_contain_text("changed")
    config = shown.connect.configs["orders"]
    assert (config["db.url"], config["db.pin"], config["db.password"]) == ("jdbc:here", "1234", "hunter2")


def test_a_connector_with_a_hostile_name_is_deleted_by_its_name(page: Page, shown: Shown) -> None:
    page.goto("/connectors")
    page.get_by_role("link", name="odd").click()
    expect(page.locator("h1")).to_have_text(CONNECTOR)
    form = page.locator("form", has=page.get_by_role("button", name="Delete"))
    form.get_by_role("textbox").fill(CONNECTOR)
    form.get_by_role("button").click()
    page.wait_for_url("**/connectors?*")
    assert CONNECTOR not in shown.connect.configs


def test_dead_letters_go_back_and_a_replay_stands_beside_its_run(page: Page, shown: Shown) -> None:
    page.goto("/pipelines")
    page.get_by_role("link", name="shop", exact=True).click()
    expect(page.get_by_role("region", name="v2 beside shop")).to_contain_text("topic copies-v2")
    expect(page.get_by_role("button", name="Promote")).to_be_visible()
    page.get_by_role("link", name=f"Dead letters in {LETTERS}").click()
    expect(page.locator("tbody tr")).to_contain_text(f"odd {SCRIPT}")
    page.get_by_label("leave those").uncheck()
    page.get_by_role("button", name="Redrive").click()
    expect(page.locator("main")).to_contain_text("The redrive has sent 5 letters")
    consumer = Consumer({"bootstrap.servers": shown.broker.bootstrap, "group.id": "counts"})
    assert eventually(lambda: consumer.get_watermark_offsets(TopicPartition("copies", 0), timeout=10)[1] >= 5)
    consumer.close()


PATHS: Final = (
    "/transactions",
    f"/transactions/{quote(ID, safe='')}",
    "/cluster",
    "/security",
    "/topics/orders/compare",
    "/topics/orders/size",
    "/connectors",
    "/connectors/0/archive",
    "/new-connector/0",
    "/pipelines",
    "/pipelines/shop",
    f"/pipelines/shop/letters/{LETTERS}",
)


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize(
    ("theme", "paths"),
    [("light", PATHS), ("dark", ("/hanging-transactions", "/groups/waits", "/connectors", "/pipelines/shop"))],
)
def test_no_rule_of_accessibility_is_broken(
    page: Page, theme: Literal["light", "dark"], paths: tuple[str, ...]
) -> None:
    page.emulate_media(color_scheme=theme)
    for path in paths:
        page.goto(path)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{path}: {found.generate_report()}"


@pytest.mark.usefixtures("opened")
def test_narrow_screens_scroll_tables_only(browser: Browser, shown: Shown) -> None:
    with browser.new_page(base_url=shown.console.url, viewport={"width": 360, "height": 640}) as narrow:
        for path in PATHS:
            narrow.goto(path)
            assert narrow.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_a_form_without_the_token_orders_nothing(shown: Shown) -> None:
    before = len(shown.connect.asked)
    for path in ("order-connector/0/archive", "delete-connector/0/archive", "new-connector/0", "check-connector/0"):
        assert shown.console.status(f"/{path}", "POST", Origin=shown.console.url) in (403, 415)
    assert shown.console.status("/promote-replay/v2", "POST", Origin="http://elsewhere.example") == 403
    assert len(shown.connect.asked) == before
