"""The settings of access control: the authorizer, its super users, and what holds for resources without rules."""

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.broker import BrokerConfig

AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_IF_NONE: Final = "allow.everyone.if.no.acl.found"
AUTHORIZER_SETTINGS: Final = frozenset((AUTHORIZER, SUPER_USERS, ALLOW_IF_NONE))
STANDARD: Final = frozenset(
    (
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
        "kafka.security.auth.SimpleAclAuthorizer",
    )
)
"""The classes of Kafka that select Ottla's authorizer, which keeps rules and decides as they do."""


AUTHORIZER_GROUP: Final = "ottla.authorizers"
"""The entry points of authorizers that are not Kafka's."""


class AuthorizerSettings(NamedTuple):
    """How requests are authorized."""

    super_users: frozenset[str]
    """Principals such as `User:admin`."""
    allow_if_none: bool
    """May everybody use a resource that no rule mentions?"""
    own: str | None = None
    """The entry point of an authorizer of the operator's, which is asked after the rules."""


def is_installed(name: str) -> bool:
    """Whether there is an authorizer of this name among the entry points."""
    if not name:
        return False
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    return any(point.name == name for point in entry_points(group=AUTHORIZER_GROUP))


def authorizer_settings(config: "BrokerConfig") -> AuthorizerSettings | None:
    """The settings of the authorizer; None if there is none. Raises `InvalidConfig`."""
    name = config.given.get(AUTHORIZER, "").strip()
    own = None if name in STANDARD else name
    if own is not None and not is_installed(own):  # refused at the start, unless --allow-insecure is given
        return None
    return AuthorizerSettings(_super_users(config.given), _allow_if_none(config.given), own)


def check_authorizer_settings(given: "Mapping[str, str]") -> None:
    """Raise `InvalidConfig` for values that cannot be read."""
    _super_users(given)
    _allow_if_none(given)


def _super_users(given: "Mapping[str, str]") -> frozenset[str]:
    """Separated by semicolons: the distinguished names of certificates have commas."""
    users = [user.strip() for user in given.get(SUPER_USERS, "").split(";")]
    for user in filter(None, users):
        kind, colon, name = user.partition(":")
        if not (kind and colon and name):
            raise InvalidConfig(
                f"{SUPER_USERS}: {user!r} is no principal; write User:name, and separate several by semicolons"
            )
    return frozenset(filter(None, users))


def _allow_if_none(given: "Mapping[str, str]") -> bool:
    text = given.get(ALLOW_IF_NONE, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidConfig(f"{ALLOW_IF_NONE}: {text!r} is neither true nor false")
    return text == "true"
