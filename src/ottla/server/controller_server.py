"""A controller's part of a process: the quorum's node, the active controller, and the listeners of controllers.

start   node (files) -> replay, controller -> listeners bound -> node joins the quorum -> listeners -> registration
stop    registration -> node leaves (hands over) -> listeners -> controller
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import ClientError
from ottla.client.sansio.handshake import handshake
from ottla.cluster.image import SECURITY_PROTOCOL_CODES, empty_image
from ottla.cluster.metadata_log.levels import CONTROLLER_REGISTRATIONS_SINCE, RANGES
from ottla.config.authorizer import authorizer_settings
from ottla.errors import ErrorCode, OttlaError
from ottla.metadata.decisions import new_id
from ottla.metadata.ended_brokers import LOOKS, LOOKS_IN_A_MOVE, EndedBrokers
from ottla.metadata.policies import Policies
from ottla.metadata.quorum.node import LeaderAndEpoch, QuorumNode
from ottla.metadata.quorum_controller import QuorumController, TakeOver
from ottla.metadata.quorum_replay import QuorumReplay
from ottla.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from ottla.server.client_quotas import ClientQuotas
from ottla.server.controller_routing import CONTROLLER_ROUTES, controllers_guards
from ottla.server.controller_services import ControllerCluster, ControllerServices
from ottla.server.dispatch import Dispatcher
from ottla.server.large_answers import LargeAnswers
from ottla.server.routing import Handlers
from ottla.server.telemetry import Telemetry
from ottla.slices import Slices
from ottla.tasks import Tasks

if TYPE_CHECKING:
    from ottla.client.sockets import Connect
    from ottla.clock import Clock
    from ottla.cluster.image import MetadataImage
    from ottla.config.authorizer import AuthorizerSettings
    from ottla.config.broker import BrokerConfig
    from ottla.security.acls import StandardAuthorizer
    from ottla.server.audit.audit_log import AuditLog
    from ottla.server.connection import FrameHandler
    from ottla.server.listeners import Listeners

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
CATCH_UP_POLL_S: Final = 0.02

OpenNode = Callable[[Mapping[str, tuple[str, int]]], QuorumNode]
"""Makes the quorum's node, which is reached at these addresses, by listener."""
Observe = Callable[[Dispatcher], "FrameHandler"]
"""Puts something before a dispatcher."""
OpenAuthorizer = Callable[["AuthorizerSettings"], Awaitable["StandardAuthorizer"]]
"""Makes an authorizer without rules. Raises `InvalidConfig`."""


class ControllerServer:
    """One controller. On the loop's thread."""

    def __init__(
        self,
        node: QuorumNode,
        replay: QuorumReplay,
        controller: QuorumController,
        config: "BrokerConfig",
        connect: "Connect",
        endpoints: Mapping[str, tuple[str, int]],
    ) -> None:
        """`config` has the controller's listeners, `endpoints` their addresses as others reach them."""
        self.node = node
        self.replay = replay
        self.controller = controller
        self._config = config
        self._connect = connect
        self.endpoints = endpoints
        """Listener name to address."""
        self._incarnation_id = uuid4()
        self._tasks = Tasks()
        self._when_caught_up: list[Callable[[], None]] = []

    def begin_registration(self) -> None:
        """Register with the active controller, now and whenever another one does not know this process."""
        self._tasks.spawn(self._register(), "registration of this controller")

    def when_caught_up(self, call: Callable[[], None]) -> None:
        """Call something once this node has read the log up to where it was committed when it found the quorum."""
        self._when_caught_up.append(call)

    def begin_catching_up(self) -> None:
        """Look for that, once the node has been started."""
        if self._when_caught_up:
            self._tasks.spawn(self._catch_up(), "catching up with the metadata log")

    async def _catch_up(self) -> None:
        wanted: int | None = None
        while not self.controller.is_active and (wanted is None or self.replay.position.offset < wanted):
            await asyncio.sleep(CATCH_UP_POLL_S)
            wanted = self.node.high_watermark if wanted is None else wanted
        for call in self._when_caught_up:
            call()

    async def close(self) -> None:
        """End the registration."""
        await self._tasks.close()

    async def _register(self) -> None:
        while True:
            known = self.replay.state.controllers.get(self._config.node_id)
            is_known = known is not None and known.incarnation_id == self._incarnation_id
            can_be = self.replay.state.metadata_version >= CONTROLLER_REGISTRATIONS_SINCE
            if not is_known and can_be and self.replay.leader.leader_id is not None:
                try:
                    await self._send_registration()
                except (OttlaError, OSError, ClientError) as problem:
                    log.info("this controller cannot register with the active one now: %s", problem)
            await asyncio.sleep(RETRY_S)

    async def _send_registration(self) -> None:
        """Raises `OttlaError`, OSError, `ClientError`."""
        request = self._registration()
        if self.controller.is_active:
            await self.controller.register_controller(request)
            return
        address = self.node.leader_endpoint()
        if address is None or self.replay.leader.leader_id == self._config.node_id:
            return
        connection = AsyncConnection(
            *address, f"controller-{self._config.node_id}", connect=self._connect, handshake=handshake
        )
        try:
            timeout_s = self._config.controller_quorum_request_timeout_ms / 1000
            answer: Any = await connection.ask(request, timeout_s=timeout_s)
        finally:
            connection.close()
        if answer.error_code:
            log.warning(
                "the active controller does not register this one: %s (%s)",
                ErrorCode(answer.error_code).name,
                answer.error_message,
            )

    def _registration(self) -> ControllerRegistrationRequest:
        protocols = self._config.security_protocols
        return ControllerRegistrationRequest(
            controller_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            zk_migration_ready=False,
            listeners=[
                Listener(
                    name=name,
                    host=host,
                    port=port,
                    security_protocol=SECURITY_PROTOCOL_CODES[protocols.get(name, "PLAINTEXT")],
                )
                for name, (host, port) in self.endpoints.items()
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in RANGES.items()
            ],
        )


