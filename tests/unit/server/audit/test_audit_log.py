"""The audit log's thread and its file: rotation, full disks, floods, the end."""

import asyncio
import errno
import json
import logging
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.eventually import eventually

from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig
from ottla.log.fs import RealFileSystem
from ottla.security.authorization import Operation, ResourceType
from ottla.server.audit import audit_log
from ottla.server.audit.audit_log import AuditLog, Change, open_audit_log
from ottla.server.audit.rotating_file import RotatingFile
from ottla.testing import ManualClock

SENDER: Any = SimpleNamespace(
    principal="User:alice", client_host="10.0.0.1", listener="OUTSIDE", api_key=SimpleNamespace(name="CREATE_TOPICS")
)


class FullDisk(RealFileSystem):
    """Files that take nothing more once `is_full`: a part of a write, and then an error."""

    is_full = False

    def open(self, path: str, *, create: bool = False) -> Any:
        disk, file = self, super().open(path, create=create)

        def write(position: int, data: Any) -> None:
            if disk.is_full:
                file.write(position, bytes(data)[:7])
                raise OSError(errno.ENOSPC, "No space left on device")
            file.write(position, data)

        names = ("size", "read", "truncate", "sync", "descriptor")
        return SimpleNamespace(write=write, **{name: getattr(file, name) for name in names})


def opened(path: Path, fs: Any = None, stopped: Any = None, **settings: str) -> AuditLog:
    config = BrokerConfig({"ottla.audit.file": str(path), **settings})
    file = RotatingFile(
        str(path),
        fs or RealFileSystem(),
        max_bytes=config.ottla_audit_max_file_bytes,
        max_files=config.ottla_audit_max_files,
    )
    return AuditLog(config, file, ManualClock(), stopped or (lambda reason: None))


def refuse(audit: AuditLog, name: str, address: str = "10.0.0.1") -> None:
    audit.refused("User:bob", address, "OUTSIDE", "FETCH", Operation.READ, ResourceType.TOPIC, name)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_are_written_and_what_is_counted_comes_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = opened(path)
    audit.changed(SENDER, iter([Change("TOPIC", "a", None, (("partitions", 3),)), Change("TOPIC", "b", "X")]))
    for _ in range(42):
        refuse(audit, "orders")
    audit.authenticated(SENDER, "User:alice", "PLAIN")
    audit.not_authenticated(SENDER, None, "TLS", "the client hung up")
    asyncio.run(audit.close())
    found = sorted(lines(path), key=lambda line: (line["event"], line["outcome"], "repeated" in line))
    assert [(line["event"], line["outcome"], line.get("resource")) for line in found] == [
        ("authentication", "failed", None),
        ("authentication", "succeeded", None),
        ("change", "failed", "b"),
        ("change", "succeeded", "a"),
        ("refusal", "refused", "orders"),
        ("refusal", "refused", "orders"),
    ]
    assert found[0]["api"] == "TLS"
    assert found[0]["principal"] is None
    assert found[2]["error"] == "X"
    assert found[3]["partitions"] == 3
    assert found[5]["repeated"] == 41
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_only_what_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = opened(path, **{"ottla.audit.events": "changes"})
    refuse(audit, "orders")
    audit.authenticated(SENDER, "User:alice", "PLAIN")
    audit.changed(SENDER, iter([Change("TOPIC", "a", None)]))
    asyncio.run(audit.close())
    assert [line["event"] for line in lines(path)] == ["change"]


def test_files_are_renamed_at_their_size_and_removed_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = RotatingFile(str(path), RealFileSystem(), max_bytes=4096, max_files=3)
    for number in range(100):
        file.append(f"{number:04} {'x' * 200}\n".encode())
    file.close()
    names = {"audit.log", "audit.log.1", "audit.log.2", "audit.log.lock"}
    assert {each.name for each in tmp_path.iterdir()} == names
    kept = [(tmp_path / name).read_text().splitlines() for name in ("audit.log.2", "audit.log.1", "audit.log")]
    numbers = [int(line[:4]) for part in kept for line in part]
    assert numbers == list(range(numbers[0], 100))
    assert all(each.stat().st_size <= 4096 for each in tmp_path.iterdir())


def test_a_crash_in_a_line_costs_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"whole": 1}\n{"cut sh')
    file = RotatingFile(str(path), RealFileSystem(), max_bytes=4096, max_files=1)
    file.append(b'{"next": 1}\n')
    assert path.read_text() == '{"whole": 1}\n{"cut sh\n{"next": 1}\n'
    os.rename(path, tmp_path / "elsewhere")  # as logrotate does
    file.append(b'{"after": 1}\n')
    assert path.read_text() == '{"after": 1}\n'
    file.close()


def test_a_full_disk_is_reported_and_costs_only_what_memory_does_not_hold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "RETRY_S", 0.01)
    monkeypatch.setattr(audit_log, "MOST_PENDING", 50)
    path, disk, reasons = tmp_path / "audit.log", FullDisk(), list[str]()
    audit = opened(path, disk, reasons.append)
    refuse(audit, "before")
    eventually(lambda: len(lines(path)) == 1)
    disk.is_full = True
    refuse(audit, "while")
    eventually(lambda: "No space left on device" in caplog.text)
    for number in range(200):
        refuse(audit, f"while {number}")
    assert len(lines(path)) == 1  # and no part of another
    disk.is_full = False
    eventually(lambda: "is written again" in caplog.text)
    asyncio.run(audit.close())
    found = lines(path)
    assert [line["resource"] for line in found[:3]] == ["before", "while", "while 0"]
    assert found[-1]["suppressed"] == "refusal"
    assert found[-1]["reason"] == "memory"
    assert found[-1]["count"] + len(found) - 1 == 202
    assert [record.levelno for record in caplog.records if "cannot be written" in record.message] == [logging.ERROR]
    assert reasons == []


def test_a_broker_that_must_not_run_without_an_audit_log_stops(tmp_path: Path) -> None:
    disk, reasons = FullDisk(), list[str]()
    audit = opened(tmp_path / "audit.log", disk, reasons.append, **{"ottla.audit.on.failure": "stop"})
    disk.is_full = True
    refuse(audit, "orders")
    eventually(lambda: len(reasons) == 1)
    assert "No space left on device (ottla.audit.on.failure=stop)" in reasons[0]
    asyncio.run(audit.close())


def test_a_change_that_cannot_be_read_is_reported_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Any:
        yield Change("TOPIC", "a", None)
        raise ZeroDivisionError

    path = tmp_path / "audit.log"
    audit = opened(path)
    audit.changed(SENDER, broken())
    audit.changed(SENDER, iter([Change("TOPIC", "b", None)]))
    asyncio.run(audit.close())
    assert [line["resource"] for line in lines(path)] == ["a", "b"]
    assert "lacks what an answer to CREATE_TOPICS has changed" in caplog.text


def test_a_log_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    async def opening(path: Path) -> AuditLog | None:
        config = BrokerConfig({"ottla.audit.file": str(path)})
        return await open_audit_log(config, RealFileSystem(), ManualClock(), lambda reason: None)

    with pytest.raises(InvalidConfig, match=r"ottla\.audit\.file: .*missing/audit.log cannot be opened: No such file"):
        asyncio.run(opening(tmp_path / "missing" / "audit.log"))
    audit = opened(tmp_path / "audit.log")
    with pytest.raises(InvalidConfig, match=r"another process writes .*: give each broker its own"):
        asyncio.run(opening(tmp_path / "audit.log"))
    asyncio.run(audit.close())
