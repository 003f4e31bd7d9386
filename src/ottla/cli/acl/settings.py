"""What the settings of the brokers say about access: super users, and resources that no rule mentions."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from confluent_kafka.admin import ResourceType

from ottla.cli.brokers.client import Connection
from ottla.cli.brokers.settings import describe_settings
from ottla.cli.terminal.exits import CommandFailed

AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_IF_NONE: Final = "allow.everyone.if.no.acl.found"
KAFKAS_OWN: Final = ("org.apache.kafka.", "kafka.security.")
HIDDEN: Final = "these brokers do not show super.users"


class AuthorizerSettings(NamedTuple):
    """Those that all brokers share."""

    super_users: frozenset[str] = frozenset()
    allow_if_none: bool | None = None
    """None if it is not known."""
    own_authorizer: str | None = None
    """The name of an authorizer that is not Kafka's."""
    problem: str | None = None
    """Why they are not known."""

    @property
    def are_known(self) -> bool:
        """Whether `super_users` are all that there are."""
        return self.problem is None


def authorizer_settings(connection: Connection) -> AuthorizerSettings:
    """Ask every broker. Genuine Kafka hides the values, and a user may have no right to read them."""
    try:
        admin = connection.admin()
        brokers = sorted(connection.metadata(admin).brokers)
        found = [_given(connection, str(broker)) for broker in brokers]
    except CommandFailed as problem:
        return AuthorizerSettings(problem=str(problem))
    return shared(found)


def _given(connection: Connection, broker: str) -> dict[str, str | None]:
    entries = describe_settings(connection, connection.admin(), ResourceType.BROKER, broker)
    names = (SUPER_USERS, ALLOW_IF_NONE, AUTHORIZER)
    return {name: entries[name].value for name in names if name in entries}


def shared(brokers: Sequence[dict[str, str | None]]) -> AuthorizerSettings:
    """PURE. What holds on all brokers: a principal that is a super user on some may not do everything."""
    if any(given.get(name, "") is None for given in brokers for name in (SUPER_USERS, ALLOW_IF_NONE)):
        return AuthorizerSettings(problem=HIDDEN)
    users = [frozenset(filter(None, map(str.strip, (given.get(SUPER_USERS) or "").split(";")))) for given in brokers]
    allow = all((given.get(ALLOW_IF_NONE) or "false").strip().lower() == "true" for given in brokers)
    names = [given.get(AUTHORIZER) or "" for given in brokers]
    own = next((name for name in names if name and not name.startswith(KAFKAS_OWN)), None)
    return AuthorizerSettings(frozenset.intersection(*users) if users else frozenset(), allow, own)
