"""A node of the metadata quorum in the test's own process: its log, its connections, and a listener for the others.

Serves the requests of the quorum alone, as a controller without a controller would.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID, uuid4

from ottla.client.sockets import Connect, connect
from ottla.clock import Clock, SystemClock
from ottla.errors import ErrorCode
from ottla.log.fs import FileSystem, RealFileSystem
from ottla.metadata.quorum.metadata_log import MetadataLogConfig
from ottla.metadata.quorum.node import CommittedBatch, LeaderAndEpoch, OffsetAndEpoch
from ottla.metadata.quorum.raft_node import RaftNode
from ottla.protocol.api import ApiKey, request_class
from ottla.protocol.compiled import decode
from ottla.protocol.framing import decode_request_header, encode_response
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, SupportedFeatureKey
from ottla.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from ottla.quorum.config import OwnReplica, QuorumConfig
from ottla.quorum.replicas import Endpoint, ReplicaKey

SERVED: Final = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.FETCH: (12, 17),
    ApiKey.VOTE: (0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: (0, 1),
    ApiKey.END_QUORUM_EPOCH: (0, 1),
    ApiKey.DESCRIBE_CLUSTER: (1, 2),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.FETCH_SNAPSHOT: (0, 1),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.UPDATE_RAFT_VOTER: (0, 0),
}
TIMEOUT_S: Final = 60.0
KRAFT_VERSIONS: Final = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)


class Recorder:
    """What a listener was sent, as a list of records with their offsets."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []
        self.snapshots: list[OffsetAndEpoch] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.changed = asyncio.Event()

    def handle_snapshot(self, snapshot: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        self.snapshots.append(snapshot)
        self.records = [(-1, record) for record in records]
        self.changed.set()

    def handle_commit(self, batch: CommittedBatch) -> None:
        self.records += [(batch.base_offset + delta, record) for delta, record in enumerate(batch.records)]
        self.changed.set()

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)
        self.changed.set()

    @property
    def values(self) -> list[bytes]:
        return [record for _, record in self.records]


async def until(condition: Callable[[], object], *, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until a condition holds, which is looked at again and again. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


class QuorumServer:
    """One node and its listener, on the loop that runs. A context manager."""

    def __init__(
        self,
        node_id: int,
        log_dir: Path,
        config: Callable[[int], QuorumConfig] | QuorumConfig,
        *,
        cluster_id: str,
        port: int,
        directory_id: UUID | None = None,
        votes: bool = True,
        log_config: MetadataLogConfig | None = None,
        fs: FileSystem | None = None,
        log_dir_of_fs: str | None = None,
        connect: Connect = connect,
        clock: Clock | None = None,
        linger_ms: int = 0,
    ) -> None:
        """`votes`: the node has a listener, and may be a voter; else it observes. `log_dir_of_fs` is its directory in
        an `fs` of the test's own."""
        log_dir.mkdir(parents=True, exist_ok=True)
        self.port = port
        self.problems: list[BaseException] = []
        """Why the node has ended, if it has."""
        endpoints = (Endpoint("CONTROLLER", "127.0.0.1", port),) if votes else ()
        self.node = RaftNode(
            OwnReplica(ReplicaKey(node_id, directory_id or uuid4()), cluster_id, endpoints),
            log_dir_of_fs or str(log_dir),
            config if isinstance(config, QuorumConfig) else config(port),
            log_config or MetadataLogConfig(),
            fs=fs or RealFileSystem(),
            clock=clock or SystemClock(),
            connect=connect,
            linger_ms=linger_ms,
            failed=self.problems.append,
        )
        self._votes = votes
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the log, then listen."""
        await self.node.start()
        if self._votes:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Leave the quorum in order."""
        await self.node.close()
        self._hang_up()

    def kill(self) -> None:
        """Vanish, as a process does that is killed: nothing more is sent or written."""
        self.node.fail(RuntimeError("killed by a test"))
        self._hang_up()

    def _hang_up(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header, position = decode_request_header(frame)
                version = header.api_version
                if header.api_key == ApiKey.API_VERSIONS:
                    answer: Any = _versions()
                    if version > SERVED[ApiKey.API_VERSIONS][1]:
                        answer.error_code, version = ErrorCode.UNSUPPORTED_VERSION, 0
                elif header.api_key == ApiKey.DESCRIBE_CLUSTER:
                    answer = self._described()
                else:
                    assert header.api_key in SERVED, ApiKey(header.api_key)
                    request = decode(request_class(header.api_key), memoryview(frame)[position:], version)
                    answer = await self.node.handle(request, version)
                for piece in encode_response(answer, version, header.correlation_id):
                    writer.write(piece)  # type: ignore[arg-type]  # no file region among them
        self._connections.discard(task)
        writer.close()

    def _described(self) -> DescribeClusterResponse:
        """The controllers, for administrative clients: this one, and the leader that it knows."""
        node = self.node
        known = {node.node_id: ("127.0.0.1", self.port)}
        leader, endpoint = node.leader.leader_id, node.leader_endpoint()
        if leader is not None and endpoint is not None:
            known[leader] = endpoint
        return DescribeClusterResponse(
            endpoint_type=2,
            cluster_id=node.own.cluster_id,
            controller_id=-1 if leader is None else leader,
            brokers=[
                DescribeClusterBroker(broker_id=node_id, host=host, port=port)
                for node_id, (host, port) in known.items()
            ],
        )


def _versions() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in SERVED.items()],
        supported_features=[KRAFT_VERSIONS],
    )
