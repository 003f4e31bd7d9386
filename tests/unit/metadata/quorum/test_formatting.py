"""Directories of a node of a quorum: what is planned, written and refused."""

from pathlib import Path
from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig
from ottla.ids import uuid_from_text, uuid_to_text
from ottla.log import meta_properties
from ottla.log.fs import RealFileSystem
from ottla.metadata.quorum import formatting, snapshots
from ottla.metadata.quorum.formatting import Kind, Wishes
from ottla.metadata.quorum.scram_arguments import argument_record
from ottla.protocol.metadata_records import FeatureLevelRecord, UserScramCredentialRecord, decode_record
from ottla.security.sasl import credential, salted

FS = RealFileSystem()
CLUSTER = "b3R0bGFfZ2VudWluZV8wMQ"
DIRECTORY = "JEXY6aqzQY-32P5TStzaFg"


def config(directory: Path, **more: str) -> BrokerConfig:
    """A node of both roles whose quorum may change."""
    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093",
        "controller.quorum.bootstrap.servers": "h:9093",
        "log.dirs": f"{directory}/a,{directory}/b",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return BrokerConfig({name: value for name, value in given.items() if value}, allow_insecure=True)


def formatted(directory: Path, wishes: Wishes, **more: str) -> formatting.Plan:
    plan = formatting.plan(FS, config(directory, **more), wishes)
    formatting.write(FS, plan, now_ms=1_700_000_000_000)
    return plan


def refused(directory: Path, wishes: Wishes, **more: str) -> str:
    with pytest.raises(InvalidConfig) as refusal:
        formatting.plan(FS, config(directory, **more), wishes)
    return str(refusal.value)


def test_a_lone_voter_begins_with_the_newest_levels(tmp_path: Path) -> None:
    plan = formatted(tmp_path, Wishes(CLUSTER, standalone=True))
    assert [(each.path, each.kind) for each in plan.directories] == [
        (f"{tmp_path}/a", Kind.VOTER),
        (f"{tmp_path}/b", Kind.DATA),
    ]
    for each in plan.directories:
        owner = meta_properties.read(FS, each.path)
        assert owner == {"version": "1", "cluster.id": CLUSTER, "node.id": "1", "directory.id": each.directory_id}
        records = snapshots.read_records(FS, f"{each.path}/bootstrap.checkpoint")
        levels: list[Any] = [decode_record(value)[0] for value in records]
        assert levels[0] == FeatureLevelRecord(name="metadata.version", feature_level=30)
        assert {each.name for each in levels[1:]} == {
            "eligible.leader.replicas.version",
            "group.version",
            "share.version",
            "streams.version",
            "transaction.version",
        }
    (name,) = [name for name, _, _ in FS.names(f"{tmp_path}/a/__cluster_metadata-0")]
    assert name == "00000000000000000000-0000000000.checkpoint"
    snapshots.check(FS, f"{tmp_path}/a/__cluster_metadata-0/{name}")
    assert not FS.exists(f"{tmp_path}/b/__cluster_metadata-0")


def test_the_metadata_may_have_a_directory_of_its_own(tmp_path: Path) -> None:
    voters = f"1@h:9093:{DIRECTORY},2@[::1]:9093:MvDxzVmcRsaTz33bUuRU6A"
    wishes = Wishes(CLUSTER, initial_controllers=voters)
    plan = formatted(tmp_path, wishes, metadata_log_dir=f"{tmp_path}/m/")
    assert [each.kind for each in plan.directories] == [Kind.DATA, Kind.DATA, Kind.VOTER]
    assert plan.directories[-1].directory_id == DIRECTORY
    assert plan.voters is not None
    assert [voter.endpoints[0].host for voter in plan.voters] == ["h", "0:0:0:0:0:0:0:1"]


def test_nothing_of_another_node_is_touched(tmp_path: Path) -> None:
    wishes = Wishes(CLUSTER, no_initial_controllers=True)
    formatted(tmp_path, wishes)
    before = (tmp_path / "a" / "meta.properties").read_bytes()
    again = wishes._replace(ignores_formatted=True)
    assert "is formatted already; --ignore-formatted leaves it" in refused(tmp_path, wishes)
    other = again._replace(cluster_id="AAAAAAAAAAAAAAAAAAAAAQ")
    assert f"a belongs to the cluster {CLUSTER}, not AAAA" in refused(tmp_path, other)
    assert "a belongs to node 1, not 2: see node.id" in refused(tmp_path, again, node_id="2")
    assert formatted(tmp_path, again).directories == []
    more = formatted(tmp_path, again, log_dirs=f"{tmp_path}/a,{tmp_path}/c")
    assert [each.path for each in more.directories] == [f"{tmp_path}/c"]
    assert (tmp_path / "a" / "meta.properties").read_bytes() == before


def test_a_metadata_log_that_is_nobodys_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "a" / "__cluster_metadata-0"
    log.mkdir(parents=True)
    (log / "00000000000000000000.log").write_bytes(b"precious")
    complaint = refused(tmp_path, Wishes(CLUSTER, standalone=True, ignores_formatted=True))
    assert "holds metadata, and" in complaint
    assert "put that file back, or move the directory away" in complaint
    assert not (tmp_path / "b").exists()