async def open_controller(
    config: "BrokerConfig",
    clock: "Clock",
    listeners: "Listeners",
    connect: "Connect",
    stack: AsyncExitStack,
    *,
    cluster_id: str,
    open_node: OpenNode,
    bootstrap: Sequence[bytes],
    take_over: Callable[[QuorumNode], TakeOver] | None = None,
    policies: Policies,
    failed: Callable[[str], None],
    reach: "Connect",
    audit: "AuditLog | None" = None,
    open_authorizer: OpenAuthorizer | None = None,
    observe: Observe = lambda dispatcher: dispatcher,
) -> ControllerServer:
    """Start a controller; `stack` stops it. `config` has the controller's listeners, `connect` reaches others',
    `reach` any address. `open_authorizer` is needed where `config` names an authorizer. `observe` puts what counts and
    traces requests before their dispatcher.

    Raises OSError for an address that cannot be bound, `InvalidConfig`, `KafkaStorageError`.
    """
    loop = asyncio.get_running_loop()
    listeners.open(config, config)
    endpoints = dict(listeners.endpoints)
    node = open_node(endpoints)
    replay = QuorumReplay(cluster_id, failed=failed)
    controller = QuorumController(
        node,
        replay,
        config,
        clock,
        bootstrap=bootstrap,
        take_over=None if take_over is None else take_over(node),
        policies=policies,
    )
    stack.push_async_callback(controller.close)
    server = ControllerServer(node, replay, controller, config, connect, endpoints)
    telemetry = Telemetry(config.telemetry_max_bytes, new_id=new_id)
    quotas = ClientQuotas(config, clock)
    for follow in (telemetry.follow, quotas.follow):
        follow(empty_image(""), replay.image)
        controller.decisions.subscribe(follow)
    cluster = ControllerCluster(controller)
    looks = LOOKS if take_over is None else LOOKS_IN_A_MOVE
    ended = EndedBrokers(reach, lambda: replay.image.brokers, controller.fence_ended, looks=looks)
    stack.push_async_callback(ended.close)

    def led(leader: LeaderAndEpoch) -> None:
        if leader.leader_id == config.node_id:
            ended.begin_term()

    def arrived(old: "MetadataImage", new: "MetadataImage") -> None:
        """Brokers came with the first metadata of the log: one of them may have ended since the freeze."""
        if not old.features and new.brokers and node.leader.leader_id == config.node_id:
            ended.begin_term()

    def disconnected(connection_id: int) -> None:
        telemetry.disconnected(connection_id)
        ended.disconnected(connection_id)

    services = ControllerServices(
        config=config,
        clock=clock,
        loop=loop,
        metadata=controller.decisions,
        controller=controller,
        replay=replay,
        quorum=node,
        cluster=cluster,
        membership=cluster,
        ended=ended,
        large_answers=LargeAnswers(listeners.memory),
        listeners=listeners,
        telemetry=telemetry,
        quotas=quotas,
        slices=Slices(clock),
        audit=audit,
    )
    await _follow_acls(services, server, open_authorizer)
    await _open_tokens(services, stack)
    handlers = services.handlers = Handlers(services, CONTROLLER_ROUTES, controllers_guards)
    dispatcher = Dispatcher(services, handlers, CONTROLLER_ROUTES, claims={})
    stack.push_async_callback(dispatcher.close)
    stack.callback(listeners.close)
    controller.start()
    replay.on_leader(led)
    if take_over is not None:
        replay.subscribe(arrived)
    node.register(replay, replay.snapshot_records)
    listeners.start(controller.decisions, observe(dispatcher), disconnected, tokens=services.tokens, audit=audit)
    await node.start()
    stack.push_async_callback(node.close)
    server.begin_registration()
    server.begin_catching_up()
    stack.push_async_callback(server.close)
    return server


async def _open_tokens(services: ControllerServices, stack: AsyncExitStack) -> None:
    """Change and remove delegation tokens, if there is a key for their secrets."""
    if not services.config.delegation_token_secret_key:
        return
    from ottla.metadata.decided_tokens import DecidedTokens  # only a controller with tokens pays for it

    tokens = services.tokens = DecidedTokens(services.metadata, services.replay, services.config, services.clock)
    stack.push_async_callback(tokens.close)
    await tokens.open()


async def _follow_acls(
    services: ControllerServices, server: ControllerServer, open_authorizer: OpenAuthorizer | None
) -> None:
    """Authorize requests, if there is an authorizer. Until this node has read the log, only super users may do
    anything, as in Kafka, and what an authorizer of the operator's own allows. Raises `InvalidConfig`."""
    settings = authorizer_settings(services.config)
    if settings is None:
        return
    from ottla.metadata.quorum_acls import QuorumAcls  # only a controller with an authorizer pays for it

    assert open_authorizer is not None
    authorizer = await open_authorizer(settings._replace(allow_if_none=False))
    acls = services.acls = QuorumAcls(authorizer, services.metadata, services.slices)
    services.replay.on_advance(acls.follow)
    if settings.allow_if_none:
        server.when_caught_up(lambda: authorizer.follow_default(allow_if_none=True))
