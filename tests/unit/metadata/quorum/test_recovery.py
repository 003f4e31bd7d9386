"""Unsafe recovery: what a survivor's files show, and a log whose only voter is the survivor."""

import json
from pathlib import Path

import pytest

from ottla.cli.app import run
from ottla.cli.terminal import exits
from ottla.clock import SystemClock
from ottla.config.broker import BrokerConfig
from ottla.errors import KafkaStorageError
from ottla.log import meta_properties
from ottla.log.fs import RealFileSystem
from ottla.metadata.quorum import election_file, formatting, recovery
from ottla.metadata.quorum.batches import encode_records
from ottla.metadata.quorum.formatting import Wishes
from ottla.metadata.quorum.metadata_log import DIRECTORY, MetadataLog, MetadataLogConfig
from ottla.protocol.messages.control_records import LeaderChangeMessage
from ottla.quorum.config import OwnReplica, QuorumConfig
from ottla.quorum.control_records import LEADER_CHANGE, encode_control_batch
from ottla.quorum.effects import ControlRecord, Role
from ottla.quorum.election_state import ElectionState
from ottla.quorum.machine import QuorumMachine
from ottla.quorum.replicas import OffsetAndEpoch, ReplicaKey, VoterSet
from ottla.quorum.voter_history import kraft_version_record, voters_record

FS, CLOCK = RealFileSystem(), SystemClock()
CLUSTER = "b3R0bGFfZ2VudWluZV8wMQ"
OWN = "JEXY6aqzQY-32P5TStzaFg"
VOTERS = f"1@h1:9093:MvDxzVmcRsaTz33bUuRU6A,2@h2:9093:{OWN},3@h3:9093:07R5amHmR32VDA6jHkGbTA"


class Node:
    """Node 2 of three voters, with a log of epoch 7 that nobody has open."""

    def __init__(self, directory: Path, *, static: bool = False) -> None:
        self.file = directory / "server.properties"
        quorum = "voters=1@h1:9093,2@h2:9093,3@h3:9093" if static else "bootstrap.servers=h1:9093,h2:9093,h3:9093"
        self.file.write_text(
            "process.roles=controller\nnode.id=2\ncontroller.listener.names=CONTROLLER\nlisteners=CONTROLLER://h2:9093\n"
            f"controller.quorum.{quorum}\nlog.dirs={directory}/data\n"
        )
        given = dict(line.split("=", 1) for line in self.file.read_text().splitlines())
        self.config = BrokerConfig(given, allow_insecure=True)
        self.path = directory / "data"
        wishes = Wishes(CLUSTER) if static else Wishes(CLUSTER, initial_controllers=VOTERS)
        formatting.write(FS, formatting.plan(FS, self.config, wishes), now_ms=1_700_000_000_000)
        self.log = self.path / DIRECTORY

    def write(self) -> None:
        log = self.opened()
        change = ControlRecord(
            LEADER_CHANGE, LeaderChangeMessage(version=0, leader_id=1, voters=[], granting_voters=[])
        )
        controls = [change, kraft_version_record(1), voters_record(formatting.parse_voters(VOTERS, "CONTROLLER"))]
        if self.config.quorum is not None and self.config.quorum.voters:
            controls = [change]
        log.append(encode_control_batch(controls, base_offset=0, epoch=7, now_ms=1_700_000_000_000), 0)
        base = log.end.offset
        values = [b"a", b"b"]
        log.append(encode_records(values, base_offset=base, epoch=7, now_ms=1_700_000_060_000), base)
        log.close()
        election_file.write(FS, str(self.log), ElectionState(9, 1), kraft_version=1, voter_ids=())

    def opened(self) -> MetadataLog:
        return MetadataLog.open(str(self.path), MetadataLogConfig(), fs=FS, clock=CLOCK)

    def run(self, *arguments: str) -> int:
        return run(["quorum", "recover", "-c", str(self.file), *arguments])

    def files(self) -> dict[str, bytes]:
        return {
            path.name: path.read_bytes() for path in self.path.rglob("*") if path.is_file() and path.name != ".lock"
        }


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.write()
    return made


