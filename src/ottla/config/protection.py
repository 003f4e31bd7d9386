"""Settings that require protection which Ottla does not have yet: another authorizer, and some of TLS and SASL.

Ignoring them would serve guarded data to every client, in plain text. A start with one of them is refused,
and so is a change at runtime, unless `--allow-insecure` is given.
"""

import re
from typing import Final

from ottla.config.authorizer import ALLOW_IF_NONE, AUTHORIZER, STANDARD, SUPER_USERS, is_installed
from ottla.config.broker_tls_settings import TLS
from ottla.config.sasl import SASL_SETTINGS, is_served

_TLS: Final = "asks for a part of TLS that Ottla does not have"
_SASL: Final = "asks for a part of SASL that Ottla does not have"
_ACLS: Final = "asks for access control that Ottla does not have"
_TOKENS: Final = "asks for delegation tokens"

PROTECTING_NAMES: Final = {
    "authorizer.class.name": _ACLS,
    "principal.builder.class": _ACLS,
    "connections.max.reauth.ms": _SASL,
    "security.providers": _TLS,
    "zookeeper.ssl.ocsp.enable": "asks for a check of certificates that Ottla does not have",
    "zookeeper.ssl.context.supplier.class": _TLS,
    "delegation.token.master.key": _TOKENS,
}
UNPROTECTED: Final = (
    "Ottla has TLS, SASL with GSSAPI, PLAIN, SCRAM and OAUTHBEARER, Kafka's own authorizer, and others that are "
    "installed as entry points ottla.authorizers. Remove these settings, or start with --allow-insecure: what they ask "
    "for is then not protected"
)
"""What to do about settings that ask for protection."""

TLS_SETTINGS: Final = frozenset(setting.name for setting in TLS)
_FAMILIES: Final = (("ssl.", _TLS), ("sasl.", _SASL))
_ABOUT_RENEWALS: Final = ("sasl.kerberos.", "sasl.login.connect.", "sasl.login.re")
"""Settings of Kafka's ways to renew tickets and tokens: without them, logins are no less protected."""
_LISTENERS: Final = re.compile(r"listener\.name\.[^.]+\.(.+)")
_MECHANISM: Final = re.compile(r"[^.]+\.(sasl\..+|connections\.max\.reauth\.ms)")
_NOTHING: Final = frozenset({"", "0", "none", "false", "plaintext"})


def asked_protection(name: str, text: str) -> str | None:
    """What a setting asks for and does not get, as `asks for TLS`; None for one that is harmless.

    A value that equals Kafka's default asks for nothing. A name of a protecting family that Kafka does not know is
    taken to ask. Raises `InvalidConfig` for a value that Kafka would refuse.
    """
    override = _LISTENERS.fullmatch(name)
    if override is not None:
        name = override.group(1)
    if (override is not None or name in SASL_SETTINGS) and is_served(name, text):
        return None
    if override is not None:
        by_mechanism = _MECHANISM.fullmatch(name)
        name = name if by_mechanism is None else by_mechanism.group(1)
    value = text.strip().lower()
    if name in (SUPER_USERS, ALLOW_IF_NONE) or (
        name == AUTHORIZER and (text.strip() in STANDARD or is_installed(text.strip()))
    ):
        return None
    found = PROTECTING_NAMES.get(name) or next(
        (reason for prefix, reason in _FAMILIES if name.startswith(prefix)), None
    )
    if found is None or value in _NOTHING or name in TLS_SETTINGS:
        return None
    from ottla.config.other_settings import OTHER_SETTINGS  # big, and seldom needed

    known = OTHER_SETTINGS.get(name)
    if known is not None and name.startswith(_ABOUT_RENEWALS):
        return None
    if known is not None:
        known.parse(text)
        if known.default is not None and value.replace(" ", "") == known.default.lower():
            return None
    return found
