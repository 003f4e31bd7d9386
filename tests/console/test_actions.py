"""Logins and actions of `ottla console` at a broker with users and rules: done, previewed, refused, and noted."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from playwright.sync_api import Browser, expect
from tests.support.console_process import Console
from tests.support.eventually import eventually
from tests.support.guarded_broker import ALL, GROUP, allow, client, guarded, rule

PROTECTED = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN")
SCRIPT = "<script>window.hacked = 1</script>"


class Users:
    """A console with a login, and a client for each user of it."""

    def __init__(self, address: str, audit: Path) -> None:
        self.address, self._audit = address, audit
        self.console = Console(
            address,
            *PROTECTED,
            "--login",
            *("--role", "admin=admin", "--role", "alice=editor"),
            *("--mask", "value.card,headers.token"),
            *("--audit-log", str(audit)),
        )
        self._clients: dict[str, httpx.Client] = {}

    def client(self, user: str) -> httpx.Client:
        """Logged in, once."""
        if user not in self._clients:
            headers = {"Origin": self.console.url}
            found = self._clients[user] = httpx.Client(base_url=self.console.url, headers=headers, timeout=20)
            answer = found.post("/login", data={"user": user, "password": user})
            assert answer.status_code == 303, answer.text
        return self._clients[user]

    def get(self, user: str, path: str, **query: str) -> str:
        answer = self.client(user).get(path, params=query or None)
        assert answer.status_code == 200, answer.text
        return answer.text

    def post(self, user: str, path: str, **form: str) -> httpx.Response:
        """Send a form with the token of the user's session."""
        token = re.search(r'name="csrf" value="([^"]+)"', self.get(user, "/topics"))
        assert token is not None
        return self.client(user).post(path, data={"csrf": token[1], **form})

    def done(self, user: str, path: str, **form: str) -> str:
        """The sentence that the next page shows."""
        answer = self.post(user, path, **form)
        assert answer.status_code == 303, answer.text
        page = self.get(user, answer.headers["location"])
        notice = re.search(r'role="status">([^<]+)<', page)
        assert notice is not None, page
        assert notice[1] not in self.get(user, answer.headers["location"])  # shown once
        return html.unescape(notice[1])

    def events(self, **wanted: Any) -> list[dict[str, Any]]:
        lines = map(json.loads, self._audit.read_text().splitlines())
        return [line for line in lines if wanted.items() <= line.items()]

    def close(self) -> None:
        for each in self._clients.values():
            each.close()
        self.console.close()


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    with guarded() as (_, address):
        allow(
            address,
            rule("alice", ALL, "*"),
            rule("alice", ALL, "*", GROUP),
            rule("bob", ALL, "masked"),
            rule("bob", ALL, "kept"),
        )
        running = Users(address, tmp_path_factory.mktemp("console") / "audit.log")
        yield running
        running.close()


@pytest.fixture(scope="module")
def admin(users: Users) -> AdminClient:
    return AdminClient(client(users.address, "admin"))


def make(admin: AdminClient, users: Users, topic: str, records: int = 0) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    producer = Producer(client(users.address, "admin"))
    for number in range(records):
        producer.produce(topic, f"{number}".encode() * 10, timestamp=1_700_000_000_000 + number)
    assert producer.flush(20) == 0


