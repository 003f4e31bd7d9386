"""Translates `kafka.*` options for librdkafka: people know them from Spark's own source, whose client
is Java's. PURE.

Options with another name in librdkafka are renamed; options that only Java's client has are left out; a Java key store,
which only Java can read, is refused with the alternative.
"""

import re
from collections.abc import Mapping
from typing import Final

from ottla.spark.errors import OptionError

ClientSettings = tuple[tuple[str, str], ...]
"""Settings handed through to the client library, without their prefix `kafka.`; hashable, to key a cache."""

_PREFIX: Final = "kafka."
_BOOTSTRAP: Final = "kafka.bootstrap.servers"
_OURS_TO_SET: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "offsets live in Spark's checkpoint",
    "kafka.enable.partition.eof": "the source depends on it",
    "kafka.interceptor.classes": "there are no interceptors here",
    "kafka.key.deserializer": "keys are always bytes; cast or decode the column",
    "kafka.key.serializer": "keys are written as the bytes or the text of their column",
    "kafka.value.deserializer": "values are always bytes; cast or decode the column",
    "kafka.value.serializer": "values are written as the bytes or the text of their column",
}
_RENAMED: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_OF_JAVA_ALONE: Final = (
    "auto.include.jmx.reporter",
    "buffer.memory",
    "default.api.timeout.ms",
    "max.block.ms",
    "max.poll.records",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partitioner.class",
    "security.providers",
)
_STORES: Final = {"ssl.truststore": "ssl.ca.location", "ssl.keystore": "ssl.keystore.location"}
_LOGIN: Final = re.compile(r"\b(username|password)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)')")
_LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")


def client_settings(given: Mapping[str, str]) -> ClientSettings:
    """From all options, by their names in lower case. Raises OptionError."""
    if not given.get(_BOOTSTRAP):
        raise OptionError(f"the option '{_BOOTSTRAP}' (host:port, ...) is missing")
    for option, why in _OURS_TO_SET.items():
        if option in given:
            raise OptionError(f"'{option}' cannot be set: {why}")
    settings = {name.removeprefix(_PREFIX): value for name, value in given.items() if name.startswith(_PREFIX)}
    for name in _OF_JAVA_ALONE:
        settings.pop(name, None)
    for javas, name in _RENAMED.items():
        if javas in settings:
            settings.setdefault(name, settings.pop(javas))
    _translate_login(settings)
    _translate_stores(settings)
    return tuple(sorted(settings.items()))


def _translate_login(settings: dict[str, str]) -> None:
    """Java's client has name and password in a line of JAAS configuration."""
    line = settings.pop("sasl.jaas.config", None)
    if line is None:
        return
    found = {each[1]: re.sub(r"\\(.)", r"\1", each[2] or each[3] or "") for each in _LOGIN.finditer(line)}
    if not any(module in line for module in _LOGIN_MODULES) or found.keys() != {"username", "password"}:
        raise OptionError(
            "'kafka.sasl.jaas.config' is understood for PLAIN and SCRAM with username and password; for others "
            "give librdkafka's settings (kafka.sasl.oauthbearer.*, kafka.sasl.kerberos.*)"
        )
    settings.setdefault("sasl.username", found["username"])
    settings.setdefault("sasl.password", found["password"])


def _translate_stores(settings: dict[str, str]) -> None:
    """PEM files are given by another name, PKCS#12 key stores by the same; nothing reads Java's own format."""
    for store, name in _STORES.items():
        kind = settings.pop(f"{store}.type", "JKS").upper()
        location = settings.pop(f"{store}.location", None)
        if location is None:
            continue
        if store == "ssl.truststore" and kind == "PEM":
            settings.setdefault(name, location)
        elif store == "ssl.keystore" and kind == "PKCS12":
            settings[name] = location
        else:
            instead = (
                "the authorities as PEM, in kafka.ssl.ca.location"
                if store == "ssl.truststore"
                else "a key store of kafka.ssl.keystore.type PKCS12, or PEM in kafka.ssl.certificate.location and "
                "kafka.ssl.key.location"
            )
            raise OptionError(f"'kafka.{store}.location' is a {kind} file, which only Java reads: give {instead}")
        if store == "ssl.truststore":
            settings.pop(f"{store}.password", None)
