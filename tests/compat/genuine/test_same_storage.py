"""Directories that Ottla formats hold what Kafka's own tool writes, and both tools know whose they are."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.tool_server import kafka_tool

from ottla.cli.app import run
from ottla.log.fs import RealFileSystem
from ottla.log.scan import scan
from ottla.records.record import decode_records

CLUSTER = "b3R0bGFfZ2VudWluZV8wMQ"
DIRECTORY = "JEXY6aqzQY-32P5TStzaFg"
STATIC = {"controller.quorum.voters": "1@127.0.0.1:9093"}
DYNAMIC = {"controller.quorum.bootstrap.servers": "127.0.0.1:9093"}
BROKER = {
    "process.roles": "broker",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}
VOTERS = f"2@[::1]:9093:MvDxzVmcRsaTz33bUuRU6A,1@localhost:9094:{DIRECTORY}"
ALICE = 'SCRAM-SHA-256=[name=alice,salt="N3E=",saltedpassword="YCE=",iterations=8192]'
BOB = "SCRAM-SHA-512=[name=bob,salt=N3E=,password=b]"


def properties(directory: Path, given: Mapping[str, str]) -> Path:
    """The settings of a node with a directory for data and one for metadata."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": f"{directory}/data",
        "metadata.log.dir": f"{directory}/metadata",
        **given,
    }
    directory.mkdir()
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file


def content(directory: Path) -> dict[str, Any]:
    """All files but for times and random ids: batches with their records, properties."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.name == "meta.properties":
            lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
            found[name] = sorted(line for line in lines if not line.startswith("directory.id=") or DIRECTORY in line)
        elif path.suffix == ".checkpoint":
            found[name] = (path.stat().st_size, batches(path))
    return found


def batches(path: Path) -> list[Any]:
    file = RealFileSystem().open(str(path))
    found = []
    for header in scan(file, str(path), 0, file.size(), check_crc=True):
        batch = bytes(file.read(header.position, header.size_bytes))
        records = decode_records(batch, header._replace(position=0))
        values = [
            (record.offset, record.key, without_time(record.value or b"", header.is_control)) for record in records
        ]
        found.append((header.base_offset, header.leader_epoch, header.attributes, header.producer_id, values))
    return found


def without_time(value: bytes, is_control: bool) -> bytes:
    """A snapshot's header names a time: version int16, time int64, tagged fields."""
    return value[:2] + value[10:] if is_control and len(value) == 11 else value


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (STATIC, []),
        (STATIC, ["--release-version", "3.9"]),
        (STATIC, ["--release-version", "3.7-IV2", "--add-scram", ALICE]),
        (STATIC, ["--feature", "share.version=0", "--feature", "transaction.version=1"]),
        (STATIC, ["--feature", "metadata.version=20"]),
        (STATIC, ["--add-scram", ALICE, "--add-scram", BOB]),
        (DYNAMIC, ["--initial-controllers", VOTERS]),
        (DYNAMIC, ["--initial-controllers", VOTERS, "--release-version", "4.0", "--feature", "kraft.version=1"]),
        (DYNAMIC, ["--initial-controllers", VOTERS.partition(",")[0]]),
        (DYNAMIC, ["--no-initial-controllers"]),
        (BROKER, []),
        (BROKER, ["--no-initial-controllers"]),
    ],
)
def test_the_same_is_written(tmp_path: Path, given: dict[str, str], options: list[str]) -> None:
    theirs, ours = properties(tmp_path / "kafka", given), properties(tmp_path / "ottla", given)
    kafka_tool("StorageTool", "format", "-t", CLUSTER, "-c", str(theirs), *options)
    assert run(["storage", "format", "-t", CLUSTER, "-c", str(ours), *options]) == 0
    assert content(ours.parent) == content(theirs.parent)


