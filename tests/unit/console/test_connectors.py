"""Connectors of a Connect REST API: failed first, without secrets, and no answer that is no sentence."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.fake_connect import PLUGIN, FakeConnect, fake_connect

from ottla.connect.rest.redaction import HIDDEN
from ottla.console import connectors
from ottla.console.connector_views import Kept, connector_rows, masked, parsed, restored, written
from ottla.console.connectors import ConnectCluster, WorkerProblem


@pytest.fixture
def worker() -> Iterator[FakeConnect]:
    with fake_connect() as fake:
        yield fake


def test_failed_connectors_and_tasks_come_first_with_the_reason(worker: FakeConnect) -> None:
    listed = asyncio.run(ConnectCluster(0, worker.url).listed())
    assert [each.name for each in listed.connectors] == ["orders", "archive"]
    failed = listed.connectors[0].tasks[0]
    assert (failed.number, failed.state) == (2, "FAILED")
    assert failed.reason == "org.apache.kafka.connect.errors.ConnectException: no login"
    assert "hunter2" not in failed.trace
    assert worker.asked == [("GET", "/connectors?expand=status&expand=info", None)]


def test_passwords_are_hidden_by_their_definition_and_by_their_name(worker: FakeConnect) -> None:
    found = asyncio.run(ConnectCluster(0, worker.url).described("orders"))
    assert found.config["db.pin"] == found.config["db.password"] == HIDDEN
    assert found.config["tasks.max"] == "3"
    assert found.topics == ["orders"]
    assert found.offsets == [('{"table": "orders"}', '{"id": 7}')]


def test_little_is_shown_if_the_worker_does_not_say_what_is_a_password() -> None:
    shown, hidden = masked({"name": "n", "connector.class": "c", "odd": "1234", "tasks.max": "2"}, None)
    assert shown == {"name": "n", "connector.class": "c", "odd": HIDDEN, "tasks.max": "2"}
    assert hidden == {"odd"}


def test_what_a_form_did_not_show_stays_as_it_was() -> None:
    kept = Kept({"connector.class": "c", "db.pin": "1234", "url": "http://a:secret@h/"}, frozenset(("db.pin",)))
    shown, _ = masked(kept.config, kept.names)
    assert restored(shown, kept) == kept.config
    assert restored({**shown, "db.pin": "999"}, kept)["db.pin"] == "999"
    with pytest.raises(ValueError, match="other is"):
        restored({**shown, "other": HIDDEN}, kept)


def test_a_configuration_is_validated_without_giving_secrets_away(worker: FakeConnect) -> None:
    async def ask() -> None:
        cluster = ConnectCluster(0, worker.url)
        infos = await cluster.validated({"connector.class": PLUGIN, "db.pin": "0000", "db.url": "x"})
        assert infos.errors == 2
        assert [(each.name, each.errors) for each in infos.wrong] == [
            ("db.url", ["Invalid value x", f"no login with {HIDDEN}"])
        ]
        assert [each.value for each in infos.given] == [HIDDEN]
        right = await cluster.validated({"connector.class": PLUGIN, "db.url": "jdbc:x"})
        assert (right.errors, right.wrong) == (0, [])
        with pytest.raises(WorkerProblem, match=r"connector\.class is missing"):
            await cluster.validated({})

    asyncio.run(ask())


def test_orders_are_kafkas_requests(worker: FakeConnect) -> None:
    async def order() -> None:
        cluster = ConnectCluster(0, worker.url)
        await cluster.restart("orders")
        await cluster.turn("orders", "pause")
        await cluster.set_config("orders", {"connector.class": PLUGIN})
        await cluster.set_config("new", {"connector.class": PLUGIN}, only_new=True)
        with pytest.raises(WorkerProblem, match="STOPPED state") as refused:
            await cluster.set_offsets("orders", None)
        assert refused.value.status == 400
        await cluster.delete("new")

    asyncio.run(order())
    assert [(method, path) for method, path, _ in worker.asked] == [
        ("POST", "/connectors/orders/restart?includeTasks=true&onlyFailed=true"),
        ("PUT", "/connectors/orders/pause"),
        ("PUT", "/connectors/orders/config"),
        ("POST", "/connectors"),
        ("DELETE", "/connectors/orders/offsets"),
        ("DELETE", "/connectors/new"),
    ]


@pytest.mark.parametrize("strange", [b"[]", b"<html>", b'{"a": 1}', b'{"a": {"status": null, "info": {}}}', b""])
def test_something_else_behind_the_address_is_a_sentence(worker: FakeConnect, strange: bytes) -> None:
    worker.strange = strange
    listed = asyncio.run(ConnectCluster(0, worker.url).listed())
    assert listed.problem or not listed.connectors
    with pytest.raises(WorkerProblem):
        asyncio.run(ConnectCluster(0, worker.url).described("orders"))


def test_an_answer_is_bounded(worker: FakeConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectors, "LARGEST_ANSWER_BYTES", 100)
    worker.strange = b'{"a": "' + b"x" * 1_000 + b'"}'
    assert "larger than 100 bytes" in asyncio.run(ConnectCluster(0, worker.url).listed()).problem


def test_a_worker_that_is_not_there_is_a_sentence() -> None:
    listed = asyncio.run(ConnectCluster(0, "127.0.0.1:1").listed())
    assert listed.problem == "No worker answers at http://127.0.0.1:1: connection refused."


def test_a_worker_with_many_open_questions_is_asked_no_more(
    worker: FakeConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectors, "MOST_QUESTIONS", 0)
    assert "questions to answer already" in asyncio.run(ConnectCluster(0, worker.url).listed()).problem


def test_a_configuration_is_typed_as_lines_or_as_json() -> None:
    assert parsed("# of the shop\n a = 1 \nb=x=y\n\n") == {"a": "1", "b": "x=y"}
    assert parsed('{"name": "n", "config": {"a": 1, "b": true, "c": null}}') == {"a": "1", "b": "true"}
    for text in ("no equals", "=x", '{"a": '):
        with pytest.raises(ValueError, match=r"line 1|no JSON"):
            parsed(text)
    for config in ({"a": "1", "b": "x=y"}, {"a": "two\nlines"}, {"a": " spaces "}):
        assert parsed(written(config)) == config


def test_connectors_without_a_type_or_a_trace() -> None:
    status = {"connector": {"state": "FAILED", "trace": "why\nand where"}, "tasks": []}
    (found,) = connector_rows({"a": {"status": status, "info": {"config": {}}}})
    assert found.has_failed
    assert (found.kind, found.reason) == ("", "why")
