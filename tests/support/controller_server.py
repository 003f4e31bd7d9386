"""A controller with its listener, over a log in memory, in the test's own process and on its loop."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ottla.client.asynchronous import AsyncConnection
from ottla.client.sansio.handshake import handshake
from ottla.client.sockets import connect
from ottla.config.authorizer import AuthorizerSettings
from ottla.config.broker import BrokerConfig
from ottla.metadata.own_authorizer import OwnAuthorizer, open_authorizer_thread
from ottla.metadata.policies import open_policies
from ottla.platform import Platform
from ottla.protocol.framing import encode_request
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.messages.principal import DefaultPrincipalData
from ottla.protocol.schema import Message
from ottla.protocol.versioned import encode_versioned
from ottla.security.acls import StandardAuthorizer
from ottla.server.connection_limits import ConnectionLimits
from ottla.server.controller_server import ControllerServer, open_controller
from ottla.server.listeners import Listeners
from ottla.server.memory import DEFAULT_BYTES, MemoryBudget
from ottla.testing.memory_quorum import MemoryQuorum
from tests.support.quorum_brokers import CLUSTER_ID, NODE

LISTENER = "CONTROLLER"


@asynccontextmanager
async def running(
    loop: Any, node: MemoryQuorum | None = None, *, taken_over: Sequence[Message] | None = None, **settings: str
) -> AsyncIterator[ControllerServer]:
    """An active controller; its port is that of `LISTENER` in `server.endpoints`. `taken_over` are records that
    its log begins with, as after a move from ZooKeeper."""

    async def take_over(epoch: int) -> Sequence[Message]:
        return taken_over or ()

    given = {
        "node.id": str(NODE),
        "process.roles": "controller",
        "listeners": f"{LISTENER}://127.0.0.1:0",
        "controller.listener.names": LISTENER,
        "controller.quorum.voters": f"{NODE}@127.0.0.1:9093",
        **{key.replace("_", "."): text for key, text in settings.items()},
    }
    view, platform = BrokerConfig(given).for_controllers(), Platform()
    quorum = node or MemoryQuorum(NODE)
    failures: list[str] = []
    async with AsyncExitStack() as stack:
        limits = ConnectionLimits(view, descriptors=None)
        memory = MemoryBudget(loop, limit_bytes=DEFAULT_BYTES, largest_request_bytes=view.socket_request_max_bytes)
        stack.callback(memory.close)
        listeners = Listeners(platform.open_sockets, limits, memory, loop)

        async def open_authorizer(settings: AuthorizerSettings) -> StandardAuthorizer:
            if settings.own is None:
                return StandardAuthorizer(settings.super_users, allow_if_none=settings.allow_if_none)
            thread = await open_authorizer_thread(view, settings.own, platform.clock.monotonic)
            stack.callback(thread.close)
            return OwnAuthorizer(settings, thread, platform.clock.monotonic)

        server = await open_controller(
            view,
            platform.clock,
            listeners,
            connect,
            stack,
            cluster_id=CLUSTER_ID,
            open_node=lambda endpoints: quorum,
            bootstrap=(),
            take_over=None if taken_over is None else lambda node: take_over,
            policies=await open_policies(view),
            failed=failures.append,
            open_authorizer=open_authorizer,
            reach=connect,
        )
        yield server
    assert failures == []


def port_of(server: ControllerServer) -> int:
    """Where it listens."""
    return server.endpoints[LISTENER][1]


async def ask(server: ControllerServer, request: Message, version: int | None = None) -> Any:
    """The answer to a request over a connection of its own."""
    connection = AsyncConnection("127.0.0.1", port_of(server), "test", connect=connect, handshake=handshake)
    try:
        if version is None:
            return await connection.ask(request, timeout_s=20)
        return await connection.ask(request, version=version, timeout_s=20)
    finally:
        connection.close()


def envelope(
    request: Message, version: int, principal: str = "alice", address: bytes = b"\x7f\0\0\1"
) -> EnvelopeRequest:
    """A request of a client, forwarded by a broker."""
    who = DefaultPrincipalData(type="User", name=principal, token_authenticated=False)
    framed = b"".join(encode_request(request, version, 7, "client"))  # type: ignore[arg-type]  # no records in it
    return EnvelopeRequest(
        request_data=framed[4:], request_principal=encode_versioned(who, 0), client_host_address=address
    )