def test_the_life_of_a_topic(users: Users, admin: AdminClient) -> None:
    created = users.done("alice", "/create-topic", name="life", partitions="2", settings="retention.ms=86400000\n")
    assert created == "Topic life has been created."
    assert users.done("alice", "/topics/life/partitions", count="3") == "life has 3 partitions now."
    assert len(admin.list_topics(timeout=10).topics["life"].partitions) == 3
    kept = users.get("alice", "/topics/life/settings", name="retention.ms", value="172800000")
    assert "can be lost:" not in kept
    users.done("alice", "/topics/life/settings", name="retention.ms", value="172800000")
    less = users.get("alice", "/topics/life/settings", name="retention.ms", value="1000")
    assert "Records can be lost" in less
    assert "takes the role admin" in less
    assert users.post("alice", "/topics/life/settings", name="retention.ms", value="1000").status_code == 403
    assert users.post("admin", "/topics/life/settings", name="retention.ms", value="1000").status_code == 400
    users.done("admin", "/topics/life/settings", name="retention.ms", value="1000", confirm="life")
    assert eventually(lambda: "<td>1000</td>" in users.get("admin", "/topics/life"))
    assert users.post("alice", "/topics/life/delete", confirm="life").status_code == 403
    assert users.post("admin", "/topics/life/delete", confirm="Life").status_code == 400
    assert users.done("admin", "/topics/life/delete", confirm="life") == "Topic life has been deleted, with 0 records."
    assert "life" not in admin.list_topics(timeout=10).topics
    changes = [
        (each["api"], each["principal"], each["outcome"]) for each in users.events(event="change", resource="life")
    ]
    assert changes == [
        (api, principal, outcome)
        for api, principal in (
            ("CREATE_TOPICS", "User:alice"),
            ("CREATE_PARTITIONS", "User:alice"),
            ("INCREMENTAL_ALTER_CONFIGS", "User:alice"),
            ("INCREMENTAL_ALTER_CONFIGS", "User:admin"),
            ("DELETE_TOPICS", "User:admin"),
        )
        for outcome in ("begun", "succeeded")
    ]
    refused = users.events(event="refusal", principal="User:alice", api="POST /topics/life/delete")
    assert [each["reason"] for each in refused] == ["this takes the role admin"]


def test_trimming_loses_what_was_previewed(users: Users, admin: AdminClient) -> None:
    make(admin, users, "trimmed", 100)
    page = users.get("admin", "/topics/trimmed/trim", before="time", time="2023-11-14T22:13:20.040Z")
    assert "40 records (about" in page
    offsets = re.search(r'name="offsets" value="([^"]+)"', page)
    assert offsets is not None
    assert offsets[1] == "trimmed:0:40"
    assert users.post("admin", "/topics/trimmed/trim", offsets=offsets[1]).status_code == 400
    assert users.post("admin", "/topics/trimmed/trim", offsets="other:0:40", confirm="trimmed").status_code == 400
    assert "40 records" in users.done("admin", "/topics/trimmed/trim", offsets=offsets[1], confirm="trimmed")
    assert "no record is older" in users.get("admin", "/topics/trimmed/trim", before="offset", offset="40")
    assert "60 records (about" in users.get("admin", "/topics/trimmed/delete")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_positions_are_moved_members_removed_and_groups_deleted(
    users: Users, admin: AdminClient, protocol: str
) -> None:
    topic, group = f"moved-{protocol}", f"mover {protocol} {SCRIPT}/../?a=1#b"
    make(admin, users, topic, 50)
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(client(users.address, "admin", **settings, **{"group.protocol": protocol}))
    consumer.subscribe([topic])
    assert len(consumer.consume(50, 20)) == 50
    consumer.commit(offsets=[TopicPartition(topic, 0, 30)], asynchronous=False)
    name = quote(group, safe="")
    page = users.get("admin", f"/seek-group/{name}", to="earliest")
    assert "30 records would be read again" in page
    assert "1 running member" in page
    assert SCRIPT not in page
    refused = users.post("alice", f"/seek-group/{name}", offsets=f"{topic}:0:0")
    assert (refused.status_code, "It was not done" in refused.text) == (409, True)
    assert users.post("admin", f"/delete-group/{name}", confirm=group).status_code == 409
    member = eventually(lambda: re.search(r'\?member=([^"]+)"', users.get("admin", f"/groups/{name}")))
    removal = users.get("admin", f"/remove-member/{name}?member={member[1]}")
    assert "loses its 1 partition" in removal
    removed = users.done("admin", f"/remove-member/{name}", member=unquote(member[1]), confirm=group)
    assert "has been removed" in removed
    assert users.post("admin", f"/remove-member/{name}", member="nobody", confirm=group).status_code == 409
    consumer.close()
    page = users.get("alice", f"/seek-group/{name}", to="offset", offset="45")
    assert "15 records would be skipped" in page
    assert "lag goes from 20 to 5" in page
    assert users.done("alice", f"/seek-group/{name}", offsets=f"{topic}:0:45").startswith("1 position of mover")
    assert "lag goes from 5 to 50" in users.get("alice", f"/seek-group/{name}", to="earliest", topic=topic)
    assert "1 position will be lost" in users.get("admin", f"/delete-group/{name}")
    assert "deleted, with 1 position" in users.done("admin", f"/delete-group/{name}", confirm=group)


