"""What workers do when they cannot know: an audit asks again, a relay leaves."""

from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.chaos import python_worker
from tests.chaos.python_worker import Worker

LOG = [(0, b"7"), (1, b"8"), (2, b"9")]


class _Message:
    def __init__(self, offset: int, value: bytes | None) -> None:
        self._offset, self._value = offset, value

    def topic(self) -> str:
        return "a"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> KafkaError | None:
        return None if self._value is not None else KafkaError(KafkaError._PARTITION_EOF)


class _Consumer:
    """Reads what is committed so far; the answers about the end are `answers`, the last one for good."""

    answers: list[int]

    def __init__(self, settings: dict[str, Any]) -> None:
        self._read = 0

    def assign(self, partitions: list[TopicPartition]) -> None:
        pass

    def close(self) -> None:
        pass

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        answer = type(self).answers.pop(0) if len(type(self).answers) > 1 else type(self).answers[0]
        if answer < 0:
            raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
        return 0, answer

    def consume(self, count: int, timeout: float) -> list[_Message]:
        committed = type(self).answers[0]
        found = [_Message(offset, value) for offset, value in LOG[self._read : committed]]
        self._read += len(found)
        return found or [_Message(self._read, None)]


@pytest.fixture
def worker() -> Worker:
    return Worker({"bootstrap": "", "transactional_id": "", "transaction_timeout_ms": 0, "group": {}, "in_flight": 5})


def test_a_relay_that_may_be_committed_is_not_done_again_by_the_same_member(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would seek back, and send again what has been sent: only the group's offsets say whether that is right."""
    monkeypatch.setattr(worker, "relay", Mock(side_effect=python_worker.Unknown("while committing")))
    assert worker.do({"what": "relay"})["has_ended"]
    monkeypatch.setattr(worker, "relay", Mock(side_effect=python_worker.Failed("aborted")))
    assert "has_ended" not in worker.do({"what": "relay"})


@pytest.mark.parametrize("answers", [[1, 3], [0, 3], [-1, 1, 3], [3]])
def test_the_end_is_asked_for_until_the_answer_is_the_same(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, answers: list[int]
) -> None:
    monkeypatch.setattr(python_worker, "Consumer", type("Scripted", (_Consumer,), {"answers": answers}))
    monkeypatch.setattr(python_worker, "POLL_S", 0.0)
    answer = worker.do({"what": "audit", "keys": ["a-0"], "seconds": 5})
    assert answer["state"] == "ok", answer
    assert answer["steps"] == [["poll", {"a-0": [(0, 7), (1, 8), (2, 9)]}]]
