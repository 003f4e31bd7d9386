"""Authorizers of your own: the interface of `authorizer.class.name`.

An authorizer is a class, installed as an entry point of the group `ottla.authorizers`:

    [project.entry-points."ottla.authorizers"]
    office-hours = "our_rules:OfficeHours"

The broker makes one object of it when it starts, calls `configure` once, then `authorize` for every decision, and
`close` when it stops, all in one thread of the authorizer's own. Whatever `authorize` does but return True refuses:
False, another value, an exception, and an answer that takes longer than `ANSWERED_WITHIN_S`.

Ottla's access rules are kept and managed as ever; an authorizer sees what they decide, and may go beyond it or not.
Super users (`super.users`) are allowed everything, and no authorizer is asked about them: one that fails leaves the
brokers of a cluster, and an administrator, able to work.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

ANSWERED_WITHIN_S: Final = 0.1
"""Longest time for an answer. Some decisions are waited for on the broker's event loop: answer from memory."""
KEPT_S: Final = 1.0
"""How long an answer is used again, at most. A change of the access rules ends that at once."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a client wants to do; Kafka's `Action` and `AuthorizableRequestContext`."""

    principal: str
    """Such as `User:alice`; `User:ANONYMOUS` for a client that has proved no name."""
    host: str
    """The client's address."""
    operation: str
    """Kafka's name: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION and so on."""
    resource_type: str
    """TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN or USER."""
    resource: str | None
    """Its name; `kafka-cluster` for the cluster. None: is there any resource of this type that allows it?"""
    allowed_by_rules: bool
    """What the access rules decide."""


class Authorizer(Protocol):
    """Decides what clients may do."""

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take the broker's settings as they were given, under Kafka's names. An exception stops the start."""

    def authorize(self, action: Action) -> bool:
        """Return True to allow it. Everything else refuses it."""
        ...

    def close(self) -> None:
        """The broker stops."""
