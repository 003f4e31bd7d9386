"""PURE. What Kafka 4 changes while a broker runs, of the settings that Ottla does not act on, and how it checks that.

They are kept, described and changed as in Kafka, without effect.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from ottla.config.setting import Change, Setting
from ottla.errors import InvalidConfig

_CLUSTER_WIDE: Final = (
    "background.threads",
    "config.providers",
    "follower.fetch.last.tiered.offset.enable",
    "group.coordinator.cached.buffer.max.bytes",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.threads",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "max.connection.creation.rate",
    "metric.reporters",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms",
    "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
    "share.coordinator.cached.buffer.max.bytes",
)
_PER_LISTENER: Final = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
"""Changed with the prefix of a listener only."""
_PER_BROKER: Final = (
    *_PER_LISTENER,
    "principal.builder.class",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.mechanism.inter.broker.protocol",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
CHANGEABLE: Final[Mapping[str, Change]] = {
    **dict.fromkeys(_CLUSTER_WIDE, Change.CLUSTER_WIDE),
    **dict.fromkeys(_PER_BROKER, Change.PER_BROKER),
}

_THREADS: Final = ("background.threads", "num.io.threads", "num.recovery.threads.per.data.dir", "num.replica.fetchers")
LISTENER_OVERRIDE: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
"""A setting for one listener; the group is the setting's own name."""
_OF_ALL_BROKERS: Final = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""For one listener, too, these may be set for all brokers."""
ONE_LISTENER_CHANGEABLE: Final = _OF_ALL_BROKERS.union(_PER_LISTENER)
"""What may be set anew for an existing listener; with `listeners` in the same change, nothing else may."""


def problem_with_names(
    names: Collection[str], known: Mapping[str, Setting], *, cluster_default: bool, unchanged: Collection[str] = ()
) -> str | None:
    """Why these settings cannot be changed so, in Kafka's words; None if they can.

    Names that are not known can: they may be a plug-in's. So can those that were `unchanged`.
    """
    changed = [name for name in names if name not in unchanged]
    fixed = [name for name in changed if name in known and known[name].change is Change.READ_ONLY]
    if fixed:
        return f"Cannot update these configs dynamically: {_set(fixed)}"
    unprefixed = [name for name in changed if name in _PER_LISTENER]
    if unprefixed:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"{_set(unprefixed)}"
        )
    of_one = [name for name in changed if _is_per_broker(name, known)]
    if cluster_default and of_one:
        return f"Cannot update these configs at default cluster level, broker id must be specified: {_set(of_one)}"
    return None


def check_values(changes: Mapping[str, str], known: Mapping[str, Setting], given: Mapping[str, str]) -> None:
    """Raise `InvalidConfig`, with Kafka's message, for invalid values, even of settings without effect here.

    `given` are the settings of the properties file.
    """
    for name, text in changes.items():
        override = LISTENER_OVERRIDE.fullmatch(name)
        setting = known.get(name if override is None else override.group(1))
        if setting is None:
            continue
        setting.parse(text)
        if name in _THREADS:
            _check_threads(name, int(text), int(given.get(name) or setting.default or 1))


def _check_threads(name: str, wanted: int, now: int) -> None:
    if wanted < now // 2:
        problem = f"should be at least half the current value {now}"
    elif wanted > now * 2:
        problem = f"should not be greater than double the current value {now}"
    else:
        return
    failed = f"Dynamic thread count update validation failed for {name}={wanted}, value {problem}"
    java_class = "org.apache.kafka.common.config.ConfigException"
    raise InvalidConfig(f"Invalid value {java_class}: {failed} for configuration Invalid dynamic configuration")


def _is_per_broker(name: str, known: Mapping[str, Setting]) -> bool:
    override = LISTENER_OVERRIDE.fullmatch(name)
    if override is not None:
        return override.group(1) not in _OF_ALL_BROKERS
    return name in known and known[name].change is Change.PER_BROKER


def _set(names: Collection[str]) -> str:
    return f"[{', '.join(sorted(names))}]"
