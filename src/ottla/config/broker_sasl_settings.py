"""The broker's settings about SASL that Ottla acts on; a part of `broker_settings`.

Most are read with the prefix of a listener, or of a listener and a mechanism, first: see `sasl`.
"""

from typing import Final

from ottla.config.changeable import CHANGEABLE
from ottla.config.setting import Change, Kind, Limit, Setting
from ottla.config.topic_settings import AT_LEAST_0


def _sasl(name: str, kind: Kind, default: str | None, doc: str, limit: Limit | None = None) -> Setting:
    return Setting(name, kind, default, doc, limit, CHANGEABLE.get(name, Change.READ_ONLY))


SASL: Final = (
    _sasl(
        "sasl.enabled.mechanisms",
        Kind.LIST,
        "GSSAPI",
        "SASL mechanisms that are offered: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. GSSAPI, Kafka's default, is not "
        "supported, so that a listener with SASL needs this setting.",
    ),
    _sasl(
        "sasl.mechanism.inter.broker.protocol",
        Kind.STRING,
        "GSSAPI",
        "SASL mechanism by which this broker logs in to others.",
    ),
    _sasl(
        "sasl.server.max.receive.size",
        Kind.INT,
        "524288",
        "Largest request of a client that has not authenticated, in bytes.",
    ),
    _sasl(
        "connections.max.reauth.ms",
        Kind.LONG,
        "0",
        "How long a login lasts before the client has to authenticate again (KIP-368); 0 for no limit.",
    ),
    _sasl(
        "connection.failed.authentication.delay.ms",
        Kind.INT,
        "100",
        "Pause before a refused login is answered and the connection closed: it slows guessing down.",
        AT_LEAST_0,
    ),
)
