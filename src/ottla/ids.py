"""Names for the numbers and strings that must not be mixed up."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple, NewType
from uuid import UUID

TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", UUID)
PartitionId = NewType("PartitionId", int)
BrokerId = NewType("BrokerId", int)
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
InstanceId = NewType("InstanceId", str)
SubtopologyId = NewType("SubtopologyId", str)
ProcessId = NewType("ProcessId", str)
TransactionalId = NewType("TransactionalId", str)
ProducerId = NewType("ProducerId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)

ZERO_TOPIC_ID = TopicId(UUID(int=0))


class TopicPartition(NamedTuple):
    """One partition of one topic, written `topic-3` as in the names of its directories."""

    topic: TopicName
    partition: PartitionId

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdAndEpoch(NamedTuple):
    """A producer, and which of its incarnations: a higher epoch fences the lower ones."""

    producer_id: int
    epoch: int


def uuid_to_text(value: UUID) -> str:
    """Kafka's text form of an id: base64url without padding, 22 characters."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """The id behind Kafka's text form; raises ValueError."""
    raw = urlsafe_b64decode(text + "==")
    if len(raw) != 16:
        raise ValueError(f"{text!r} is no id of 16 bytes")
    return UUID(bytes=raw)
