"""Operations, resources and quotas, by Kafka's names and codes, and what a request requires of them.

These are declarations. Authorization is enforced by the guards of `ottla.server.access`, where there is an authorizer.
"""

from enum import Enum, IntEnum
from typing import NamedTuple


class Operation(IntEnum):
    """What a principal does with a resource; names and codes of Kafka 4.3's `AclOperation`."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What an operation is done with; names and codes of Kafka 4.3's `ResourceType`."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class QuotaClass(Enum):
    """The quota that a request counts against: one of `QuotaFactory.QuotaManagers` in Kafka."""

    PRODUCE = "produce"
    """Bytes produced (`producer_byte_rate`), and the time of the request."""
    FETCH = "fetch"
    """Bytes fetched (`consumer_byte_rate`), and the time of the request. Followers are exempt."""
    REQUEST = "request"
    """The time that the request takes of the broker's threads (`request_percentage`)."""
    CONTROLLER_MUTATION = "controller mutation"
    """Partitions created and deleted (`controller_mutation_rate`, KIP-599), and the time of the request."""
    EXEMPT = "exempt"
    """None: the request is one between brokers."""


class Permission(NamedTuple):
    """An operation on a type of resource."""

    operation: Operation
    resource: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.resource.name}"


class Requirement(NamedTuple):
    """One condition of a request. A request is authorized if it meets all that apply to it."""

    any_of: tuple[Permission, ...]
    """One of these is enough; for each resource that the request names."""
    when: str = ""
    """To which requests or resources it applies, in words; empty for all."""

    def __str__(self) -> str:
        permissions = " or ".join(map(str, self.any_of))
        return f"{permissions} ({self.when})" if self.when else permissions


def requires(*any_of: tuple[Operation, ResourceType], when: str = "") -> Requirement:
    """A requirement that any of the pairs meets."""
    return Requirement(tuple(Permission(operation, resource) for operation, resource in any_of), when)
