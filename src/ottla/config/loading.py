"""From a properties file and overrides to a `BrokerConfig`, with warnings for what Ottla does not act on."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from ottla.config.authorizer import (
    ALLOW_IF_NONE,
    AUTHORIZER,
    AUTHORIZER_SETTINGS,
    SUPER_USERS,
    check_authorizer_settings,
)
from ottla.config.broker import BrokerConfig
from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.broker_zookeeper_settings import ZOOKEEPER
from ottla.config.changeable import LISTENER_OVERRIDE
from ottla.config.earlier_settings import EARLIER_SETTINGS
from ottla.config.properties import PLACEHOLDER, PropertiesProblem, parse_properties
from ottla.config.protection import PROTECTING_NAMES, UNPROTECTED, asked_protection
from ottla.config.providers import PREFIX, resolved, resolved_by
from ottla.config.quorum import SWITCH
from ottla.config.sasl import PROTOCOLS as SASL_PROTOCOLS
from ottla.config.sasl import is_served
from ottla.config.tls import PROTOCOLS as TLS_PROTOCOLS
from ottla.config.tls import TLS_SETTINGS, prefix_of
from ottla.errors import InvalidConfig

DEVELOPMENT_START: Final = {
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}
"""The defaults that change when a broker is started without a properties file."""

_PREFIXED: Final = re.compile(r"(listener\.name|rlmm\.config|rsm\.config|config\.providers)\..+|config\.providers")
_OF_ZOOKEEPER: Final = re.compile(r"zookeeper\.ssl\..+")
_TLS_TO_ZOOKEEPER: Final = frozenset(
    setting.name for setting in ZOOKEEPER if setting.name.startswith("zookeeper.ssl.")
) - {"zookeeper.ssl.client.enable"}
_OF_OTHERS: Final = re.compile(r"confluent\..+|kafka\.(http|rest)\..+|strimzi\..+|cruise\.control\..+")
"""Settings of other people's additions to Kafka: no name of Kafka's is meant by them."""


def load(
    properties_file: Path | None, overrides: Mapping[str, str], *, strict: bool = False, allow_insecure: bool = False
) -> tuple[BrokerConfig, list[str]]:
    """Read the broker's settings; `overrides` win over the file.

    Returns the settings and a warning, one sentence, for each that has no effect.

    With `strict` unknown names are refused. With `allow_insecure` settings that require protection which Ottla does not
    have
    yet have no effect; otherwise they are refused.

    Raises:
        InvalidConfig: the file cannot be read or a value is refused; the text names the file or setting, and the line.
    """
    given = given_settings(properties_file, overrides)
    warnings, unknown, insecure = [], [], []
    for name, text in given.items():
        if name in BROKER_SETTINGS:
            if not BROKER_SETTINGS[name].acted_on:
                warnings.append(f"{name}: Ottla does not act on this setting")
            continue
        known = _without_effect(name, text)
        near = _nearest(name) if known is None else None
        described = (
            name
            if known is not None
            else f"{name}: there is no such setting{f'; did you mean {near}?' if near else ''}"
        )
        if name not in overrides:
            described = f"{properties_file}: {described}"
        protection = asked_protection(name, text) or (near and asked_protection(near, text))
        if protection:
            insecure.append(f"{described}: {protection}" if known is not None else f"{described} It {protection}")
        elif known is not None:
            warnings += [known] if known else []
        else:
            unknown.append(described)
    if insecure and not allow_insecure:  # all of them, so that a file is put right in one go
        insecure += BrokerConfig(given, allow_insecure=True).unprotected_listeners
        raise InvalidConfig("\n".join([*insecure, UNPROTECTED]))
    if unknown and strict:
        raise InvalidConfig("\n".join([*unknown, "--strict refuses settings that do not exist"]))
    for name in ("log.dirs", "log.dir", "metadata.log.dir"):
        if PLACEHOLDER.search(given.get(name, "")):
            raise InvalidConfig(
                f"{name}: {given[name]!r} names a provider that config.providers does not declare, and would become "
                "the name of a directory"
            )
    config = BrokerConfig(given, allow_insecure=allow_insecure, resolve=partial(resolved_by, given))
    insecure += config.unprotected_listeners
    warnings += [f"{asked}, and gets NO PROTECTION (--allow-insecure)" for asked in insecure]
    warnings += unknown
    warnings += _quorum_warnings(config)
    warnings += _security_warnings(config)
    check_authorizer_settings(given)
    if not given.get(AUTHORIZER, "").strip():
        warnings += [
            f"{name}: has no effect without {AUTHORIZER}; every client may do everything"
            for name in (SUPER_USERS, ALLOW_IF_NONE)
            if given.get(name, "").strip().lower() not in ("", "true")
        ]
    return config, warnings


def given_settings(properties_file: Path | None, overrides: Mapping[str, str]) -> dict[str, str]:
    """The settings of a file and those that win over it, with the values that stand elsewhere; nothing is checked.

    Raises `InvalidConfig` for a file that cannot be read.
    """
    return resolved({**_given(properties_file), **overrides})


def _security_warnings(config: BrokerConfig) -> list[str]:
    """Settings of TLS and SASL that no listener uses: their owner may take its listeners for protected."""
    protocols = {**config.security_protocols, **(config.controller_security_protocols if config.quorum else {})}
    encrypted = {prefix_of(name) for name, protocol in protocols.items() if protocol in TLS_PROTOCOLS}
    authenticating = {prefix_of(name) for name, protocol in protocols.items() if protocol in SASL_PROTOCOLS}
    warnings = []
    for name, text in config.given.items():
        if name in _TLS_TO_ZOOKEEPER and not config.zookeeper_ssl_client_enable:
            warnings.append(
                f"{name}: has no effect without zookeeper.ssl.client.enable=true; ZooKeeper gets plain text"
            )
        own = LISTENER_OVERRIDE.fullmatch(name)
        inner = name if own is None else own.group(1)
        if inner in TLS_SETTINGS:
            found, kind = encrypted, "SSL or SASL_SSL"
        elif own is not None and is_served(inner, text):
            found, kind = authenticating, "SASL_PLAINTEXT or SASL_SSL"
        else:
            continue
        if not (found if own is None else name.removesuffix(inner) in found):
            warnings.append(f"{name}: has no effect; no listener that it concerns has the security protocol {kind}")
    return warnings


def _quorum_warnings(config: BrokerConfig) -> list[str]:
    """What the settings say about a quorum of controllers that this node does not have."""
    given = config.given
    warnings = []
    if SWITCH in given and config.zookeeper_connect is None:
        warnings.append(f"{SWITCH}: has no effect without zookeeper.connect; remove it")
    if config.controller_listener_names and "listeners" in given and config.quorum is None:
        why = "" if config.zookeeper_connect is not None else ", as it names no controller but itself"
        warnings.append(
            f"controller.listener.names: {', '.join(config.controller_listener_names)} is not opened; "
            f"this node has no controller quorum{why}"
        )
    return warnings


def _given(properties_file: Path | None) -> dict[str, str]:
    if properties_file is None:
        return dict(DEVELOPMENT_START)
    try:
        return parse_properties(properties_file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"{properties_file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{properties_file} is not UTF-8 text: {error.reason}") from error
    except PropertiesProblem as problem:
        raise InvalidConfig(f"{properties_file}, {problem}") from problem


def _without_effect(name: str, text: str) -> str | None:
    """The warning for a setting that exists, but not for Ottla, empty if there is nothing to warn of; None for a name
    that is unknown."""
    from ottla.config.other_settings import OTHER_SETTINGS  # big, and seldom needed

    if name == PREFIX or name.startswith(f"{PREFIX}.") or name in AUTHORIZER_SETTINGS:
        return ""
    own = LISTENER_OVERRIDE.fullmatch(name)
    if own is not None and own.group(1) in TLS_SETTINGS:
        TLS_SETTINGS[own.group(1)].parse(text)
        return ""
    if own is not None and is_served(own.group(1), text):
        return ""
    setting = OTHER_SETTINGS.get(name)
    if setting is not None:
        setting.parse(text)
        return f"{name}: Ottla does not act on this setting"
    if name in EARLIER_SETTINGS:
        return f"{name}: has no effect; {EARLIER_SETTINGS[name]}"
    if name in PROTECTING_NAMES or _PREFIXED.fullmatch(name) or _OF_ZOOKEEPER.fullmatch(name):
        return f"{name}: Ottla does not act on settings of this kind"
    if _OF_OTHERS.fullmatch(name):
        return f"{name}: has no effect; it belongs to an addition to Kafka that Ottla does not have"
    return None


def _nearest(name: str) -> str | None:
    import difflib

    from ottla.config.other_settings import OTHER_SETTINGS

    known = {*BROKER_SETTINGS, *OTHER_SETTINGS, *EARLIER_SETTINGS, *PROTECTING_NAMES, *AUTHORIZER_SETTINGS}
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)), None)
