"""Names for the numbers and strings that must not be mixed up."""

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
