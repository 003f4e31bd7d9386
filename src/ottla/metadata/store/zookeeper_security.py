"""TLS and logins of connections with ZooKeeper. Files are read for every connection, so that new ones are taken up."""

import secrets
import socket
from typing import Final

from ottla.config.logins import PasswordLogin
from ottla.config.zookeeper import ZooKeeperSecurity
from ottla.errors import InvalidConfig
from ottla.metadata.store.zookeeper_wire import Login, SecureConnections
from ottla.security.digest_md5 import DigestLogin

DIGEST_URI: Final = "zookeeper/zk-sasl-md5"
"""For every server, as ZooKeeper's own clients have it."""
_NONCE_BYTES: Final = 24


def secure_connections(security: ZooKeeperSecurity) -> SecureConnections | None:
    """None if nothing is asked for. Reads files; raises `InvalidConfig`."""
    return None if security.tls is None and security.login is None else _Secure(security)


class _Secure:
    def __init__(self, security: ZooKeeperSecurity) -> None:
        self._security = security
        self._kerberos = None
        if security.tls is not None:
            from ottla.security.contexts import client_context

            client_context(security.tls)
        if security.login is not None and not isinstance(security.login, PasswordLogin):
            from ottla.security.gssapi import need_kerberos
            from ottla.security.kerberos import KerberosLogins

            need_kerberos()
            self._kerberos = KerberosLogins(security.login.key, security.login.service)

    def encrypted(self, opened: socket.socket, host: str) -> socket.socket:
        """As `SecureConnections.encrypted`."""
        if self._security.tls is None:
            return opened
        from ottla.security.contexts import client_context

        try:
            context = client_context(self._security.tls).context
        except InvalidConfig as problem:
            raise ConnectionError(str(problem)) from problem
        return context.wrap_socket(opened, server_hostname=host)

    def login(self, host: str) -> Login | None:
        """As `SecureConnections.login`."""
        login = self._security.login
        if login is None:
            return None
        if isinstance(login, PasswordLogin):
            return DigestLogin(login.user, login.password, DIGEST_URI, secrets.token_urlsafe(_NONCE_BYTES))
        assert self._kerberos is not None
        made = self._kerberos.to(host)
        made.prepare()
        return made
