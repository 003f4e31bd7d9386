"""Files of client properties, and the nearest of the names that there are."""

import re
from typing import Final

from ottla.cli.terminal import suggest
from ottla.client.properties import PropertiesProblem

_COMMON: Final = (
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "https.ca.location",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "enable.ssl.certificate.verification",
    "ssl.endpoint.identification.algorithm",
    "acks",
    "batch.size",
    "linger.ms",
    "compression.type",
    "message.max.bytes",
    "message.timeout.ms",
    "request.timeout.ms",
    "queue.buffering.max.messages",
    "queue.buffering.max.kbytes",
    "partitioner",
    "enable.idempotence",
    "max.in.flight.requests.per.connection",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "auto.offset.reset",
    "isolation.level",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "fetch.message.max.bytes",
    "socket.timeout.ms",
    "broker.address.family",
    "debug",
)


def read_properties(text: str) -> dict[str, str]:
    """`key=value` lines as a mapping; `#` and `!` start comments, a backslash at the end joins lines.

    Raises PropertiesProblem for a line that is neither.
    """
    properties: dict[str, str] = {}
    joined = re.sub(r"\\\r?\n[ \t]*", "", text)
    for line in joined.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, equals, value = stripped.partition("=")
        if not equals or not key.strip():
            raise PropertiesProblem(f"{stripped!r} is not KEY=VALUE")
        properties[key.strip()] = value.strip()
    return properties


def unknown_property(name: str) -> str:
    """The sentence about a client property that the client library does not know."""
    return f"there is no client property {name!r}{suggest.did_you_mean(name, _COMMON)}"
