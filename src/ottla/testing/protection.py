"""Certificates, users and access rules of an in-process broker, made on the fly."""

import re
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ottla.errors import InvalidConfig
from ottla.security.acls import AccessRule, AclBinding, PatternType, PermissionType, ResourcePattern
from ottla.security.authorization import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.security.issuing import Issuer

ADMIN: Final = "admin"
"""The super user that every protected broker has."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
Tls = bool | Literal["required"]
_DAYS: Final = 365
_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}
_RULE: Final = re.compile(r"(?:(allow|deny) )?(\S+) (\S+) (\S+)")


class Protection:
    """What one broker is protected with."""

    def __init__(self, tls: Tls, users: Mapping[str, str] | None, acls: Mapping[str, Sequence[str]] | None) -> None:
        """As of `Broker`. Raises ValueError for rules that cannot be read, or that nobody could be given."""
        self._tls = tls
        self._has_logins = users is not None
        self.passwords = {**(users or {}), ADMIN: (users or {}).get(ADMIN, secrets.token_urlsafe(12))}
        self.rules = None if acls is None else [rule for user, texts in acls.items() for rule in rules_of(user, texts)]
        if acls is not None and not self._has_logins and tls != "required":
            raise ValueError("acls are for users with names: give users={name: password}, or tls='required'")
        unknown = [user for user in acls or () if self._has_logins and user not in self.passwords]
        if unknown:
            raise ValueError(f"acls has {unknown[0]!r}, which is none of the users: {', '.join(self.passwords)}")
        self._directory: Path | None = None
        self._issuer: Issuer | None = None

    @property
    def is_on(self) -> bool:
        """Whether there is any."""
        return bool(self._tls) or self._has_logins

    @property
    def protocol(self) -> str:
        """The security protocol of the broker's listener."""
        if self._has_logins:
            return "SASL_SSL" if self._tls else "SASL_PLAINTEXT"
        return "SSL" if self._tls else "PLAINTEXT"

    def settings(self) -> dict[str, str]:
        """The settings of the broker, but for its listener."""
        found: dict[str, str] = {}
        if self._tls:
            directory = self.directory()
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(directory / "broker.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(directory / "ca.pem"),
                "ssl.client.auth": "required" if self._tls == "required" else "none",
                "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            }
        if self._has_logins:
            plain = " ".join(f"user_{_quoted(user, word)}" for user, word in self.passwords.items())
            scram = ",".join(
                f"{mechanism}=[name={user},password={word}]"
                for mechanism in MECHANISMS[1:]
                for user, word in self.passwords.items()
            )
            found |= {
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config": (
                    f"org.apache.kafka.common.security.plain.PlainLoginModule required {plain};"
                ),
                "initial.scram.users": scram,
                "security.inter.broker.protocol": self.protocol,
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
            }
        elif self._tls:
            found["security.inter.broker.protocol"] = "SSL"
        if self.rules is not None:
            found["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            found["super.users"] = f"User:{ADMIN}"
        return found

    def client_config(self, user: str | None, mechanism: str) -> dict[str, str]:
        """What a client needs besides the address. Raises ValueError for a user that there is not."""
        found = {"security.protocol": self.protocol}
        if self._tls:
            found["ssl.ca.location"] = str(self.directory() / "ca.pem")
        if self._tls == "required":
            name = ADMIN if user is None else user
            own = str(self._certificate(name))
            found |= {"ssl.certificate.location": own, "ssl.key.location": own}
        if self._has_logins:
            if user not in self.passwords:
                raise ValueError(f"there is no user {user!r}: name one of {', '.join(self.passwords)}")
            found |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": self.passwords[user]}
        return found

    def directory(self) -> Path:
        """Where the certificates are, which are made when they are first asked for."""
        if self._directory is None:
            try:
                from ottla.security.issuing import LOCAL_HOSTS, Issuer
            except ImportError as error:
                raise InvalidConfig(
                    "certificates need another package: install Ottla with its extra `security`"
                ) from error

            self._directory = Path(tempfile.mkdtemp(prefix="ottla-certificates-"))
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
            self._issuer = Issuer(_DAYS)
            self._issuer.write(self._directory / "ca.pem")
            self._issuer.issue(self._directory / "broker.pem", "broker", LOCAL_HOSTS)
        return self._directory

    def _certificate(self, user: str) -> Path:
        if "/" in user or "," in user:
            raise ValueError(f"{user!r} is no name for a certificate")
        path = self.directory() / f"client-{user}.pem"
        if not path.exists():
            assert self._issuer is not None
            self._issuer.issue(path, user)
        return path


def rules_of(user: str, texts: Sequence[str]) -> list[AclBinding]:
    """A user's rules, such as `read topic orders`, `write topic sales-*`, `deny read group *`. Raises ValueError."""
    return [_rule(user, text) for text in texts]


def _rule(user: str, text: str) -> AclBinding:
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no rule: write OPERATION TYPE NAME, such as 'read topic orders'")
    permission, operation, kind, name = found.groups()
    names = Operation.__members__
    if kind.lower() not in _TYPES or operation.upper().replace("-", "_") not in names:
        raise ValueError(f"{text!r} is no rule: types are {', '.join(_TYPES)}, operations {', '.join(names).lower()}")
    is_prefix = len(name) > 1 and name.endswith("*")
    pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    resource = ResourcePattern(_TYPES[kind.lower()], name[:-1] if is_prefix else name, pattern)
    allowed = PermissionType.DENY if permission == "deny" else PermissionType.ALLOW
    return AclBinding(resource, AccessRule(f"User:{user}", "*", names[operation.upper().replace("-", "_")], allowed))


def _quoted(user: str, password: str) -> str:
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{user}="{escaped}"'