def test_a_lone_voter_is_the_same_but_for_its_directory(tmp_path: Path) -> None:
    theirs, ours = properties(tmp_path / "kafka", DYNAMIC), properties(tmp_path / "ottla", DYNAMIC)
    kafka_tool("StorageTool", "format", "-t", CLUSTER, "-c", str(theirs), "--standalone")
    assert run(["storage", "format", "-t", CLUSTER, "-c", str(ours), "--standalone"]) == 0
    sizes = [{name: size for name, (size, _) in checkpoints(file.parent).items()} for file in (theirs, ours)]
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) == 3


def checkpoints(directory: Path) -> dict[str, Any]:
    return {name: found for name, found in content(directory).items() if name.endswith(".checkpoint")}


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (DYNAMIC, []),
        (STATIC, ["--standalone"]),
        (STATIC, ["--initial-controllers", VOTERS]),
        (BROKER, ["--standalone"]),
        (STATIC, ["--release-version", "3.2"]),
        (STATIC, ["--release-version", "9.9"]),
        (STATIC, ["--release-version", "4.0", "--feature", "metadata.version=20"]),
        (STATIC, ["--release-version", "3.9", "--feature", "eligible.leader.replicas.version=1"]),
        (STATIC, ["--feature", "nothing.version=1"]),
        (STATIC, ["--feature", "share.version=9"]),
        (STATIC, ["--feature", "kraft.version=1"]),
        (DYNAMIC, ["--initial-controllers", VOTERS, "--feature", "kraft.version=0"]),
        (DYNAMIC, ["--initial-controllers", "1@localhost:9094"]),
        (DYNAMIC, ["--initial-controllers", f"{VOTERS},1@localhost:9095:{DIRECTORY}"]),
        (STATIC, ["--release-version", "3.4", "--add-scram", ALICE]),
        (STATIC, ["--add-scram", "SCRAM-SHA-256=[name=alice]"]),
        (STATIC, ["--add-scram", "SCRAM-SHA-1=[name=alice,password=x]"]),
        (STATIC, ["--add-scram", "SCRAM-SHA-256=[name=alice,password=x,iterations=100]"]),
        ({**STATIC, "node.id": "2"}, []),
    ],
)
def test_the_same_is_refused_and_nothing_is_written(tmp_path: Path, given: dict[str, str], options: list[str]) -> None:
    theirs, ours = properties(tmp_path / "kafka", given), properties(tmp_path / "ottla", given)
    assert kafka_tool("StorageTool", "format", "-t", CLUSTER, "-c", str(theirs), *options, check=False).returncode != 0
    assert run(["storage", "format", "-t", CLUSTER, "-c", str(ours), *options]) == 1
    assert list(ours.parent.iterdir()) == [ours]


def test_each_tool_knows_what_the_other_has_formatted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    theirs, ours = properties(tmp_path / "kafka", STATIC), properties(tmp_path / "ottla", STATIC)
    kafka_tool("StorageTool", "format", "-t", CLUSTER, "-c", str(theirs))
    assert run(["storage", "format", "-t", CLUSTER, "-c", str(ours)]) == 0
    capfd.readouterr()

    assert run(["storage", "info", "-c", str(theirs), "--json"]) == 0
    for found in json.loads(capfd.readouterr().out):
        assert (found["cluster_id"], found["node_id"], found["problem"]) == (CLUSTER, "1", None)
    shown = kafka_tool("StorageTool", "info", "-c", str(ours)).stdout
    assert f"cluster.id={CLUSTER}" in shown
    assert "node.id=1, version=1" in shown

    again = kafka_tool("StorageTool", "format", "-t", CLUSTER, "-c", str(ours), check=False)
    assert "is already formatted" in again.stderr
    kafka_tool("StorageTool", "format", "-t", CLUSTER, "-c", str(ours), "--ignore-formatted")
    assert run(["storage", "format", "-t", CLUSTER, "-c", str(theirs)]) == 1
    assert "is formatted already; --ignore-formatted leaves it" in capfd.readouterr().err
    assert run(["storage", "format", "-t", CLUSTER, "-c", str(theirs), "-g"]) == 0
