"""Partitions of a tree of metadata, in whatever state, as the first records of a quorum's log."""

from uuid import UUID

import pytest

from ottla.cluster.commands import CreateTopic
from ottla.cluster.image import NO_LEADER, PartitionImage, TopicImage, empty_image
from ottla.cluster.metadata_log.state import ClusterState
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, Node
from ottla.metadata.tree_records import records_of

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
PART = PartitionImage(PartitionId(0), TWO, LeaderEpoch(7), (ONE, TWO, THREE), (TWO, ONE), 0)


@pytest.mark.parametrize(
    "part",
    [
        PART,
        PART._replace(adding=(THREE,)),
        PART._replace(adding=(THREE,), removing=(ONE,)),
        PART._replace(departed=(THREE,)),
        PART._replace(isr=(TWO,), departed=(THREE,), eligible_count=1),
        PART._replace(leader=NO_LEADER, isr=(TWO,)),
        PART._replace(last_known_leader=ONE),
    ],
)
def test_partitions_stay_what_they_are(part: PartitionImage) -> None:
    topic = TopicImage(TopicName("t"), TopicId(UUID(int=1)), (part,))
    commands = [CreateTopic(topic, {})]
    operations = layout.operations_for(commands, empty_image("c"), {}, controller_epoch=1, now_ms=0)
    nodes = {operation.path: Node(operation.data, 0) for operation in operations if isinstance(operation, Create)}
    state = ClusterState("c")
    state.replay_all(records_of(nodes))
    assert state.image().topics[topic.name].partitions == (part,)