def test_a_format_that_a_power_cut_ended_is_done_again(tmp_path: Path) -> None:
    formatted(tmp_path, Wishes(CLUSTER, standalone=True))
    (tmp_path / "a" / "meta.properties").unlink()
    formatted(tmp_path, Wishes(CLUSTER, no_initial_controllers=True, ignores_formatted=True))
    assert FS.names(f"{tmp_path}/a/__cluster_metadata-0") == []  # the voters of the first try are gone
    assert meta_properties.read(FS, f"{tmp_path}/a")["cluster.id"] == CLUSTER


def test_a_directory_of_a_cluster_with_zookeeper_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "meta.properties").write_text(f"version=0\nbroker.id=1\ncluster.id={CLUSTER}\n")
    assert "of a cluster with ZooKeeper" in refused(tmp_path, Wishes(CLUSTER, standalone=True, ignores_formatted=True))


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (
            {
                "process_roles": "",
                "listeners": "PLAINTEXT://h:9092",
                "controller_listener_names": "",
                "controller_quorum_bootstrap_servers": "",
            },
            "process.roles is missing",
        ),
        ({"node_id": ""}, "node.id is missing"),
    ],
)
def test_settings_of_other_brokers_are_refused(tmp_path: Path, more: dict[str, str], complaint: str) -> None:
    assert complaint in refused(tmp_path, Wishes(CLUSTER, standalone=True), **more)


@pytest.mark.parametrize(
    ("voters", "complaint"),
    [
        (f"1@h:70000:{DIRECTORY}", "is not of the form"),
        (f"1@h:9093:{DIRECTORY[:-1]}", "is not of the form"),
        (f"9999999999@h:9093:{DIRECTORY}", "is not of the form"),
        ("1@h:9093:AAAAAAAAAAAAAAAAAAAAAQ", "reserved by Kafka"),
        (f"1@[::1::]:9093:{DIRECTORY}", "--initial-controllers: "),
        (f"1@h:9093:{DIRECTORY},1@h:9094:{DIRECTORY}", "twice"),
    ],
)
def test_voters_that_cannot_be_are_refused(tmp_path: Path, voters: str, complaint: str) -> None:
    assert complaint in refused(tmp_path, Wishes(CLUSTER, initial_controllers=voters))


@pytest.mark.parametrize("cluster_id", ["", "two words", "a=b", "line\n"])
def test_ids_of_clusters_fit_into_a_line(tmp_path: Path, cluster_id: str) -> None:
    assert "cannot be the id of a cluster" in refused(tmp_path, Wishes(cluster_id, standalone=True))


def test_random_ids_are_no_options() -> None:
    made = {meta_properties.random_id() for _ in range(500)}
    assert len(made) == 500
    assert not any(text.startswith("-") for text in made)
    assert all(uuid_to_text(uuid_from_text(text)) == text for text in made)


def test_users_get_the_credential_of_their_password() -> None:
    found = argument_record('SCRAM-SHA-512=[name=bob,salt="N3E=",iterations=8192,password="a b"]')
    made = credential("SCRAM-SHA-512", salted("SCRAM-SHA-512", "a b", b"7q", 8192), b"7q", 8192)
    assert found == UserScramCredentialRecord(
        name="bob", mechanism=2, salt=b"7q", stored_key=made.stored_key, server_key=made.server_key, iterations=8192
    )
    assert argument_record("SCRAM-SHA-256=[name=a,password=x]") != argument_record(
        "SCRAM-SHA-256=[name=a,password=x]"
    ), "salt"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SCRAM-SHA-256",
        "SCRAM-SHA-256=name=a,password=secret",
        "SCRAM-SHA-1=[name=a,password=secret]",
        "SCRAM-SHA-256=[password=secret]",
        "SCRAM-SHA-256=[name=a,secret]",
        "SCRAM-SHA-256=[name=a,colour=secret]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,saltedpassword=secret]",
        "SCRAM-SHA-256=[name=a,salt=secret!,password=secret]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=many]",
    ],
)
def test_what_is_no_user_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--add-scram: ") as refusal:
        argument_record(text)
    assert "secret" not in str(refusal.value)


def test_what_is_wrong_with_directories_is_said(tmp_path: Path) -> None:
    wishes = Wishes(CLUSTER, no_initial_controllers=True)
    formatted(tmp_path, wishes)
    (tmp_path / "c").mkdir()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    (tmp_path / "f").touch()
    dirs = ",".join(f"{tmp_path}/{name}" for name in "acdef")
    found = formatting.inspect(FS, config(tmp_path, log_dirs=dirs))
    assert [each.problem for each in found] == [
        None,
        "is not formatted",
        f"belongs to the cluster other, not {CLUSTER}",
        "does not exist",
        "cannot be read: Not a directory",
    ]
    (wrong, _) = formatting.inspect(FS, config(tmp_path, node_id="7"))
    assert wrong.problem == "belongs to node 1, not 7: see node.id and log.dirs"
