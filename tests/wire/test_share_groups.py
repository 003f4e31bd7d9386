"""Share groups over sockets, with the state of what they read: joining, offsets, deletion, restarts."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.support.eventually import eventually
from tests.support.raw_client import ask
from tests.support.share_member import ACCEPT, ShareMember

from ottla.coordinators import share_groups
from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.primitives import NULL_UUID
from ottla.records.record import Record, encode_batch
from ottla.testing import Broker

GROUP_RESOURCE = 32
LEAVE = -1
EARLIEST = -2


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's first answer waits for the state of its partitions. On a busy machine the topic of that state takes
    longer to create than a broker waits; then partitions come with the next heartbeat, which is not the matter here."""
    monkeypatch.setattr(share_groups, "INITIALIZE_TIMEOUT_S", 60.0)


class Client:
    """An administrator and a member, whose id is `m`, of the broker at `bootstrap`."""

    def __init__(self, broker: Broker) -> None:
        self.bootstrap = broker.bootstrap
        self.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)

    def ask(self, request: Any, version: int) -> Any:
        return ask(self.bootstrap, request, version)

    def create(self, name: str, partitions: int = 2) -> UUID:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        (result,) = self.ask(CreateTopicsRequest(topics=[topic]), 7).topics
        assert result.error_code == 0, result
        topic_id: UUID = result.topic_id
        return topic_id

    def delete(self, name: str) -> None:
        topic = DeleteTopicState(name=name, topic_id=NULL_UUID)
        (result,) = self.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=1000), 6).responses
        assert result.error_code == 0, result

    def produce(self, name: str, count: int) -> None:
        """Records to partition 0."""
        batch = bytes(encode_batch([Record(number, 0, None, b"v") for number in range(count)]))
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
        answer = self.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def log_start(self, name: str) -> int:
        """The first offset of partition 0."""
        wanted = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
        topics = [ListOffsetsTopic(name=name, partitions=[wanted])]
        (topic,) = self.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7).topics
        return int(topic.partitions[0].offset)

    def configure(self, group: str, name: str, value: str) -> None:
        configs = [AlterableConfig(name=name, config_operation=0, value=value)]
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
        (result,) = self.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1).responses
        assert result.error_code == 0, result

    def beat(self, epoch: int, *topics: str, group: str = "g", member: str = "m") -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=list(topics) or None
        )
        return self.ask(request, 1)

    def join(self, *topics: str, group: str = "g", member: str = "m") -> Any:
        answer = self.beat(0, *topics, group=group, member=member)
        assert answer.error_code == 0, answer
        return answer

    def offsets(self, group: str = "g") -> dict[tuple[str, int], int]:
        """Start offsets of all partitions that the group has state for."""
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
        (answer,) = self.ask(DescribeShareGroupOffsetsRequest(groups=groups), 0).groups
        assert answer.error_code == 0, answer
        return {
            (topic.topic_name, partition.partition_index): partition.start_offset
            for topic in answer.topics
            for partition in topic.partitions
        }

    def alter(self, topic: str, offsets: dict[int, int], group: str = "g") -> Any:
        partitions = [
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
            for index, offset in offsets.items()
        ]
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
        return self.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0)

    def describe(self, group: str = "g") -> Any:
        request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        return self.ask(request, 1).groups[0]


def assigned(answer: Any) -> dict[UUID, list[int]]:
    """What a heartbeat's answer gives the member."""
    assert answer.assignment is not None, answer
    return {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}


def test_a_member_has_its_partitions_with_the_first_answer(ottla_broker: Broker) -> None:
    client = Client(ottla_broker)
    topic_id = client.create("t", 3)
    answer = client.join("t")
    assert (answer.member_id, answer.member_epoch) == ("m", 3)
    assert assigned(answer) == {topic_id: [0, 1, 2]}
    assert client.beat(3).assignment is None
    assert client.offsets() == {("t", 0): -1, ("t", 1): -1, ("t", 2): -1}


def test_new_partitions_are_read_too(ottla_broker: Broker) -> None:
    client = Client(ottla_broker)
    topic_id = client.create("t", 1)
    epoch = client.join("t").member_epoch
    more = CreatePartitionsTopic(name="t", count=3, assignments=None)
    client.ask(CreatePartitionsRequest(topics=[more], timeout_ms=5000, validate_only=False), 3)
    assert assigned(client.beat(epoch)) == {topic_id: [0, 1, 2]}


def test_a_group_has_the_heartbeat_interval_it_is_given(ottla_broker: Broker) -> None:
    client = Client(ottla_broker)
    client.create("t")
    assert client.join("t").heartbeat_interval_ms == 5_000
    client.configure("g", "share.heartbeat.interval.ms", "7000")
    assert client.beat(3).heartbeat_interval_ms == 7_000