def test_the_rules_of_the_brokers_decide_for_each_user(users: Users, admin: AdminClient) -> None:
    make(admin, users, "hidden", 1)
    assert eventually(lambda: ">hidden<" in users.get("admin", "/topics", q="hidden"))
    assert ">hidden<" not in users.get("bob", "/topics", q="hidden")
    assert users.client("bob").get("/topics/hidden").status_code == 404
    assert users.client("bob").get("/topics/hidden/records/0/0").status_code == 404
    failed = users.post("alice", "/create-topic", name="a/b")
    assert (failed.status_code, "It was not done" in failed.text) == (409, True)
    (line,) = users.events(event="change", outcome="failed", resource="a/b")
    assert "Topic name is invalid" in line["error"]


def test_a_viewer_changes_nothing_whatever_it_sends(users: Users, admin: AdminClient) -> None:
    make(admin, users, "kept")
    assert users.client("bob").get("/create-topic").status_code == 403
    assert users.client("bob").get("/topics/kept/delete").status_code == 403
    assert "Create a topic" not in users.get("bob", "/topics")
    token = re.search(r'name="csrf" value="([^"]+)"', users.get("admin", "/topics"))
    assert token is not None
    for form in ({"role": "admin"}, {"viewer.role": "admin"}, {"csrf": token[1]}):
        answer = users.post("bob", "/topics/kept/delete", confirm="kept", **form)
        assert answer.status_code == 403
    users.client("bob").cookies.update({"role": "admin", "user": "admin"})
    raised = users.client("bob").post("/topics/kept/delete?role=admin", data={"confirm": "kept"})
    assert raised.status_code == 403
    assert "kept" in admin.list_topics(timeout=10).topics
    assert len(users.events(event="refusal", principal="User:bob", api="POST /topics/kept/delete")) == 1
    # an administrator's form with a foreign token, or without one
    for form in ({"csrf": "x" * 43}, {}):
        foreign = users.client("admin").post("/topics/kept/delete", data={"confirm": "kept", **form})
        assert foreign.status_code == 403
    hostile = users.client("admin").post(
        "/topics/kept/delete", data={"csrf": token[1], "confirm": "kept"}, headers={"Origin": "http://evil.example"}
    )
    assert hostile.status_code == 403


def test_masked_fields_are_neither_shown_nor_found(users: Users, admin: AdminClient) -> None:
    topic = "masked"
    make(admin, users, topic)
    producer = Producer(client(users.address, "admin"))
    for number in range(3):
        value = f'{{"id": {number}, "card": "4111{number}", "card": "4222{number}"}}'
        producer.produce(topic, value, headers={"token": f"secret{number}", "source": "shop"})
    producer.produce(topic, "card 42225 in a text")
    assert producer.flush(20) == 0

    def found(user: str, text: str) -> str:
        return users.get(user, f"/topics/{topic}/records/search", filter=text)

    assert eventually(lambda: users.client("bob").get(f"/topics/{topic}/records").status_code == 200)
    assert eventually(lambda: "4 of 4 offsets" in found("bob", "key == 1"))
    assert eventually(lambda: "42221" in found("admin", "value.card == '42221'"))
    for guess in (
        "value.card == '42221'",
        "'4222' in value",
        "header('token') == 'secret1'",
        "size > 0",
        "len(value.card) == 5",
    ):
        page = found("bob", guess)
        assert "0 records, 4 of 4 offsets" in page, guess
    page = found("bob", "value.id == 1")
    assert "shop" in page
    for secret in ("4111", "4222", "secret"):
        assert secret not in page
        assert secret not in users.get("bob", f"/topics/{topic}/records/0/1")
        assert secret not in users.get("bob", f"/topics/{topic}/records/0/3")
        assert secret not in found("bob", "offset >= 0")
    assert "42221" in users.get("admin", f"/topics/{topic}/records/0/1")


