"""What is taken for a batch that a broker has appended twice, and what for a record that a client has sent again."""

from pathlib import Path

import pytest
from tests.support.evidence import KEPT_IN, batches, judge, kept_on_failure
from tests.support.ottla_process import OttlaProcess

from ottla.records.record import Record, encode_batch

Sent = tuple[bytes, int, int]
"""A value, and the epoch and the sequence of the batch that has it."""


def replica(directory: Path, *sent: Sent) -> Path:
    """A log directory that has these, at offsets from 0."""
    partition = directory / "orders-0"
    partition.mkdir(parents=True)
    (partition / f"{0:020}.log").write_bytes(
        b"".join(
            encode_batch([Record(offset, 0, None, value)], producer_id=7, producer_epoch=epoch, base_sequence=sequence)
            for offset, (value, epoch, sequence) in enumerate(sent)
        )
        + bytes(100)  # preallocated
    )
    return directory


def check(directory: Path, *sent: Sent, read: tuple[bytes, ...] = (), in_new_epochs: bool = False) -> None:
    """As if the values were read once each, or as `read` says."""
    found = [*(read or (value for value, _, _ in sent))]
    replicas = {1: list(batches(replica(directory, *sent), "orders"))}
    judge("orders", found, {b"a", b"b"}, replicas, in_new_epochs=in_new_epochs)


def test_each_value_once(tmp_path: Path) -> None:
    check(tmp_path, (b"a", 0, 0), (b"b", 0, 1))


def test_a_file_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    moved = tmp_path / "orders-1"
    moved.mkdir()
    (moved / f"{0:020}.log").symlink_to("gone")
    check(tmp_path, (b"a", 0, 0), (b"b", 0, 1))


def test_an_acknowledged_value_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"1 of 2 acknowledged values are missing: \[b'b'\]"):
        check(tmp_path, (b"a", 0, 0))


@pytest.mark.parametrize("in_new_epochs", [False, True])
def test_a_batch_that_a_broker_has_appended_twice(tmp_path: Path, *, in_new_epochs: bool) -> None:
    with pytest.raises(AssertionError, match=r"appended twice.*epoch 0 sequences 1\.\.1.* again at 2"):
        check(tmp_path, (b"a", 0, 0), (b"b", 0, 1), (b"b", 0, 1), in_new_epochs=in_new_epochs)


def test_a_record_that_a_client_has_sent_again_in_a_new_epoch(tmp_path: Path) -> None:
    sent = ((b"a", 0, 0), (b"b", 0, 1), (b"b", 1, 0))
    check(tmp_path / "excused", *sent, in_new_epochs=True)
    with pytest.raises(AssertionError, match=r"1 values were read twice(.|\n)*replica 1.*epoch 1 sequences 0\.\.0"):
        check(tmp_path / "not", *sent)


@pytest.mark.parametrize("in_new_epochs", [False, True])
def test_a_value_that_is_there_once_and_was_read_twice(tmp_path: Path, *, in_new_epochs: bool) -> None:
    with pytest.raises(AssertionError, match="1 values were read twice"):
        check(tmp_path, (b"a", 0, 0), (b"b", 0, 1), read=(b"a", b"b", b"b"), in_new_epochs=in_new_epochs)


def test_a_failure_keeps_directories_and_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.evidence.KEPT_IN", tmp_path / "evidence")
    node = OttlaProcess(tmp_path / "node")
    replica(node.log_dir, (b"a", 0, 0))
    (node.log_dir / "orders-0" / f"{0:020}.index").write_bytes(bytes(1000))
    node.log_file.write_text("output")

    def unknown() -> list[str]:
        raise RuntimeError("no broker answers")

    with (
        pytest.raises(AssertionError, match="lost"),
        kept_on_failure("a test[x/y]", {1: node}, {"client": lambda: ["one", "two"], "cluster": unknown}),
    ):
        raise AssertionError("lost")
    (kept,) = (tmp_path / "evidence").iterdir()
    assert kept.name.endswith("a-test-x-y-")
    assert (kept / "1" / "broker.log").read_text() == "output"
    assert [file.name for file in (kept / "1" / "data" / "orders-0").iterdir()] == [f"{0:020}.log"]
    assert "producer 7 epoch 0 sequences 0..0" in (kept / "batches-1.txt").read_text()
    assert (kept / "client.txt").read_text() == "one\ntwo"
    assert "no broker answers" in (kept / "cluster.txt").read_text()
    assert "lost" in (kept / "failure.txt").read_text()
    assert not KEPT_IN.is_relative_to(tmp_path)