def test_without_give_up_it_says_what_would_be_lost(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    before = node.files()
    assert node.run("--json") == exits.OK
    shown = capsys.readouterr()
    facts = json.loads(shown.out)
    assert {name: facts[name] for name in ("node", "directory_id", "log_end_offset", "log_end_epoch", "epoch")} == {
        "node": 2,
        "directory_id": OWN,
        "log_end_offset": 5,
        "log_end_epoch": 7,
        "epoch": 9,
    }
    assert (facts["committed_at_least"], facts["voters"], facts["given_up"]) == (0, [1, 2, 3], [1, 3])
    assert facts["last_append"].startswith("2023-11-14T22:14:20")
    assert "nothing was changed: metadata behind offset 5 of epoch 7 is lost" in shown.err
    assert "add --give-up 1,3" in shown.err
    assert node.files() == before


def test_the_survivor_is_the_only_voter_and_leads(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert node.run("--give-up", "3,1", "--yes") == exits.OK
    assert "Format the directories of 1,3 anew" in capsys.readouterr().err
    assert election_file.read(FS, str(node.log)) == ElectionState(1009)
    log = node.opened()
    own = OwnReplica(
        ReplicaKey(2, meta_properties.directory_uuid(OWN)),
        CLUSTER,
        recovery.only_voter(recovery.examine(FS, node.config), node.config).endpoints,
    )
    machine = QuorumMachine(own, QuorumConfig(), log, lambda n: 0)
    machine.start(election_file.read(FS, str(node.log)), 0)
    assert log.end == OffsetAndEpoch(6, 1009)
    assert (machine.voters.ids, machine.kraft_version) == ({2}, 1)
    machine.synced(log.end.offset, 1)
    assert (machine.role, machine.epoch) == (Role.LEADER, 1010)
    log.release()
    assert node.run() == exits.FAILED
    assert "node 2 is the only voter already: start it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["--give-up", "1", "--yes"],
            exits.FAILED,
            "--give-up names 1, and the other voters are 1,3: name all of them",
        ),
        (["--give-up", "1,2,3", "--yes"], exits.FAILED, "and the other voters are 1,3"),
        (["--give-up", "1;3", "--yes"], exits.USAGE, "--give-up takes ids of nodes"),
        (["--give-up", "1,3"], exits.USAGE, "add --yes"),
        (
            ["--override", "process.roles=broker", "--override", "listeners=PLAINTEXT://h2:9092"],
            exits.FAILED,
            "does not contain controller",
        ),
        (["--override", "node.id=3"], exits.FAILED, "belongs to node 2, not 3"),
        (["--override", "log.dirs=/nowhere"], exits.FAILED, "/nowhere holds no metadata log of a quorum"),
    ],
)
def test_what_is_not_meant_exactly_changes_nothing(
    node: Node, arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = node.files()
    assert node.run(*arguments) == code
    assert said in capsys.readouterr().err
    assert node.files() == before


def test_a_node_that_runs_is_refused(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    before = node.files()
    with recovery.locked(FS, CLOCK, node.config):
        assert node.run("--give-up", "1,3", "--yes") == exits.FAILED
    assert "is in use by another process" in capsys.readouterr().err
    assert node.files() == before


def test_static_voters_are_changed_in_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(tmp_path, static=True)
    node.write()
    before = node.files()
    assert node.run("--give-up", "1,3", "--yes") == exits.FAILED
    assert "set controller.quorum.voters to the survivors alone" in capsys.readouterr().err
    assert node.files() == before


def test_an_empty_log_is_nothing_to_recover(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Node(tmp_path).run("--give-up", "1,3", "--yes") == exits.FAILED
    assert "is empty: there is nothing to recover here" in capsys.readouterr().err


def test_a_directory_that_was_replaced_is_no_voter_yet(node: Node) -> None:
    lines = meta_properties.read(FS, str(node.path))
    meta_properties.write(FS, str(node.path), {**lines, "directory.id": "AAAAAAAAAAAAAAAAAAD_-w"})
    found = recovery.examine(FS, node.config)
    assert not found.is_voter
    assert [voter.key.node_id for voter in found.others] == [1, 2, 3]
    voter = recovery.only_voter(found, node.config)
    assert (voter.key, voter.endpoints[0].host) == (found.own, "h2")


def test_a_snapshot_and_the_log_behind_it_are_read_and_a_torn_end_is_named(node: Node) -> None:
    log = node.opened()
    log.note_committed(4)
    writer = log.new_snapshot(OffsetAndEpoch(4, 7), [kraft_version_record(1), voters_record(VoterSet())])
    writer.finish()
    log.close()
    found = recovery.examine(FS, node.config)
    assert (found.end, found.committed, found.torn, len(found.voters)) == (OffsetAndEpoch(5, 7), 4, None, 0)
    (segment,) = node.log.glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-1])
    found = recovery.examine(FS, node.config)
    assert found.torn is not None
    assert "corrupt batch" in found.torn
    (found_snapshot,) = node.log.glob("*4-*7.checkpoint")
    found_snapshot.write_bytes(found_snapshot.read_bytes()[:-1])
    with pytest.raises(KafkaStorageError, match="the newest snapshot is damaged"):
        recovery.examine(FS, node.config)
