"""How a process with the role of a controller begins: its metadata directory, its cluster, its node of the quorum."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import InvalidConfig
from ottla.ids import uuid_from_text
from ottla.log.directories import LogDirectories
from ottla.log.directory import LogDirectory
from ottla.log.fs import replace_atomically
from ottla.metadata.initial_users import initial_users, warn_of_missing_users
from ottla.metadata.lone_broker import lone_metadata
from ottla.metadata.policies import Policies
from ottla.metadata.quorum import snapshots
from ottla.metadata.quorum.node import QuorumNode
from ottla.server.controller_server import ControllerServer, Observe, OpenAuthorizer, open_controller
from ottla.server.migration_state import WAITING, check_not_waiting, in_metadata_directory
from ottla.server.quorum_nodes import raft_node

if TYPE_CHECKING:
    from ottla.client.sockets import Connect
    from ottla.clock import Clock
    from ottla.cluster.image import MetadataImage
    from ottla.config.broker import BrokerConfig
    from ottla.server.audit.audit_log import AuditLog
    from ottla.server.listeners import Listeners
    from ottla.server.migration import Migration

log = logging.getLogger(__name__)

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
"""The first records of a cluster, as `kafka-storage.sh format` leaves them in the metadata directory."""


class SharedNode:
    """The node of this process, for its broker, which starts and ends while the node stays."""

    def __init__(self, node: QuorumNode) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def start(self) -> None:
        """It has been started."""

    async def close(self) -> None:
        """Its owner closes it."""


async def start_controller(
    config: "BrokerConfig",
    clock: "Clock",
    listeners: "Listeners",
    connect: "Connect",
    directories: LogDirectories,
    stack: AsyncExitStack,
    *,
    policies: Policies,
    failed: Callable[[str], None],
    audit: "AuditLog | None",
    open_authorizer: OpenAuthorizer,
    reach: "Connect",
    migration: "Migration | None" = None,
    observe: Observe,
) -> ControllerServer:
    """Start the controller of this process, at `listeners`, which are not open yet; `stack` stops it. `directories` are
    the broker's, `connect` reaches other controllers, `reach` any address, `migration` is that of a cluster which comes
    from ZooKeeper. `observe` as `open_controller`.

    Raises `InvalidConfig` for a directory that was not formatted, or is another node's; as `lone_metadata` and
    `open_controller` do.
    """
    stack.push_async_callback(listeners.close_certificates)
    stack.callback(listeners.close)
    directory, cluster_id = _metadata_directory(config, directories, stack, migration)
    bootstrap_file = os.path.join(directory.path, BOOTSTRAP_FILE)
    bootstrap: list[bytes] = []
    if directories.fs.exists(bootstrap_file):
        records = snapshots.read_records(directories.fs, bootstrap_file)
        bootstrap = await asyncio.get_running_loop().run_in_executor(None, list, records)
    if config.initial_scram_users and migration is None:
        from ottla.metadata.quorum_bootstrap import with_initial_users  # only a new cluster with users pays for it

        users = initial_users(config.initial_scram_users)
        bootstrap = await asyncio.get_running_loop().run_in_executor(None, with_initial_users, bootstrap, users)
    alone = await lone_metadata(
        Path(directory.path),
        uuid_from_text(directory.directory_id),
        config,
        directories.fs,
        now_ms=clock.now_ms(),
    )

    def open_node(endpoints: Mapping[str, tuple[str, int]]) -> QuorumNode:
        return raft_node(
            config,
            directories.fs,
            clock,
            connect,
            cluster_id=cluster_id,
            directory_id=uuid_from_text(directory.directory_id),
            endpoints=endpoints,
            failed=failed,
        )

    server = await open_controller(
        config.for_controllers(),
        clock,
        listeners,
        connect,
        stack,
        cluster_id=cluster_id,
        open_node=open_node,
        bootstrap=bootstrap if alone is None else alone.records,
        take_over=None if migration is None else migration.takes_over(cluster_id),
        policies=policies,
        failed=failed,
        audit=audit,
        open_authorizer=open_authorizer,
        observe=observe,
        reach=reach,
    )
    if migration is not None:
        migration.announce_controller(server.node)
    else:
        server.when_caught_up(lambda: warn_of_missing_users(config, server.replay.image))
    if alone is not None:
        _when_committed(server, lambda: alone.moved(directories.fs))
    return server


def _when_committed(server: ControllerServer, moved: Callable[[], None]) -> None:
    """Call `moved` once the log has the first records of the cluster."""

    def see(_: object, image: "MetadataImage") -> None:
        if image.features:
            end()
            moved()

    end = server.replay.subscribe(see)
    if server.replay.image.features:
        see(None, server.replay.image)


def shares(node: QuorumNode) -> Callable[..., QuorumNode]:
    """How the broker of the same process follows the log: by a node that it does not start and close."""
    shared: Any = SharedNode(node)

    def open_node(*_: object) -> QuorumNode:
        node: QuorumNode = shared
        return node

    return open_node


def _metadata_directory(
    config: "BrokerConfig", directories: LogDirectories, stack: AsyncExitStack, migration: "Migration | None"
) -> tuple[LogDirectory, str]:
    """The directory of the metadata log, claimed for this node, and its cluster. Raises `InvalidConfig`."""
    path = Path(config.metadata_log_dir or config.log_dirs[0])
    known = next((each for each in directories.directories if each.path == path), None)
    own = known or LogDirectory(path, fs=directories.fs, clock=directories.clock)
    own.lock()
    if known is None:
        stack.callback(own.close)
    cluster_id = own.owner().get("cluster.id")
    if not cluster_id and migration is not None:
        cluster_id = migration.id_of_new_directory
    if not cluster_id:
        raise InvalidConfig(
            f"{path} is not formatted for a controller: format it, on each node, with `ottla storage format` and the "
            "same cluster id"
        )
    own.acquire(cluster_id=cluster_id, node_id=config.node_id)
    waiting = in_metadata_directory(config, WAITING)
    if migration is None:
        check_not_waiting(config, directories.fs)
    elif not directories.fs.exists(waiting):  # on the disk before this node may vote
        replace_atomically(directories.fs, waiting, f"{cluster_id}\n".encode())
    directories.of_metadata = own
    return own, cluster_id
