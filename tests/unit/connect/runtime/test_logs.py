"""Where a worker keeps its state: files of others, files of two, records that are none."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.connect.api import ConnectError, Retriable
from ottla.connect.runtime.logs import FileLogs, TopicLogs
from ottla.connect.runtime.positions import Positions
from ottla.connect.runtime.statuses import Statuses

Read = tuple[str, bytes, bytes | None, int]


def opened(path: Path) -> tuple[FileLogs, list[Read]]:
    read: list[Read] = []
    logs = FileLogs(path, lambda *record: read.append(record))
    logs.start()
    return logs, read


def test_the_last_of_each_key_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "state"
    logs, _ = opened(path)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None)):
        logs.put("offsets", key, value)
    logs.close()
    logs, read = opened(path)
    assert read == [("offsets", b"a", b"3", 2)]
    logs.put("offsets", b"c", b"4")
    assert read[-1] == ("offsets", b"c", b"4", 4)
    logs.close()


@pytest.mark.parametrize("torn", ["[", '["offs', '["offsets", "a", "1'])
def test_a_line_that_was_not_written_to_its_end_is_left_out(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "state"
    path.write_text('["offsets", "a", "1", 0]\n' + torn)
    logs, read = opened(path)
    logs.put("offsets", b"b", b"2")
    logs.close()
    assert [each[1] for each in read] == [b"a", b"b"]
    assert [json.loads(line)[1] for line in path.read_text().splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    "content", [b"bootstrap.servers=localhost:9092\n", b"\xac\xed\x00\x05sr", b"17\n", b"[1, 2, 3, 4]\n", b"{}"]
)
def test_a_file_of_somebody_else_is_not_written_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "worker.properties"
    path.write_bytes(content)
    with pytest.raises(ConnectError, match="is no file of this worker's: line 1 is none of its records"):
        opened(path)
    assert path.read_bytes() == content


def test_two_workers_do_not_write_one_file(tmp_path: Path) -> None:
    logs, _ = opened(tmp_path / "state")
    with pytest.raises(ConnectError, match="another worker runs with"):
        opened(tmp_path / "state")
    logs.close()
    opened(tmp_path / "state")[0].close()


def test_what_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "state"):
        with pytest.raises(ConnectError, match="cannot be"):
            opened(path)


def test_a_record_that_is_none_of_connects_stops_nobody() -> None:
    read: list[int] = []

    def on_record(_name: str, _key: bytes, _value: bytes | None, offset: int) -> None:
        if offset == 1:
            raise AttributeError("'list' object has no attribute 'get'")
        read.append(offset)

    logs = TopicLogs({"configs": ("c", 1, 1)}, {}, "leader", on_record)
    for offset in range(3):
        message: Any = SimpleNamespace(
            error=lambda: None, topic=lambda: "c", partition=lambda: 0, offset=lambda at=offset: at, key=lambda: b"k",
            value=lambda: b"[]",
        )  # fmt: skip
        logs._take(message)
    assert read == [0, 2]


def test_statuses_and_positions_are_objects() -> None:
    statuses, positions = Statuses(), Positions()
    for value in (b"[]", b"7", b"{", b'{"state": "RUNNING"}'):
        statuses.replay(b"status-connector-c", value)
        positions.replay(b'["c", {}]', value)
    assert statuses.connector("c") == {"state": "RUNNING"}
    assert positions.of("c", {}) == {"state": "RUNNING"}


def test_tasks_come_in_the_order_of_their_numbers() -> None:
    statuses = Statuses()
    for number in range(12):
        statuses.replay(f"status-task-c-{number}".encode(), b"{}")
    assert list(statuses.tasks("c")) == list(range(12))


class Large:
    """A producer of which the client, or the broker, finds a record too large."""

    def __init__(self, by_broker: bool) -> None:
        self.by_broker = by_broker
        self.aborted = 0

    def begin_transaction(self) -> None: ...

    def produce(self, _topic: str, *, on_delivery: Any, **_: Any) -> None:
        if not self.by_broker:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        nowhere = SimpleNamespace(partition=lambda: None, offset=lambda: None)
        on_delivery(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), nowhere)

    def commit_transaction(self, _seconds: float) -> None:
        raise KafkaException(KafkaError(KafkaError._INCONSISTENT, "1 message(s) failed", txn_requires_abort=True))

    def abort_transaction(self, _seconds: float) -> None:
        self.aborted += 1


@pytest.mark.parametrize("by_broker", [False, True])
def test_a_configuration_that_is_too_large_is_refused_and_the_leader_leads_on(by_broker: bool) -> None:
    logs, large = TopicLogs({"configs": ("c", 1, 1)}, {}, "leader", lambda *_: None), Large(by_broker)
    logs._producer = logs._leader = large  # type: ignore[assignment]
    with pytest.raises(ConnectError, match=r"c cannot be written: .*too large") as refused:
        logs.put("configs", b"connector-c", b"v")
    assert not isinstance(refused.value, Retriable)
    assert large.aborted == 1
    assert logs.leads
