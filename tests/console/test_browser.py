"""The console in a real browser, by clicks and keys, with a real broker: pages, hostile contents, accessibility."""

import base64
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, expect
from tests.support.console_process import Console
from tests.support.ottla_process import OttlaProcess
from tests.support.schema_registry import SchemaRegistry
from tests.unit.pipeline.rows.flight_proto import a_flight, file
from tools.docs.markdown import ROOT

from ottla.registry.client import frame
from ottla.registry.protobuf import WELL_KNOWN

SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
GROUP = f"kitchen {SCRIPT}/../?a=1#b"
RECORDS = 300
BEGAN_MS = 1_700_000_000_000
DEPARTURES = (
    ("UA", 1545, "EWR", "IAH", 2),
    ("UA", 1714, "LGA", "IAH", 4),
    ("AA", 1141, "JFK", "MIA", 2),
    ("B6", 725, "JFK", "BQN", -1),
    ("DL", 461, "LGA", "ATL", -6),
    ("UA", 1696, "EWR", "ORD", -4),
    ("B6", 507, "EWR", "FLL", -5),
    ("EV", 5708, "LGA", "IAD", -3),
    ("B6", 709, "LGA", "FLL", 1),
    ("MQ", 4576, "LGA", "CLT", 101),
    ("UA", 1152, "EWR", "RSW", 8),
    ("US", 1019, "EWR", "CLT", 11),
    ("B6", 343, "EWR", "PBI", 24),
    ("AA", 1895, "EWR", "MIA", 13),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[OttlaProcess]:
    with OttlaProcess() as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        topics = [
            NewTopic("orders", 3, 1),
            NewTopic("states", 3, 1),
            NewTopic("flights", 1, 1),
            NewTopic("departures", 1, 1),
            *(NewTopic(f"many-{number:03}", 1, 1) for number in range(60)),
        ]
        for created in admin.create_topics(topics).values():
            created.result(30)
        producer = Producer({"bootstrap.servers": started.bootstrap, "partitioner": "murmur2_random"})
        for number in range(RECORDS):
            value = json.dumps({"id": number, "amount": number * 7, "note": SCRIPT})
            producer.produce("orders", value, f"k{number}", headers={"source": SCRIPT}, timestamp=BEGAN_MS + number)
        for number in range(50):
            producer.produce("states", json.dumps({"n": number, "by": "=1+1"}), f"s{number % 10}")
        assert producer.flush(20) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": started.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["orders"])
        assert len(consumer.consume(100, 20)) == 100
        consumer.commit(offsets=[TopicPartition("orders", number, 10) for number in range(3)], asynchronous=False)
        consumer.close()
        yield started


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry(user="ann:secret") as started:
        yield started


@pytest.fixture(scope="module")
def console(
    broker: OttlaProcess, registry: SchemaRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    directory = tmp_path_factory.mktemp("console")
    config = directory / "registry.properties"
    config.write_text("basic.auth.user.info=ann:secret\n")
    options = ("--registry", registry.url, "--registry-config", str(config), "--audit-log", str(directory / "audit"))
    started = Console(broker.bootstrap, *options)
    yield started
    started.close()


@pytest.fixture
def page(browser: Browser, console: Console) -> Iterator[Page]:
    """A page whose console stays empty, which runs no script of a record, and asks no other host."""
    opened = browser.new_page(base_url=console.url, viewport={"width": 1100, "height": 560})
    problems: list[str] = []
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda asked: problems.append(asked.url) if not asked.url.startswith(console.url) else None)
    yield opened
    assert not opened.evaluate("window.hacked")
    assert problems == []
    opened.close()


def test_from_the_overview_to_a_record_by_clicks(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".findings")).to_be_visible()
    expect(page.locator(".findings .bad")).to_have_count(0)  # the disks of this machine may be nearly full
    page.get_by_role("link", name="Topics").click()
    page.get_by_label("Name contains").fill("ORD")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Records of orders").click()
    expect(page.locator("#found tbody tr")).to_have_count(100)
    expect(page.locator("#found tbody tr").first).to_contain_text(f"k{RECORDS - 1}")
    page.get_by_label("Filter").fill("value.id >= 290 and value.id % 2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("is not allowed in a filter")
    page.get_by_label("Filter").fill("value.id >= 290 and 'script' in value.note")
    page.keyboard.press("Enter")
    expect(page.locator("#found tbody tr")).to_have_count(10)
    expect(page.locator("#found")).to_contain_text("300 of 300 offsets looked at")
    address = page.url
    page.locator("#found tbody tr a").first.click()
    expect(page.locator("pre").nth(1)).to_contain_text('"id": 299')
    expect(page.locator("table")).to_contain_text("window.hacked")
    page.goto(address)  # a permanent link
    expect(page.locator("#found tbody tr")).to_have_count(10)


def test_the_picture_in_the_readme(page: Page, broker: OttlaProcess) -> None:
    """Flights in place of hostile records; `OTTLA_SCREENSHOTS=1` takes the picture."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, (carrier, flight, origin, dest, delay) in enumerate(DEPARTURES):
        value = {"carrier": carrier, "flight": flight, "origin": origin, "dest": dest, "dep_delay": delay}
        producer.produce(
            "departures",
            json.dumps(value),
            f"{carrier}{flight}",
            headers={"source": "nycflights13"},
            timestamp=1_357_034_400_000 + number * 240_000,
        )
    assert producer.flush(20) == 0
    page.goto("/topics/departures/records?filter=value.dep_delay+>+0")
    expect(page.locator("#found tbody tr")).to_have_count(sum(delay > 0 for *_, delay in DEPARTURES))
    if os.environ.get("OTTLA_SCREENSHOTS"):
        page.screenshot(path=ROOT / "docs/console.png")


def test_records_from_an_offset_a_time_and_the_beginning(page: Page) -> None:
    page.goto("/topics/orders/records?from=oldest&most=5")
    expect(page.locator("#found tbody tr")).to_have_count(5)
    page.goto("/topics/orders/records?from=offset&partition=1&offset=10&most=3")
    expect(page.locator("#found tbody tr td:nth-child(3)")).to_have_text(["10", "11", "12"])
    page.goto(f"/topics/orders/records?from=time&time={quote('2023-11-14T22:13:20.295+00:00')}")
    expect(page.locator("#found tbody tr")).to_have_count(5)
    page.goto("/topics/orders/records?from=time&time=2099-01-01")
    expect(page.locator("#found")).to_contain_text("0 records")


def test_the_latest_of_each_key_in_chosen_columns_and_files(page: Page, broker: OttlaProcess) -> None:
    page.goto("/topics/states/records")
    page.locator("select[name=from]").select_option("latest")
    page.get_by_label("Columns").fill("key, value.n, value.by")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_contain_text("10 keys")
    expect(page.locator("#found th")).to_have_text(["Time", "Partition", "Offset", "key", "value.n", "value.by"])
    numbers = {int(each) for each in page.locator("#found tbody td:nth-child(5)").all_inner_texts()}
    assert numbers == set(range(40, 50))
    with page.expect_download() as downloading:
        page.get_by_role("link", name="CSV").first.click()
    assert downloading.value.suggested_filename == "states.csv"
    rows = list(csv.reader(Path(downloading.value.path()).read_text().splitlines()))
    assert rows[0] == ["time", "partition", "offset", "key", "value.n", "value.by"]
    assert {(row[3], int(row[4]), row[5]) for row in rows[1:]} == {(f"s{n % 10}", n, "'=1+1") for n in range(40, 50)}
    page.get_by_role("link", name="Permanent link").click()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    producer.produce("states", json.dumps({"n": 60, "by": "later"}), "s0")
    assert producer.flush(20) == 0
    page.reload()
    expect(page.locator("#found")).to_contain_text("10 keys")
    expect(page.locator("#found")).not_to_contain_text("later")


def test_a_key_is_looked_up_where_it_is_placed(page: Page) -> None:
    page.goto("/topics/orders/records")
    page.get_by_text("Look up a key").click()
    page.locator("select[name=look]").select_option("key")
    page.get_by_label("Text").fill("k7")
    page.keyboard.press("Enter")
    expect(page.locator("#found tbody tr")).to_have_count(1)
    expect(page.locator("#found")).to_contain_text("Kafka's default partitioner puts this key among 3 partitions")
    page.get_by_role("link", name="Look at all partitions").click()
    expect(page.locator("#found")).to_contain_text("300 of 300 offsets looked at")
    expect(page.locator("#found tbody tr")).to_have_count(1)
    page.goto("/topics/orders/records?look=header&header=source&for=none")
    expect(page.locator("#found")).to_contain_text("0 records, 300 of 300 offsets")


def test_records_are_shown_as_they_come(page: Page, broker: OttlaProcess) -> None:
    page.goto("/topics/many-001/records?from=live&filter=value.n>=100&columns=value.n")
    expect(page.locator("#found")).to_contain_text("Live: 0 of")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in (1, 100, 2, 101):
        producer.produce("many-001", json.dumps({"n": number}), "live", partition=0)
    assert producer.flush(20) == 0
    expect(page.locator("#found tbody td:nth-child(4)")).to_have_text(["101", "100"])


def test_values_are_decoded_by_their_schemas(page: Page, broker: OttlaProcess, registry: SchemaRegistry) -> None:
    leg = {"type": "record", "name": "Leg", "fields": [{"name": "to", "type": "string"}]}
    avro = registry.register("flights-value", {"schema": json.dumps(leg)})
    described = base64.b64encode(file().SerializeToString()).decode()
    references = []
    for number, name in enumerate(file().dependency):
        text = base64.b64encode(WELL_KNOWN[name]).decode()
        registry.register(name, {"schema": text, "schemaType": "PROTOBUF", "references": []})
        references.append({"name": name, "subject": name, "version": 1})
        assert number < 3
    schema = {"schema": described, "schemaType": "PROTOBUF", "references": references}
    protobuf = registry.register("flights-key", schema)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("flights", frame(avro) + b"\x06JFK")
    producer.produce("flights", frame(protobuf) + b"\x02\x02" + a_flight().SerializeToString())
    producer.produce("flights", frame(99) + b"?")
    assert producer.flush(20) == 0
    page.goto("/topics/flights/records?filter=value.to=='JFK'+or+value.legs[0].to=='JFK'&columns=value.to,value.kind")
    expect(page.locator("#found tbody tr")).to_have_count(2)
    expect(page.locator("#found")).to_contain_text("JFK")
    expect(page.locator("#found tbody tr").first).to_contain_text("B")
    page.goto("/topics/flights/records")
    expect(page.locator("#found")).to_contain_text("the registry has no schema 99")
    page.goto("/topics/flights/records/0/0")
    expect(page.locator("main")).to_contain_text(f"Schema {avro}")
    expect(page.locator("main")).to_contain_text("It goes after")


def test_a_record_is_written_and_written_again(page: Page) -> None:
    page.goto("/topics/many-002")
    page.get_by_role("link", name="Write a record").click()
    page.get_by_label("Partition").fill("0")
    page.get_by_label("Key", exact=True).fill("<b>key</b>")
    page.get_by_label("Value", exact=True).fill("a text")
    page.get_by_label("Headers").fill("source: form")
    page.get_by_role("button", name="Write the record").click()
    expect(page.get_by_role("status")).to_contain_text("written to partition 0, at offset")
    expect(page.locator("pre").first).to_have_text("<b>key</b>")
    address = page.url
    page.get_by_role("button", name="Produce again").click()
    expect(page.get_by_role("status")).to_contain_text("written to partition 0, at offset")
    assert page.url != address
    expect(page.locator("table")).to_contain_text("form")


def test_a_group_with_a_hostile_name_shows_its_lag_and_why_it_rebalanced(page: Page) -> None:
    page.goto("/groups")
    page.get_by_role("link", name="kitchen").click()
    expect(page.locator("h1")).to_have_text(GROUP)
    expect(page.locator(".counts")).to_contain_text(str(RECORDS - 30))
    expect(page.locator(".history li").last).to_contain_text("joins")


def test_a_topic_is_created_changed_and_deleted_by_its_name(page: Page, broker: OttlaProcess) -> None:
    page.goto("/topics")
    page.get_by_role("link", name="Create a topic").click()
    page.get_by_label("Name").fill("fleeting")
    page.get_by_label("Settings").fill("retention.ms=86400000")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_have_text("Topic fleeting has been created.")
    page.get_by_role("link", name="Add partitions").click()
    page.get_by_label("Partitions in all").fill("4")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("fleeting has 4 partitions now.")
    page.get_by_role("link", name="Change a setting").click()
    page.get_by_role("link", name="retention.ms", exact=True).click()
    page.get_by_label("New value").fill("60000")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("main")).to_contain_text("Records can be lost")
    page.get_by_label("To confirm").fill("fleeting")
    page.get_by_role("button", name="Change it").click()
    expect(page.get_by_role("status")).to_have_text("retention.ms of fleeting is 60000 now.")
    page.get_by_role("link", name="Delete").click()
    expect(page.locator("main")).to_contain_text("0 records in 4 partitions will be lost for good")
    page.get_by_role("button", name="Delete the topic").click()  # the browser asks for the name
    expect(page.get_by_label("To confirm")).to_be_focused()
    page.get_by_label("To confirm").fill("fleeting")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Topic fleeting has been deleted")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert "fleeting" not in admin.list_topics(timeout=10).topics


def test_a_seek_shows_where_each_position_goes(page: Page) -> None:
    page.goto(f"/groups/{quote(GROUP, safe='')}")
    page.get_by_role("link", name="Move its positions").click()
    page.locator("select[name=to]").select_option("earliest")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("main")).to_contain_text(f"The lag goes from {RECORDS - 30} to {RECORDS}.")
    expect(page.get_by_role("button", name="Move the positions")).to_be_visible()


def test_lists_are_paged_and_keys_lead_everywhere(page: Page) -> None:
    page.goto("/topics?q=many-")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Next page").click()
    expect(page.locator("tbody tr")).to_have_count(10)
    page.keyboard.press("/")
    expect(page.get_by_label("Name contains")).to_be_focused()
    page.keyboard.press("Escape")
    page.locator("main").focus()
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.wait_for_url("**/groups")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url("**/")


def test_a_page_shows_what_changes(page: Page, broker: OttlaProcess) -> None:
    page.goto("/topics?q=appears")
    expect(page.locator("main")).to_contain_text("No topic matches")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("appears", 1, 1)])["appears"].result(20)
    expect(page.locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize(
    ("theme", "paths"),
    [
        (
            "light",
            (
                "/",
                "/topics",
                "/topics/orders",
                "/topics/orders/records/0/0",
                "/topics/orders/produce",
                f"/groups/{quote(GROUP, safe='')}",
            ),
        ),
        ("dark", ("/groups", "/topics/orders/records")),
        (
            "light",
            (
                "/create-topic",
                "/topics/orders/settings?name=retention.ms&value=1",
                "/topics/orders/trim?before=end",
                f"/seek-group/{quote(GROUP, safe='')}?to=latest",
            ),
        ),
    ],
)
def test_no_rule_of_accessibility_is_broken(
    page: Page, theme: Literal["light", "dark"], paths: tuple[str, ...]
) -> None:
    page.emulate_media(color_scheme=theme)
    for path in paths:
        page.goto(path)
        if path.endswith("/records"):
            expect(page.locator("#found tbody tr").first).to_be_visible()
        found = Axe().run(page)
        assert found.violations_count == 0, f"{path}: {found.generate_report()}"


def test_narrow_screens_scroll_tables_only(browser: Browser, console: Console) -> None:
    with browser.new_page(base_url=console.url, viewport={"width": 360, "height": 640}) as narrow:
        for path in ("/", "/topics/orders", "/topics/orders/records"):
            narrow.goto(path)
            assert narrow.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_page_is_small(console: Console) -> None:
    weight = sum(len(console.body(path)) for path in ("/topics", "/static/console.css", "/static/console.js"))
    assert weight < 150_000


def test_it_only_reads_and_answers_to_local_names_alone(console: Console) -> None:
    assert console.status("/", "POST") == 403
    assert console.status("/topics/orders", "DELETE") == 405
    assert console.status("/", Host="rebound.example") == 403
    assert console.status("/", Host="192.168.0.7:8080") == 403
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert console.status("/topics/orders/records/search", **foreign, **{"Sec-Fetch-Mode": "no-cors"}) == 403
    assert console.status("/topics", **foreign, **{"Sec-Fetch-Mode": "navigate"}) == 200
    assert console.status("/topics/nowhere") == 404
    assert console.status("/topics/..%2f..%2fetc/records") == 404
    assert console.status("/static/..%2fapp.py") == 404
    assert console.status("/topics/orders/records/search?filter=" + quote("__import__('os')")) == 400
    assert console.status("/topics/orders/records/search?offset=x&from=offset") == 400
    assert console.status("/topics/orders/records/99/0") == 404
    assert console.status("/topics?page=99999999999999999999") == 200


def test_it_listens_on_this_machine_only(broker: OttlaProcess) -> None:
    ottla = Path(sys.executable).with_name("ottla")
    refused = subprocess.run(
        [ottla, "console", "--host", "0.0.0.0", "--port", "0", "--bootstrap", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 1
    assert "without a login the console listens on this machine only" in refused.stderr
