"""What a node keeps on its disk about the move from ZooKeeper, and how it shows how far it is.

    zookeeper.waiting    a controller was started with the switch of the move: its log begins with what ZooKeeper has,
                         and with nothing else
    zookeeper.left       the node has left ZooKeeper for good

Both are in the metadata directory, and stay there.
"""

import os
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from ottla.config.quorum import SWITCH
from ottla.errors import InvalidConfig

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.log.fs import FileSystem

WAITING: Final = "zookeeper.waiting"
LEFT: Final = "zookeeper.left"


class MigrationState(IntEnum):
    """How far the move is, as Kafka 3.9 counts it in its metric ZkMigrationState."""

    NONE = 0
    """The cluster has never been in ZooKeeper, as far as this node knows."""
    MIGRATION = 1
    """The metadata is frozen, or this node goes from ZooKeeper to the quorum."""
    PRE_MIGRATION = 2
    """The move is waited for."""
    POST_MIGRATION = 3
    """This node has left ZooKeeper."""
    ZK = 4
    """This node is a broker on ZooKeeper, without the settings of the move."""


def in_metadata_directory(config: "BrokerConfig", name: str) -> str:
    """The path of one of the two files."""
    return os.path.join(config.metadata_log_dir or config.log_dirs[0], name)


def state_of(config: "BrokerConfig", fs: "FileSystem") -> MigrationState:
    """The state of a node in a cluster that has no move before it."""
    if config.zookeeper_connect is not None:
        return MigrationState.ZK
    return MigrationState.POST_MIGRATION if fs.exists(in_metadata_directory(config, LEFT)) else MigrationState.NONE


def check_not_waiting(config: "BrokerConfig", fs: "FileSystem") -> None:
    """Raise `InvalidConfig` for a controller that might begin a cluster without topics while the one in ZooKeeper is
    frozen."""
    if fs.exists(in_metadata_directory(config, WAITING)) and not fs.exists(in_metadata_directory(config, LEFT)):
        raise InvalidConfig(
            f"this controller waits for the metadata of a cluster on ZooKeeper, and has not noted that it has left: "
            f"start it with zookeeper.connect and {SWITCH}=true, until it logs that it has left ZooKeeper; if the move "
            f"was given up, remove __cluster_metadata-0 and {WAITING} from "
            f"{os.path.dirname(in_metadata_directory(config, WAITING))}"
        )
