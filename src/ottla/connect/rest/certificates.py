"""TLS of a worker's REST API: Kafka Connect's settings `listeners.https.ssl.*`, and certificates that are replaced.

Where none of them is given, `ssl.*` of the worker count, all of them or none, as in Kafka.
"""

import logging
import ssl
from collections.abc import Mapping
from typing import Any, Final

from ottla.config.tls import TLS_SETTINGS, TlsSettings, prefixed_tls_settings
from ottla.connect.errors import ConfigError
from ottla.errors import InvalidConfig
from ottla.security.contexts import client_context, server_context
from ottla.security.stores import fingerprint

log = logging.getLogger(__name__)

PREFIX: Final = "listeners.https."
CHECK_INTERVAL_S: Final = 5.0
"""How often files are looked at for a change of their time or size."""


def https_settings(given: Mapping[str, str]) -> TlsSettings:
    """How the REST API encrypts. Raises ConfigError."""
    prefix = PREFIX if any(name.startswith(PREFIX) for name in given) else ""
    try:
        return prefixed_tls_settings(
            "https", prefix, given, lambda name: TLS_SETTINGS[name].parse(TLS_SETTINGS[name].default)
        )
    except InvalidConfig as wrong:
        raise ConfigError(str(wrong), PREFIX) from None


class Certificates:
    """The context of the listeners, and that of requests to other workers. Raises ConfigError."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._files = fingerprint(settings.key_store, settings.trust_store)
        self._make()
        self.listening: Final = self._server
        """What connections are accepted with; each then gets the newest certificates."""
        self.listening.sni_callback = self._newest

    @property
    def client(self) -> ssl.SSLContext:
        """For requests to other workers."""
        return self._client

    def refresh(self) -> None:
        """Look at the files once. Connections go on with what they have; new ones get what is new."""
        found = fingerprint(self._settings.key_store, self._settings.trust_store)
        if found == self._files:
            return
        self._files = found
        try:
            self._make()
        except ConfigError as problem:
            log.error("%s; the REST API goes on with the certificates that it has", problem)
        else:
            log.info("the REST API has new certificates")

    def _make(self) -> None:
        try:
            made = server_context(self._settings), client_context(self._settings)
        except InvalidConfig as problem:
            raise ConfigError(
                f"{problem} (with the prefix {PREFIX} for the REST API alone)", f"{PREFIX}ssl.keystore.location"
            ) from None
        self._server, self._client = (each.context for each in made)

    def _newest(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._server
