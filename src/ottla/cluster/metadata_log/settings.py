"""PURE. Quotas and credentials: records of their own in Kafka's metadata log, settings of users and the like here.

ClientQuota          entity user=alice, producer_byte_rate 1024.0    (USER, alice): producer_byte_rate=1024
UserScramCredential  alice, mechanism 2, salt, keys, iterations      (USER, alice): SCRAM-SHA-512=salt=...
Config               type, name, key, value                          the same
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ottla.cluster.entity_names import name_of, node_of
from ottla.cluster.image import ResourceType
from ottla.cluster.scram_credentials import SCRAM_CODES, ScramCredential, credential_text, parse_credential
from ottla.errors import CorruptMessage, OttlaError
from ottla.protocol.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    QuotaEntity,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

if TYPE_CHECKING:
    from ottla.protocol.schema import Message

Resource = tuple[ResourceType, str]

_FRACTIONAL: Final = frozenset(("request_percentage", "controller_mutation_rate"))
"""Quotas that are no whole numbers."""
_SETTINGS_TYPES: Final[Mapping[int, ResourceType]] = MappingProxyType(
    {
        int(kind): kind
        for kind in (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP, ResourceType.CLIENT_METRICS)
    }
)
MECHANISM_CODES: Final = {name: code for code, name in SCRAM_CODES.items()}
_USER, _CLIENT, _IP = "user", "client-id", "ip"


class InexpressibleChange(OttlaError):
    """A change that no metadata record can express; the message names it."""


def config_resource(record: ConfigRecord) -> Resource | None:
    """The resource of a setting; None for a type whose settings Ottla does not know."""
    kind = _SETTINGS_TYPES.get(record.resource_type)
    return None if kind is None else (kind, record.resource_name)


def quota_resource(entity: Sequence[QuotaEntity]) -> Resource | None:
    """The resource whose settings the quotas of an entity are; None for an entity that Ottla does not know."""
    parts = {part.entity_type: part.entity_name or "" for part in entity}
    match tuple(sorted(parts)):
        case ("user",):
            return ResourceType.USER, parts[_USER]
        case ("client-id",):
            return ResourceType.CLIENT, parts[_CLIENT]
        case ("client-id", "user"):
            return ResourceType.USER_CLIENT, f"{node_of(parts[_USER])}/clients/{node_of(parts[_CLIENT])}"
        case ("ip",):
            return ResourceType.IP, parts[_IP]
        case _:
            return None


def quota_text(record: ClientQuotaRecord) -> str:
    """The value of a quota as a setting. Raises `CorruptMessage` for one that is no number."""
    value = record.value
    if not isfinite(value):
        raise CorruptMessage(f"the quota {record.key} is {value}")
    return str(int(value)) if record.key not in _FRACTIONAL and value == int(value) else repr(value)


def mechanism_of(code: int) -> str:
    """The name of a SCRAM mechanism. Raises `CorruptMessage` for a code that is none."""
    name = SCRAM_CODES.get(code)
    if name is None:
        raise CorruptMessage(f"a SCRAM credential has the mechanism {code}, which is not known")
    return name


def scram_text(record: UserScramCredentialRecord) -> str:
    """The credential in a record, as a setting."""
    return credential_text(ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations))


def setting_record(resource: Resource, key: str, value: str | None) -> Message:
    """The record that sets or, without a value, removes a setting of whatever kind.

    Raises `InexpressibleChange` for a setting that no record can have.
    """
    kind, name = resource
    if int(kind) in _SETTINGS_TYPES:
        return ConfigRecord(resource_type=int(kind), resource_name=name, name=key, value=value)
    mechanism = MECHANISM_CODES.get(key)
    if mechanism is None:
        return _quota_record(resource, key, value)
    if kind is not ResourceType.USER:
        raise InexpressibleChange(f"{kind.name} {name!r} cannot have the credential {key}: only users have credentials")
    if value is None:
        return RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
    found = parse_credential(value)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=found.salt,
        stored_key=found.stored_key,
        server_key=found.server_key,
        iterations=found.iterations,
    )


def _quota_record(resource: Resource, key: str, value: str | None) -> ClientQuotaRecord:
    try:
        number = 0.0 if value is None else float(value)
    except ValueError as error:
        raise InexpressibleChange(f"{key} of {resource[0].name} {resource[1]!r} is no quota: {value!r}") from error
    entity = [QuotaEntity(entity_type=part, entity_name=name or None) for part, name in quota_entity(resource)]
    return ClientQuotaRecord(entity=entity, key=key, value=number, remove=value is None)


def quota_entity(resource: Resource) -> list[tuple[str, str]]:
    """The parts of the entity whose quotas are the settings of a resource; the empty name is the default.

    Raises `InexpressibleChange` for a resource that has no quotas.
    """
    kind, name = resource
    match kind:
        case ResourceType.USER:
            return [(_USER, name)]
        case ResourceType.CLIENT:
            return [(_CLIENT, name)]
        case ResourceType.USER_CLIENT:
            user, _, client = name.partition("/clients/")
            return [(_USER, name_of(user)), (_CLIENT, name_of(client))]
        case ResourceType.IP:
            return [(_IP, name)]
        case _:
            raise InexpressibleChange(f"the metadata log has no settings of {kind.name} {name!r}")
