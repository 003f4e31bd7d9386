"""What a node's disk keeps about the move from ZooKeeper."""

from pathlib import Path

import pytest

from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig
from ottla.log.fs import RealFileSystem
from ottla.server.migration_state import LEFT, WAITING, MigrationState, check_not_waiting, state_of

QUORUM = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


@pytest.mark.parametrize("files", [[], [WAITING], [WAITING, LEFT], [LEFT]])
def test_a_controller_that_waits_for_zookeeper_begins_nothing_else(tmp_path: Path, files: list[str]) -> None:
    """Not even if its settings no longer name the move: the metadata may be frozen."""
    for name in files:
        (tmp_path / name).touch()
    config = BrokerConfig({**QUORUM, "log.dirs": str(tmp_path)})
    if files != [WAITING]:
        check_not_waiting(config, RealFileSystem())
        return
    with pytest.raises(InvalidConfig, match=r"start it with zookeeper\.connect and zookeeper\.metadata\.migration"):
        check_not_waiting(config, RealFileSystem())


def test_the_state_of_a_node_without_a_move_before_it(tmp_path: Path) -> None:
    config = BrokerConfig({**QUORUM, "log.dirs": str(tmp_path)})
    assert state_of(config, RealFileSystem()) == MigrationState.NONE
    (tmp_path / LEFT).touch()
    assert state_of(config, RealFileSystem()) == MigrationState.POST_MIGRATION
    on_zookeeper = BrokerConfig({"log.dirs": str(tmp_path), "zookeeper.connect": "zk:2181"})
    assert state_of(on_zookeeper, RealFileSystem()) == MigrationState.ZK
