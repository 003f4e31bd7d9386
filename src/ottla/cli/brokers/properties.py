"""Client properties files, and the few of the Java client's names that the client library spells differently."""

import re
from collections.abc import Mapping
from typing import Final

from ottla.cli.terminal import suggest

_JAAS_LOGIN: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')

_JAVA_ONLY: Final = {
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
    "partitioner.class",
    "partition.assignment.strategy.class",
}
_COMMON: Final = (
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
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


class PropertiesProblem(ValueError):
    """A property that cannot be used; the text names the reason and the remedy."""


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


def client_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties written for the Java client as the client library wants them.

    User name and password are taken out of `sasl.jaas.config`; serializers and the like are dropped, since they have no
    meaning here. Raises PropertiesProblem for key stores in Java's own format.
    """
    translated: dict[str, str] = {}
    for key, value in properties.items():
        if key in _JAVA_ONLY:
            continue
        if key == "sasl.jaas.config":
            login = dict(_JAAS_LOGIN.findall(value))
            if not {"username", "password"} <= login.keys():
                raise PropertiesProblem(
                    "sasl.jaas.config has no username and password; set sasl.username, sasl.password"
                )
            translated.update({f"sasl.{name}": re.sub(r"\\(.)", r"\1", part) for name, part in login.items()})
        elif key.startswith(("ssl.truststore.", "ssl.keystore.")) and not key.endswith((".location", ".password")):
            continue
        elif key == "ssl.truststore.location":
            raise PropertiesProblem(
                "Java trust stores cannot be read; give the CA certificate as PEM in ssl.ca.location"
            )
        elif key == "ssl.keystore.location" and value.endswith(".jks"):
            raise PropertiesProblem(
                "Java key stores cannot be read; give PEM files as ssl.certificate.location and ssl.key.location"
            )
        else:
            translated[key] = value
    return translated


def unknown_property(name: str) -> str:
    """The sentence about a client property that the client library does not know."""
    return f"there is no client property {name!r}{suggest.did_you_mean(name, _COMMON)}"
