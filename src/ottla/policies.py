"""Policies of your own for new topics and changed settings: the interface of `create.topic.policy.class.name` and
`alter.config.policy.class.name`.

A policy is a class, installed as an entry point of the group `ottla.policies`:

    [project.entry-points."ottla.policies"]
    naming = "our_rules:NamingPolicy"

The broker makes one object of it when it starts, calls `configure` once, then `validate` for every request, and `close`
when it stops, all in one thread of the policy's own. An answer that takes longer than `ANSWERED_WITHIN_S` counts as a
refusal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

ANSWERED_WITHIN_S: Final = 5.0

ResourceKind = Literal["topic", "broker", "group", "client-metrics"]


class PolicyViolation(Exception):
    """Raised by `validate` to refuse a request. The client gets POLICY_VIOLATION with this text."""


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """A topic that is about to be created; Kafka's `CreateTopicPolicy.RequestMetadata`."""

    topic: str
    partition_count: int | None
    """None if the request places the replicas itself."""
    replication_factor: int | None
    """None if the request places the replicas itself."""
    assignments: Mapping[int, Sequence[int]] | None
    """Brokers of each partition, where the request places them."""
    configs: Mapping[str, str]
    """The settings in the request, without the broker's defaults."""


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """Settings of one resource that are about to change; Kafka's `AlterConfigPolicy.RequestMetadata`."""

    kind: ResourceKind
    name: str
    """The topic, the broker's number (empty: all brokers), the group or the subscription."""
    configs: Mapping[str, str | None]
    """The new values of the settings that the request names; None for those that go back to their defaults."""


class CreateTopicPolicy(Protocol):
    """Decides which topics may be created, by clients or because they are used."""

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take the broker's settings as they were given, under Kafka's names. An exception stops the start."""

    def validate(self, request: TopicRequest) -> None:
        """Return to allow the topic; raise `PolicyViolation` to refuse it. Any other exception refuses it, too."""

    def close(self) -> None:
        """The broker stops."""


class AlterConfigPolicy(Protocol):
    """Decides which settings may be changed, those that a new topic brings along included."""

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take the broker's settings as they were given, under Kafka's names. An exception stops the start."""

    def validate(self, request: ConfigRequest) -> None:
        """Return to allow the change; raise `PolicyViolation` to refuse it. Any other exception refuses it, too."""

    def close(self) -> None:
        """The broker stops."""
