"""Which quota holds for a user and a client id. The first of these that is set, for each kind of quota:

    1  user and client id        /config/users/<user>/clients/<client-id>
    2  user, any client id       /config/users/<user>/clients/<default>
    3  user                      /config/users/<user>
    4  any user, client id       /config/users/<default>/clients/<client-id>
    5  any user, any client id   /config/users/<default>/clients/<default>
    6  any user                  /config/users/<default>
    7  client id                 /config/clients/<client-id>
    8  any client id             /config/clients/<default>

Quotas 1, 2, 4 and 5 are used by one client id of one user, 3 and 6 by all clients of a user together, 7 and 8 by all
that use a client id. A client without an id has none of those for client ids. Source: Kafka 4.3, `ClientQuotaManager`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.cluster.entity_names import DEFAULT
from ottla.cluster.image import ResourceType
from ottla.quotas.entities import CLIENT_KEYS, CONNECTION_CREATION_RATE, Entity, entity_of, values_of

RESOURCES: Final = frozenset((ResourceType.USER, ResourceType.CLIENT, ResourceType.USER_CLIENT, ResourceType.IP))
Configs = Mapping[tuple[ResourceType, str], Mapping[str, str]]
_Key = tuple[str | None, str | None]


class Limit(NamedTuple):
    """How much may be used each second, and the entity whose clients use it together."""

    per_s: float
    used_by: Entity


class ClientLimits:
    """The quotas of one kind, such as `producer_byte_rate`."""

    __slots__ = ("_by_key", "_levels")

    def __init__(self, by_key: Mapping[_Key, float]) -> None:
        self._by_key = by_key
        self._levels = frozenset((user is not None, client_id is not None) for user, client_id in by_key)

    def of(self, user: str, client_id: str) -> Limit | None:
        """The quota that holds; None for none."""
        for key, used_by in self._candidates(user, client_id):
            per_s = self._by_key.get(key)
            if per_s is not None:
                return Limit(per_s, Entity(*used_by))
        return None

    def has(self, used_by: Entity) -> bool:
        """Whether there is a quota that such users use, however it is set."""
        users = (None,) if used_by.user is None else (used_by.user, DEFAULT)
        client_ids = (None,) if used_by.client_id is None else (used_by.client_id, DEFAULT)
        return any((user, client_id) in self._by_key for user in users for client_id in client_ids)

    def _candidates(self, user: str, client_id: str) -> Iterable[tuple[_Key, _Key]]:
        levels, both = self._levels, (user, client_id)
        if client_id and (True, True) in levels:
            yield both, both
            yield (user, DEFAULT), both
        if (True, False) in levels:
            yield (user, None), (user, None)
        if client_id and (True, True) in levels:
            yield (DEFAULT, client_id), both
            yield (DEFAULT, DEFAULT), both
        if (True, False) in levels:
            yield (DEFAULT, None), (user, None)
        if client_id and (False, True) in levels:
            yield (None, client_id), (None, client_id)
            yield (None, DEFAULT), (None, client_id)


class Limits(NamedTuple):
    """All quotas of a cluster, as its metadata has them."""

    clients: Mapping[str, ClientLimits]
    """Those that are set, by kind."""
    addresses: Mapping[str, float]
    """New connections each second by address; `DEFAULT` is for all others."""


NO_LIMITS: Final = Limits({}, {})


def concerns_quotas(configs: Configs, others: Configs) -> bool:
    """Whether two states of all settings differ in those of entities that can have quotas."""
    changed = (key for key in {*configs, *others} if configs.get(key) is not others.get(key))
    return any(key[0] in RESOURCES for key in changed)


def read_limits(configs: Configs, complain: Callable[[str], None]) -> Limits:
    """The quotas in the settings of a cluster. Those that cannot be read are complained of, and do not hold."""
    clients: dict[str, dict[_Key, float]] = {}
    addresses: dict[str, float] = {}
    for (kind, name), settings in configs.items():
        entity = entity_of(kind, name)
        if entity is None:
            continue
        try:
            values = values_of(entity, settings)
        except ValueError as problem:
            complain(f"quotas of {entity.parts()} do not hold: {problem}")
            continue
        for key, value in values.items():
            if key == CONNECTION_CREATION_RATE:
                addresses[entity.ip or DEFAULT] = value
            else:
                clients.setdefault(key, {})[entity.user, entity.client_id] = value
    return Limits({key: ClientLimits(clients[key]) for key in CLIENT_KEYS if key in clients}, addresses)
