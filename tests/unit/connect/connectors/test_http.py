"""The sink of HTTP: what it leaves unsent."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.connect_tasks import TaskContext, opened, sink_record

from ottla.connect.api import TopicPartition
from ottla.connect.connectors import http
from ottla.connect.connectors.http import HttpSink

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_task_that_is_to_stop_sends_no_more_and_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    context = TaskContext()
    sent: list[str] = []

    def answered(*arguments: Any) -> Any:
        sent.append(arguments[-1]["Idempotency-Key"])
        context.stopping = len(sent) == 2
        return SimpleNamespace(status_code=200)

    monkeypatch.setattr(http, "_send", answered)
    sink = opened(HttpSink, {"http.url": "http://there"}, FIRST, SECOND, context=context)
    sink.write([sink_record("t", offset, {}, partition=number) for number in (0, 1) for offset in (5, 6, 7)])
    assert sent == ["t-0-5", "t-0-6"]
    assert sink.flush() == {FIRST: 7, SECOND: 5}, "committed are those that were sent"
    sink.close()
