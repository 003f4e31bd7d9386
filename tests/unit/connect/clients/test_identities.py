"""Identities of topics, looked up for all tasks of a worker."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.clients import identities
from ottla.connect.clients.identities import Identities
from ottla.connect.errors import Retriable
from ottla.connect.log_identity import LogIdentity

HANGING = {"bootstrap.servers": "127.0.0.1:1"}
ANSWERING = {"bootstrap.servers": "127.0.0.1:2"}


def test_brokers_that_hang_delay_only_the_tasks_that_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = threading.Event(), threading.Event()
    admins: list[Any] = []

    def described(admin: Any, topics: list[str]) -> dict[str, LogIdentity]:
        admins.append(admin)
        if len(admins) == 1:
            asked.set()
            assert answer.wait(30)
        return {topic: LogIdentity("cluster", topic) for topic in topics}

    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda settings: SimpleNamespace(**settings))
    monkeypatch.setattr(identities, "_described", described)
    looked_up = Identities()
    with ThreadPoolExecutor(2) as tasks:
        try:
            slow = tasks.submit(looked_up.of, ["a"], HANGING)
            assert asked.wait(10)
            assert tasks.submit(looked_up.of, ["b"], ANSWERING).result(10) == {"b": LogIdentity("cluster", "b")}
            assert not slow.done()
        finally:
            answer.set()
        assert slow.result(10) == {"a": LogIdentity("cluster", "a")}
    looked_up.of(["a"], HANGING, shared=True)
    assert len(admins) == 2  # the answer is shared
    looked_up.of(["a"], dict(HANGING))
    assert len(admins) == 3
    assert admins[2] is admins[0]


def test_tasks_that_waited_for_brokers_that_do_not_answer_do_not_ask_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []

    def described(_admin: Any, topics: list[str]) -> dict[str, LogIdentity]:
        asked.append(topics)
        raise Retriable("no answer within 10 s")

    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda settings: SimpleNamespace(**settings))
    monkeypatch.setattr(identities, "_described", described)
    looked_up = Identities()
    for topic in ("a", "b", "c"):
        with pytest.raises(Retriable, match="no answer"):
            looked_up.of([topic], HANGING, shared=True)
    assert asked == [["a"]]
    with pytest.raises(Retriable, match="no answer"):
        looked_up.of(["a"], HANGING)
    assert asked == [["a"], ["a"]], "where an offset is about to be used, everybody asks"