def test_groups_and_their_state_outlive_the_broker(tmp_path: Path) -> None:
    broker = Broker(directory=tmp_path)
    with broker:
        client = Client(broker)
        topic_id = client.create("t")
        client.configure("g", "share.auto.offset.reset", "earliest")
        client.produce("t", 10)
        assert client.join("t").member_epoch == 3
        with ShareMember(broker.bootstrap, "g", topic_id) as reader:
            assert reader.acquire(max_wait_ms=5_000) == [(0, 9, 1)]
            assert reader.say((0, 5, ACCEPT)) == 0
    with broker:
        client = Client(broker)
        eventually(lambda: client.beat(3).error_code == 0)
        described = client.describe()
        assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 3, 3)
        assert [member.member_id for member in described.members] == ["m"]
        with ShareMember(broker.bootstrap, "g", topic_id) as reader:
            assert reader.acquire(max_wait_ms=5_000) == [(6, 9, 1)]


def test_altered_offsets_are_where_members_read_on(ottla_broker: Broker) -> None:
    client = Client(ottla_broker)
    topic_id = client.create("t")
    client.configure("g", "share.auto.offset.reset", "earliest")
    client.produce("t", 10)
    client.join("t")
    with ShareMember(ottla_broker.bootstrap, "g", topic_id) as reader:
        assert reader.acquire(max_wait_ms=5_000) == [(0, 9, 1)]
        assert client.alter("t", {0: 3}).error_code == ErrorCode.NON_EMPTY_GROUP
        reader.leave()
    assert client.beat(LEAVE).error_code == 0
    altered = client.alter("t", {0: 3, 9: 1})
    assert altered.error_code == 0
    assert [part.error_code for part in altered.responses[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert altered.responses[0].topic_id == topic_id
    assert client.offsets()["t", 0] == 3
    client.join("t")
    with ShareMember(ottla_broker.bootstrap, "g", topic_id) as reader:
        assert reader.acquire(max_wait_ms=5_000) == [(3, 9, 1)]
    refused = client.alter("t", {0: 3}, group="none")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.responses[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND, "where clients look for it"
    assert client.alter("t", {0: 3}, group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_what_was_deleted_begins_anew(ottla_broker: Broker) -> None:
    client = Client(ottla_broker)
    topic_id = client.create("t", 1)
    client.join("t")
    client.beat(LEAVE)
    assert client.alter("t", {0: 8}).error_code == 0
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    deleted = client.ask(DeleteShareGroupOffsetsRequest(group_id="g", topics=topics), 0)
    assert [(topic.topic_id, topic.error_code) for topic in deleted.responses] == [(topic_id, 0)]
    assert client.offsets() == {}
    client.join("t")
    assert client.offsets() == {("t", 0): -1}
    client.beat(LEAVE)

    assert client.alter("t", {0: 8}).error_code == 0
    (result,) = client.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert result.error_code == 0
    assert client.ask(ListGroupsRequest(), 5).groups == []
    assert client.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    client.join("t")
    assert client.offsets() == {("t", 0): -1}


def test_deleted_topics_take_their_state_along(ottla_broker: Broker) -> None:
    client = Client(ottla_broker)
    kept = client.create("kept", 1)
    client.create("gone", 1)
    epoch = client.join("kept", "gone").member_epoch
    client.delete("gone")
    eventually(lambda: client.offsets() == {("kept", 0): -1})
    beat = client.beat(epoch, "kept", "gone")
    assert assigned(beat) == {kept: [0]}
    again = client.create("gone", 1)
    assert assigned(client.beat(beat.member_epoch)) == {kept: [0], again: [0]}


def test_without_the_feature_there_are_no_share_groups(ottla_broker: Broker) -> None:
    client = Client(ottla_broker)
    client.create("t")
    client.join("t")
    off = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=3)
    assert client.ask(UpdateFeaturesRequest(feature_updates=[off]), 2).error_code == 0
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert client.beat(3).error_code == unsupported
    assert client.describe().error_code == unsupported
    assert client.alter("t", {0: 1}).error_code == unsupported
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    assert client.ask(DeleteShareGroupOffsetsRequest(group_id="g", topics=topics), 0).error_code == unsupported
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    assert client.ask(DescribeShareGroupOffsetsRequest(groups=groups), 0).groups[0].error_code == unsupported


def test_the_log_of_states_is_kept_short(tmp_path: Path) -> None:
    settings = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.prune.interval.ms": "50",
        "share.coordinator.snapshot.update.records.per.snapshot": "1",
    }
    broker = Broker(directory=tmp_path, config=settings)
    with broker:
        client = Client(broker)
        topic_id = client.create("t", 1)
        client.configure("g", "share.auto.offset.reset", "earliest")
        client.produce("t", 10)
        client.join("t")
        with ShareMember(broker.bootstrap, "g", topic_id) as reader:
            assert reader.acquire(max_wait_ms=5_000) == [(0, 9, 1)]
            for offset in range(6):
                assert reader.say((offset, offset, ACCEPT)) == 0
        eventually(lambda: client.log_start("__share_group_state") > 2)
    with broker:
        client = Client(broker)
        assert client.log_start("__share_group_state") > 2
        with ShareMember(broker.bootstrap, "g", topic_id) as reader:
            assert reader.acquire(max_wait_ms=5_000) == [(6, 9, 1)]