def test_a_user_logs_in_and_out_with_the_keyboard(users: Users, browser: Browser) -> None:
    page = browser.new_page(base_url=users.console.url)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto("/topics?q=a")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert Axe().run(page).violations_count == 0
    page.get_by_label("Name").fill(SCRIPT)
    page.keyboard.press("Tab")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("do not take this name and password")
    page.get_by_label("Name").fill("alice")
    page.get_by_label("Password").fill("alice")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics?q=a")
    expect(page.locator("header")).to_contain_text("alice (editor)")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert Axe().run(page).violations_count == 0
    assert page.get_by_text("no longer follows").is_hidden()
    token = page.locator("input[name=csrf]").first.get_attribute("value")
    elsewhere = {"Cookie": f"{cookie['name']}={cookie['value']}", "Origin": users.console.url}
    assert httpx.post(f"{users.console.url}/logout", data={"csrf": token}, headers=elsewhere).status_code == 303
    page.get_by_role("link", name="Load it again").click()  # the session has ended while its page is open
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.goto("/topics?q=a")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert (page.evaluate("window.hacked"), problems) == (None, [])
    page.close()


def test_records_are_written_and_written_again_byte_for_byte(users: Users, admin: AdminClient) -> None:
    users.done("alice", "/create-topic", name="written", partitions="3")
    form = {"key": "k1", "value": '{"a": 1}', "value_as": "json", "headers": "source: web\nempty", "partition": "1"}
    assert users.done("alice", "/topics/written/produce", **form) == (
        "The record was written to partition 1, at offset 0."
    )
    producer = Producer(client(users.address, "admin"))
    odd: list[tuple[str, str | bytes | None]] = [("h", b"\xff"), ("h", None), ("", b"")]
    producer.produce("written", key=b"\0\xffkey", value=None, headers=odd, partition=2)
    assert producer.flush(20) == 0
    again = users.done("alice", "/topics/written/records/2/0/again")
    assert again == "The record was written to partition 2, at offset 1."
    consumer = Consumer({**client(users.address, "admin"), "group.id": "written"})
    consumer.assign([TopicPartition("written", 1, 0), TopicPartition("written", 2, 0)])
    found = {(each.partition(), each.offset()): each for each in consumer.consume(3, 20)}
    consumer.close()
    first = found[1, 0]
    assert (first.key(), first.value(), first.headers()) == (b"k1", b'{"a": 1}', [("source", b"web"), ("empty", None)])
    for offset in (0, 1):
        copy = found[2, offset]
        assert (copy.key(), copy.value(), copy.headers()) == (b"\0\xffkey", None, odd)
    written = users.events(api="PRODUCE", outcome="succeeded")
    assert len(written) == 2
    assert "k1" not in json.dumps(written)

    for wrong in ({"partition": "3"}, {"value": "{", "value_as": "json"}, {"key": "zz", "key_as": "hex"}):
        assert users.post("alice", "/topics/written/produce", **wrong).status_code == 400
    assert users.post("alice", "/topics/written/records/0/5/again").status_code == 404
    assert users.post("bob", "/topics/written/produce", value="x").status_code == 403
    assert (
        users.client("alice").post("/topics/written/produce", data={"csrf": "forged", "value": "x"}).status_code == 403
    )
    ends = admin.list_offsets({TopicPartition("written", number): OffsetSpec.latest() for number in range(3)})
    assert [each.result(20).offset for each in ends.values()] == [0, 1, 2]


def test_why_a_record_is_still_there_stands_on_its_page(users: Users, admin: AdminClient) -> None:
    make(admin, users, "staying", 1)
    assert eventually(lambda: users.client("alice").get("/topics/staying/records/0/0").status_code == 200)
    page = html.unescape(users.get("alice", "/topics/staying/records/0/0"))
    assert "past the 7 days of retention.ms" in page
    assert "should have gone by 2023-" in page or "It goes" in page
