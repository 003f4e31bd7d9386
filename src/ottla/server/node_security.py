"""What protects one node: access rules, delegation tokens, the audit log, and how it connects to other nodes.

Everything here is opened when a broker or a controller starts, and closed by the stack it is opened with. Each part's
code is loaded only where the settings ask for it.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ottla.client.login import log_in
from ottla.clock import Clock
from ottla.config.authorizer import AuthorizerSettings, authorizer_settings
from ottla.config.broker import BrokerConfig
from ottla.config.sasl import PROTOCOLS as SASL_PROTOCOLS
from ottla.config.tls import PROTOCOLS as TLS_PROTOCOLS
from ottla.log.fs import FileSystem
from ottla.metadata.view import MetadataView
from ottla.server.listeners import Listeners

if TYPE_CHECKING:
    from ottla.client.sockets import Connect
    from ottla.metadata.acls import Acls
    from ottla.metadata.delegation_tokens import DelegationTokens
    from ottla.metadata.own_authorizer import AuthorizerThread
    from ottla.metadata.quorum_acls import FollowedAcls
    from ottla.security.acls import StandardAuthorizer
    from ottla.server.audit.audit_log import AuditLog


class NodeSecurity:
    """The protection of one process, whichever roles it has. On the loop's thread.

    The settings are given each time: a node that leaves ZooKeeper goes on with others.
    """

    def __init__(self, fs: FileSystem, clock: Clock, connect: "Connect", give_up: Callable[[str], None]) -> None:
        """`connect` reaches any address in plain text; `give_up` is called with the reason when the node must not go on
        without its audit log."""
        self._fs = fs
        self._clock = clock
        self._connect = connect
        self._give_up = give_up
        self._audit: AuditLog | None = None
        self._thread: AuthorizerThread | None = None
        """That of the operator's own authorizer, which both roles ask."""

    async def open_tokens(
        self, config: BrokerConfig, metadata: "MetadataView", stack: AsyncExitStack
    ) -> "DelegationTokens | None":
        """The delegation tokens; None without a key for their secrets."""
        if not config.delegation_token_secret_key:
            return None
        from ottla.metadata.delegation_tokens import DelegationTokens  # only a broker with tokens pays for it

        if config.quorum is None:
            shared = config.zookeeper_connect is not None
            tokens = DelegationTokens(metadata.store, config, self._clock, shared=shared)
        else:
            from ottla.metadata.quorum_tokens import QuorumTokens

            tokens = QuorumTokens(metadata, config, self._clock)
        stack.push_async_callback(tokens.close)
        await tokens.open()
        return tokens

    async def open_acls(
        self, config: BrokerConfig, metadata: "MetadataView", stack: AsyncExitStack
    ) -> "Acls | FollowedAcls | None":
        """The access rules, read before the first client is served; None without an authorizer."""
        settings = authorizer_settings(config)
        if settings is None:
            return None
        authorizer = await self.open_authorizer(config, settings, stack)
        if config.quorum is not None:
            from ottla.metadata.quorum_metadata import access_rules

            return access_rules(metadata, authorizer)
        from ottla.metadata.acls import Acls

        acls = Acls(metadata.store, authorizer, shared=config.zookeeper_connect is not None)
        stack.push_async_callback(acls.close)
        await acls.open()
        return acls

    async def open_authorizer(
        self, config: BrokerConfig, settings: AuthorizerSettings, stack: AsyncExitStack
    ) -> "StandardAuthorizer":
        """An authorizer without rules yet. One of the operator's own is asked by both roles."""
        if settings.own is None:
            from ottla.security.acls import StandardAuthorizer

            return StandardAuthorizer(settings.super_users, allow_if_none=settings.allow_if_none)
        from ottla.metadata.own_authorizer import OwnAuthorizer, open_authorizer_thread

        now = self._clock.monotonic
        thread = self._thread
        if thread is None:
            thread = self._thread = await open_authorizer_thread(config, settings.own, now)
            stack.push_async_callback(self._close_authorizer, thread)
        return OwnAuthorizer(settings, thread, now)

    async def _close_authorizer(self, thread: "AuthorizerThread") -> None:
        self._thread = None
        await asyncio.get_running_loop().run_in_executor(None, thread.close)

    async def open_audit(self, config: BrokerConfig, stack: AsyncExitStack) -> "AuditLog | None":
        """The audit log, one for both roles; None where none is configured."""
        if self._audit is not None or not config.ottla_audit_file:
            return self._audit
        from ottla.server.audit.audit_log import open_audit_log  # only a broker with one pays for it

        audit = await open_audit_log(config, self._fs, self._clock, self._give_up)
        if audit is not None:
            stack.push_async_callback(audit.close)
        self._audit = audit
        return audit

    def to_brokers(self, config: BrokerConfig, listeners: Listeners, stack: AsyncExitStack) -> "Connect":
        """How this broker connects to others: as their listener between brokers asks for."""
        listener = config.inter_broker_listener
        return self._connect_to(config, listener, config.security_protocols.get(listener), listeners, stack)

    def to_controllers(self, config: BrokerConfig, listeners: Listeners, stack: AsyncExitStack) -> "Connect":
        """How this node connects to the controllers of its quorum: as their listener asks for."""
        quorum = config.quorum
        assert quorum is not None
        return self._connect_to(config, quorum.listener, quorum.security_protocol, listeners, stack)

    def _connect_to(
        self, config: BrokerConfig, listener: str, protocol: str | None, listeners: Listeners, stack: AsyncExitStack
    ) -> "Connect":
        """How this broker connects to that listener of other nodes."""
        connect = self._connect
        if protocol in TLS_PROTOCOLS:
            connect = listeners.connector(config, listener)
        if protocol in SASL_PROTOCOLS:
            from ottla.config.logins import login
            from ottla.server.broker_logins import BrokerLogins  # only a broker that logs in pays for its code

            logins = BrokerLogins(login(config, listener))
            stack.callback(logins.close)
            plain, client_id = connect, f"broker-{config.node_id}"
            return lambda host, port: log_in(plain, logins, host, port, client_id)
        return connect
