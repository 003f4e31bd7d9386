"""Where marks are looked for."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from ottla.spark import marks
from ottla.spark.marks import Mark, Marks, Write


class FakeConsumer:
    """A broker that learns of its topics one after the other, and has a mark beside topic b."""

    def __init__(self, listings: list[list[str]]) -> None:
        self._listings = listings

    def __call__(self, settings: dict[str, Any]) -> "FakeConsumer":
        return self

    def list_topics(self, timeout: float) -> SimpleNamespace:
        now = self._listings[0] if len(self._listings) == 1 else self._listings.pop(0)
        return SimpleNamespace(topics=dict.fromkeys(now))

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [
            TopicPartition(each.topic, 0, 4, "run=r write=w records=7") if each.topic == "b" else each for each in asked
        ]


def marks_with(listings: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> Marks:
    monkeypatch.setattr(marks, "Consumer", FakeConsumer(listings))
    monkeypatch.setattr(marks, "_RETRY_S", 0.01)
    return Marks((("bootstrap.servers", "h:1"),), "task")


def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for = marks_with([[], ["a"], ["a", "b"]], monkeypatch)
    assert looked_for.last(None, "b") == Mark(3, Write("r", "w"), 7, "b")


def test_a_topic_that_stays_unknown_is_no_missing_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "ANSWER_TIMEOUT_S", 0.05)
    looked_for = marks_with([["a"]], monkeypatch)
    with pytest.raises(KafkaException, match="there is no topic 'b'"):
        looked_for.last(None, "b")
