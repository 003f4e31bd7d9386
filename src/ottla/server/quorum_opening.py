"""How a broker reaches the quorum of its controllers: its cluster, its node that follows the log, its membership."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import ClientError
from ottla.client.sansio.handshake import handshake
from ottla.client.sockets import Connect, Resolve
from ottla.config.quorum import BOOTSTRAP, VOTERS
from ottla.errors import InvalidConfig
from ottla.ids import BrokerId
from ottla.log.directory import LogDirectory
from ottla.log.meta_properties import directory_uuid
from ottla.metadata.initial_users import warn_of_missing_users
from ottla.metadata.policies import Policies
from ottla.metadata.quorum.node import QuorumNode
from ottla.metadata.quorum_metadata import QuorumMetadata
from ottla.metadata.quorum_replay import QuorumReplay
from ottla.metadata.registered_brokers import NEVER, Find, Found, RegisteredBrokers
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.server.cluster_member import Join
from ottla.server.quorum_membership import QuorumMembership
from ottla.server.quorum_nodes import raft_node

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.log.directories import LogDirectories
    from ottla.log.fs import FileSystem
    from ottla.replication.manager import ReplicaManager

log = logging.getLogger(__name__)

CONTROLLERS: Final = 2
"""The endpoint type of DescribeCluster that asks a controller (KIP-919)."""
POLL_S: Final = 0.02
LOOK_AGAIN_S: Final = 0.5
STANDSTILL_S: Final = 1.0
"""How long nothing is delivered once the end of the log has been reached."""


def registered_in(metadata: QuorumMetadata) -> Find:
    """The brokers that the log has as registered, the fenced ones among them: they fetch before they are unfenced."""

    async def find() -> Found:
        brokers = {BrokerId(broker.broker_id): broker.image() for broker in metadata.state.brokers.values()}
        return Found(brokers, NEVER, None)

    return find


OpenNode = Callable[["BrokerConfig", str, UUID, Connect, Callable[[str], None]], QuorumNode]
"""Opens the node that follows the log: settings, cluster id, directory id, connections to controllers, and what to call
with the reason when it cannot go on."""


def opens_observers(fs: "FileSystem", clock: "Clock") -> OpenNode:
    """Nodes that keep the log in `metadata.log.dir`, and do not vote."""

    def open_node(
        config: "BrokerConfig",
        cluster_id: str,
        directory_id: UUID,
        connect: Connect,
        stop_broker: Callable[[str], None],
    ) -> QuorumNode:
        return raft_node(
            config, fs, clock, connect, cluster_id=cluster_id, directory_id=directory_id, failed=stop_broker
        )

    return open_node


async def open_quorum(
    config: "BrokerConfig",
    clock: "Clock",
    connect: Connect,
    connect_controller: Connect,
    resolve: Resolve,
    open_node: OpenNode,
    directories: "LogDirectories",
    stack: AsyncExitStack,
    stop_broker: Callable[[str], None],
    policies: Policies,
    *,
    replay: QuorumReplay | None = None,
    moved_as: UUID | None = None,
) -> tuple[QuorumMetadata, Join]:
    """Reach the quorum, take the log directories for its cluster, and follow its log; `stack` ends that. `replay` is
    that of the controller of this process, if there is one. `moved_as` is as for `BrokerLifecycle`.

    Raises `InvalidConfig` where no controller answers, and what `LogDirectories.acquire` does.
    """
    loop = asyncio.get_running_loop()
    directories.lock()
    cluster_id = directories.find_cluster_id() or await _cluster_id(config, connect_controller)
    directories.acquire(cluster_id=cluster_id, node_id=config.node_id)
    directory_id = directory_uuid(metadata_directory(config, directories, cluster_id).directory_id)
    node = open_node(config, cluster_id, directory_id, connect_controller, stop_broker)
    if replay is None:
        replay = QuorumReplay(cluster_id, failed=stop_broker)
        node.register(replay, replay.snapshot_records)
    metadata = QuorumMetadata(config, replay, policies)
    await node.start()
    stack.push_async_callback(node.close)
    timeout_s = config.initial_broker_registration_timeout_ms / 1000
    try:
        async with asyncio.timeout(timeout_s):
            await _until_followed(node, metadata, config)
    except TimeoutError:
        raise InvalidConfig(_unreachable(config, f"within {timeout_s:.0f} s")) from None
    if "controller" not in config.process_roles:
        warn_of_missing_users(config, metadata.image)

    def join(replicas: "ReplicaManager") -> QuorumMembership:
        registered = RegisteredBrokers(
            registered_in(metadata),
            resolve,
            config.inter_broker_peer_addresses,
            lambda: membership.lifecycle.broker_epoch,
        )
        membership = QuorumMembership(
            node,
            metadata,
            registered,
            replicas,
            config,
            clock,
            loop,
            connect,
            connect_controller,
            directories,
            stop_broker,
            moved_as,
        )
        return membership

    return metadata, join


def metadata_directory(config: "BrokerConfig", directories: "LogDirectories", cluster_id: str) -> LogDirectory:
    """The directory of the metadata log, which may be none of the log directories. Raises as `LogDirectory.acquire`."""
    if directories.of_metadata is not None:
        return directories.of_metadata
    if config.metadata_log_dir is None:
        return directories.directories[0]
    path = Path(config.metadata_log_dir)
    known = next((directory for directory in directories.directories if directory.path == path), None)
    if known is not None:
        return known
    own = LogDirectory(path, fs=directories.fs, clock=directories.clock)
    own.acquire(cluster_id=cluster_id, node_id=config.node_id)
    return own


async def _until_followed(node: QuorumNode, metadata: QuorumMetadata, config: "BrokerConfig") -> None:
    """Wait until the log has been followed as far as it was committed when this node first learned of it.

    Raises `InvalidConfig` where that is in vain, because all controllers belong to another cluster.
    """
    wanted: int | None = None
    seen, still = metadata.offset, 0
    while wanted is None or metadata.offset + 1 < wanted:
        await asyncio.sleep(POLL_S)
        if node.meets_only_strangers:
            raise InvalidConfig(
                f"{config.log_dirs[0]} belongs to the cluster {metadata.image.cluster_id}, and the controllers at "
                f"{_addresses(config)} to another one: name empty directories in log.dirs, or see {_setting(config)}"
            )
        wanted = node.high_watermark if wanted is None else wanted
        # At its end may be control records, which are not delivered; an empty record follows soon.
        still = 0 if metadata.offset != seen or wanted is None or seen < 0 else still + 1
        seen = metadata.offset
        if still * POLL_S >= STANDSTILL_S:
            return


async def _cluster_id(config: "BrokerConfig", connect: Connect) -> str:
    """The id of the controllers' cluster, for new log directories. Raises `InvalidConfig` where none answers."""
    assert config.quorum is not None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + config.initial_broker_registration_timeout_ms / 1000
    while True:
        for host, port in config.quorum.addresses:
            connection = AsyncConnection(host, port, f"broker-{config.node_id}", connect=connect, handshake=handshake)
            try:
                request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=CONTROLLERS)
                answer = await connection.ask(request, timeout_s=config.controller_quorum_request_timeout_ms / 1000)
            except (ClientError, OSError) as problem:
                log.warning("controller at %s:%d cannot be asked for its cluster: %s", host, port, problem)
            else:
                if answer.cluster_id:
                    return str(answer.cluster_id)
                log.warning("controller at %s:%d does not name its cluster: %s", host, port, answer.error_message)
            finally:
                connection.close()
        if loop.time() >= deadline:
            raise InvalidConfig(_unreachable(config, "in time"))
        await asyncio.sleep(LOOK_AGAIN_S)


def _unreachable(config: "BrokerConfig", when: str) -> str:
    assert config.quorum is not None
    return (
        f"{_setting(config)}: no active controller was found {when} by way of {_addresses(config)}: see whether the "
        f"controllers run, and whether these are the addresses of their listener {config.quorum.listener} "
        f"({config.quorum.security_protocol})"
    )


def _setting(config: "BrokerConfig") -> str:
    assert config.quorum is not None
    return BOOTSTRAP if config.quorum.bootstrap_servers else VOTERS


def _addresses(config: "BrokerConfig") -> str:
    assert config.quorum is not None
    return ", ".join(f"{host}:{port}" for host, port in config.quorum.addresses)
