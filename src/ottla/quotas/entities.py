"""Whose quotas are: users, client ids, both, and addresses, each by name or by default (KIP-55, KIP-546, KIP-612).

A quota is a setting of such an entity. In the metadata they are settings like those of topics:

    user               (USER, name)                       /config/users/<name>
    client id          (CLIENT, name)                     /config/clients/<name>
    both               (USER_CLIENT, user/clients/name)   /config/users/<user>/clients/<name>
    address            (IP, address)                      /config/ips/<address>

The empty name stands for the default (`<default>` in a path). Names of users and clients are percent-encoded in paths.
Source: Kafka 3.9, `Sanitizer` and `ZkAdminManager`; Kafka 4.3, `ClientQuotaControlManager` and `ClientQuotasImage`.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from ottla.cluster.entity_names import DEFAULT, name_of, node_of
from ottla.cluster.image import ResourceType
from ottla.errors import ErrorCode, InvalidRequest, OttlaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES: Final = (USER, CLIENT_ID, IP)
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
_LARGEST_INT: Final = 2**31 - 1
_LARGEST_LONG: Final = 2**63 - 1
_ROUNDING: Final = 1e-6


class _Type(Enum):
    LONG = _LARGEST_LONG
    INT = _LARGEST_INT
    DOUBLE = None


CLIENT_KEYS: Final[Mapping[str, _Type]] = {
    PRODUCER_BYTE_RATE: _Type.LONG,
    CONSUMER_BYTE_RATE: _Type.LONG,
    REQUEST_PERCENTAGE: _Type.DOUBLE,
    CONTROLLER_MUTATION_RATE: _Type.DOUBLE,
}
IP_KEYS: Final[Mapping[str, _Type]] = {CONNECTION_CREATION_RATE: _Type.INT}


class UnsupportedEntity(OttlaError):
    """A filter asks for a kind of entity that has no quotas."""

    code = ErrorCode.UNSUPPORTED_VERSION


class Entity(NamedTuple):
    """Whose a quota is. None: not named; `DEFAULT`: all that have none of their own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> dict[str, str | None]:
        """What is named, by type; None for the default."""
        named = zip(TYPES, self, strict=True)
        return {kind: name or None for kind, name in named if name is not None}

    @property
    def resource(self) -> tuple[ResourceType, str]:
        """Where its settings are in the metadata's image."""
        if self.ip is not None:
            return ResourceType.IP, self.ip
        if self.user is None:
            return ResourceType.CLIENT, self.client_id or DEFAULT
        if self.client_id is None:
            return ResourceType.USER, self.user
        return ResourceType.USER_CLIENT, f"{node_of(self.user)}/clients/{node_of(self.client_id)}"


def entity_of(resource_type: ResourceType, name: str) -> Entity | None:
    """The entity whose settings are there; None for settings of something else."""
    match resource_type:
        case ResourceType.USER:
            return Entity(user=name)
        case ResourceType.CLIENT:
            return Entity(client_id=name)
        case ResourceType.USER_CLIENT:
            user, _, client_id = name.partition("/clients/")
            return Entity(name_of(user), name_of(client_id))
        case ResourceType.IP:
            return Entity(ip=name)
        case _:
            return None


# -- changes ---------------------------------------------------------------------------------------------------------


def checked_entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """The entity that a request names by type and name. Raises `InvalidRequest`, in Kafka's words."""
    named = dict(parts)
    if not named:
        raise InvalidRequest("Invalid empty client quota entity")
    for kind, name in named.items():
        if kind not in TYPES:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
    found = Entity(*(None if kind not in named else named[kind] or DEFAULT for kind in TYPES))
    if found.ip is not None and (found.user is not None or found.client_id is not None):
        raise InvalidRequest("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    return found


def keys_of(entity: Entity) -> Mapping[str, _Type]:
    """The quotas that such an entity can have."""
    return CLIENT_KEYS if entity.ip is None else IP_KEYS


def duplicate(parts: Iterable[tuple[str, str | None]]) -> InvalidRequest:
    """The refusal of an entity, or of one of its quotas, that a request changes twice."""
    named = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts)
    return InvalidRequest(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{named}}})")


def checked_value(entity: Entity, key: str, value: float) -> str:
    """The text of a quota's value. Raises `InvalidRequest`, in Kafka's words."""
    kind = keys_of(entity).get(key)
    if kind is None:
        raise InvalidRequest(f"Invalid configuration key {key}")
    if not value > 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    if kind is _Type.DOUBLE:
        return repr(float(value))
    if value > kind.value:
        raise InvalidRequest(
            f"Proposed value for {key} is too large for {'an INT' if kind is _Type.INT else 'a LONG'}."
        )
    if value < 1 or value - int(value) > _ROUNDING:  # Kafka takes a ten-millionth, which is 0 then
        raise InvalidRequest(f"{key} cannot be a fractional value.")
    return str(int(value))


def check_address(address: str, *, is_host: bool) -> None:
    """Raise `InvalidRequest` for what is neither an address nor, as found by the caller, the name of a host."""
    if not is_host or "/" in address:
        raise InvalidRequest(f"{address} is not a valid IP or resolvable host.")


def values_of(entity: Entity, settings: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the settings of an entity. Raises ValueError for text that is no number above 0."""
    found = {key: float(settings[key]) for key in keys_of(entity) if key in settings}
    if not all(value > 0 for value in found.values()):
        raise ValueError(f"a quota of {entity.parts()} is not above 0")
    return found


# -- filters ---------------------------------------------------------------------------------------------------------


class Match(IntEnum):
    """How a part of a filter means names."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Filter(NamedTuple):
    """Means entities; `names` by type, `any_name` the types whose names do not matter."""

    names: Mapping[str, str | None]
    any_name: frozenset[str]
    strict: bool
    """Whether entities with other parts besides are left out."""

    def means(self, parts: Mapping[str, str | None]) -> bool:
        """Whether an entity with these parts is meant."""
        if self.strict and len(parts) != len(self.names) + len(self.any_name):
            return False
        return self.any_name <= parts.keys() and all(
            kind in parts and parts[kind] == name for kind, name in self.names.items()
        )


def checked_filter(components: Sequence[tuple[str, int, str | None]], *, strict: bool) -> Filter:
    """The filter of a request: type, match and name of each component.

    Raises `InvalidRequest` and `UnsupportedEntity`, in Kafka's words.
    """
    names: dict[str, str | None] = {}
    any_name: set[str] = set()
    for kind, match, name in components:
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in names or kind in any_name:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise UnsupportedEntity(f"Unsupported entity type {kind}")
        if match == Match.EXACT:
            if name is None:
                raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            names[kind] = name
        elif match == Match.DEFAULT:
            if name is not None:
                raise InvalidRequest("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
            names[kind] = None
        elif match == Match.ANY:
            if name is not None:
                raise InvalidRequest("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
            any_name.add(kind)
        else:
            raise InvalidRequest(f"Unknown match type {match}")
    asked = names.keys() | any_name
    if IP in asked and len(asked) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    return Filter(names, frozenset(any_name), strict)
