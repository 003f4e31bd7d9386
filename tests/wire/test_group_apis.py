"""Every version of every group API over a socket: a member's life in each, and what must not be answered."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.support.eventually import eventually
from tests.support.raw_client import ask

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.schema import Message
from ottla.server.routing import ROUTES
from ottla.testing import Broker

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\0\0\0\0"


class Client:
    """Asks the broker at `bootstrap`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def ask(self, request: Message, version: int) -> Any:
        return ask(self.bootstrap, request, version, client_id="tester")

    def topic_id(self, name: str) -> UUID:
        """The id of a topic that exists."""
        found: UUID = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0].topic_id
        return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        client = Client(broker.bootstrap)
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        client.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 4)
        eventually(lambda: client.ask(ListGroupsRequest(), 5).error_code == 0)
        yield broker


@pytest.fixture
def client(broker: Broker) -> Client:
    return Client(broker.bootstrap)


def versions(api_key: ApiKey) -> range:
    route = ROUTES[api_key]
    return range(route.min_version, route.max_version + 1)


def join(client: Client, group: str, version: int = 9, member_id: str = "", **changes: Any) -> Any:
    """Once, or twice if the member is sent back for its id."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        **changes,
    )
    response = client.ask(request, version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        assert version >= 4
        request.member_id = response.member_id
        response = client.ask(request, version)
    return response


def stable(client: Client, group: str) -> str:
    """A group of one member at generation 1."""
    joined = join(client, group)
    assert joined.error_code == ErrorCode.NONE
    share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    request = SyncGroupRequest(group_id=group, generation_id=1, member_id=joined.member_id, assignments=[share])
    assert client.ask(request, 4).assignment == b"all"
    member_id: str = joined.member_id
    return member_id


def commit(
    group: str,
    offset: int,
    topic_id: UUID = NULL_UUID,
    *,
    member_id: str = "",
    generation: int = -1,
    **changes: Any,
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="kept"),
        OffsetCommitRequestPartition(partition_index=2, committed_offset=1, committed_metadata=None),
    ]
    nowhere = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=partitions),
            OffsetCommitRequestTopic(name="nowhere", topic_id=UUID(int=7), partitions=[nowhere]),
        ],
        **changes,
    )


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_find_coordinator(client: Client, broker: Broker, version: int) -> None:
    asked: dict[str, Any] = {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
    response = client.ask(FindCoordinatorRequest(**asked), version)
    found = response.coordinators if version >= 4 else [response]
    assert [(at.error_code, at.host, at.port) for at in found] == [(0, "127.0.0.1", broker.port)] * len(found)


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR)[1:])
@pytest.mark.parametrize("key_type", [0, 1, 2])
def test_coordinators_of_every_kind(client: Client, broker: Broker, version: int, key_type: int) -> None:
    key = "group:AAAAAAAAAAAAAAAAAAAAAQ:7" if key_type == 2 else "a"
    asked: dict[str, Any] = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
    response = client.ask(FindCoordinatorRequest(key_type=key_type, **asked), version)
    (found,) = response.coordinators if version >= 4 else [response]
    if key_type == 2 and version < 6:
        assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    else:
        assert (found.error_code, found.host, found.port) == (0, "127.0.0.1", broker.port)


@pytest.mark.parametrize(
    ("key_type", "key"), [(3, "a"), (2, "a"), (2, "g:not-an-id:0"), (2, " :AAAAAAAAAAAAAAAAAAAAAQ:7")]
)
def test_keys_that_nobody_coordinates(client: Client, key_type: int, key: str) -> None:
    (found,) = client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join(client: Client, version: int) -> None:
    joined = join(client, f"join-{version}", version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, SUBSCRIPTION)]


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_refused_join(client: Client, version: int) -> None:
    response = join(client, f"join-{version}", version, "nobody")
    assert (response.error_code, response.generation_id) == (ErrorCode.UNKNOWN_MEMBER_ID, -1)
    assert response.member_id == "nobody"
    assert join(client, "", version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP)[5:])
def test_a_static_leader_comes_back(client: Client, version: int) -> None:
    group = f"static-{version}"
    first = join(client, group, version, group_instance_id="i")
    share = SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"mine")
    request = SyncGroupRequest(
        group_id=group, generation_id=1, member_id=first.member_id, group_instance_id="i", assignments=[share]
    )
    client.ask(request, 4)
    second = join(client, group, version, group_instance_id="i")
    assert (second.error_code, second.generation_id) == (0, 1)
    assert second.skip_assignment is (version >= 9)
    assert second.leader == (second.member_id if version >= 9 else first.member_id)


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync(client: Client, version: int) -> None:
    group = f"sync-{version}"
    me = join(client, group).member_id
    share = SyncGroupRequestAssignment(member_id=me, assignment=b"all")
    request = SyncGroupRequest(group_id=group, generation_id=1, member_id=me, assignments=[share])
    if version >= 5:
        assert client.ask(request, version).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        request.protocol_type, request.protocol_name = "consumer", "range"
    assert client.ask(request, version).assignment == b"all"
    request.generation_id = 4
    refused = client.ask(request, version)
    assert (refused.error_code, refused.assignment) == (ErrorCode.ILLEGAL_GENERATION, b"")


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat(client: Client, version: int) -> None:
    group = f"heartbeat-{version}"
    me = stable(client, group)
    assert client.ask(HeartbeatRequest(group_id=group, generation_id=1, member_id=me), version).error_code == 0
    refused = client.ask(HeartbeatRequest(group_id=group, generation_id=1, member_id="x"), version)
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave(client: Client, version: int) -> None:
    group = f"leave-{version}"
    me = stable(client, group)
    expected = [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    if version < 3:
        errors = [
            client.ask(LeaveGroupRequest(group_id=group, member_id=who), version).error_code for who in (me, "nobody")
        ]
    else:
        who = [MemberIdentity(member_id=me), MemberIdentity(member_id="nobody", group_instance_id="i")]
        response = client.ask(LeaveGroupRequest(group_id=group, members=who), version)
        errors = [member.error_code for member in response.members]
    assert errors == expected
    assert client.ask(LeaveGroupRequest(group_id=""), version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_commit(client: Client, version: int) -> None:
    group = f"commit-{version}"
    me = stable(client, group)
    topic_id = client.topic_id("t")
    response = client.ask(commit(group, 7, topic_id, member_id=me, generation=1), version)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    nowhere = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else unknown
    errors = [[partition.error_code for partition in topic.partitions] for topic in response.topics]
    assert errors == [[0, unknown], [nowhere]]
    stale = client.ask(commit(group, 8, topic_id, member_id=me, generation=0), version)
    assert stale.topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION
    homeless = client.ask(commit("no-such-group", 8, topic_id, member_id=me, generation=3), version)
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert homeless.topics[0].partitions[0].error_code == expected


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
@pytest.mark.parametrize("all_topics", [False, True])
def test_fetch(client: Client, version: int, all_topics: bool) -> None:
    client.ask(commit("fetched", 42), 9)
    if version >= 8:
        one = OffsetFetchRequestTopics(name="t", topic_id=client.topic_id("t"), partition_indexes=[0, 1])
        wanted = None if all_topics else [one]
        groups = [OffsetFetchRequestGroup(group_id=name, topics=wanted) for name in ("fetched", "nobody")]
        response = client.ask(OffsetFetchRequest(groups=groups), version)
        found, nobody = response.groups
        assert (found.error_code, nobody.error_code) == (0, 0)
        offsets = [partition.committed_offset for topic in nobody.topics for partition in topic.partitions]
        assert offsets == [] if all_topics else [-1, -1]
        topics = found.topics
    elif all_topics and version < 2:
        return  # it could not be said
    else:
        names = None if all_topics else [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        topics = client.ask(OffsetFetchRequest(group_id="fetched", topics=names), version).topics
    (topic,) = topics
    found_offsets = [(part.partition_index, part.committed_offset, part.metadata) for part in topic.partitions]
    assert found_offsets == [(0, 42, "kept")] if all_topics else [(0, 42, "kept"), (1, -1, "")]


def test_delete_offsets(client: Client) -> None:
    client.ask(commit("forgetful", 42), 9)
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    response = client.ask(OffsetDeleteRequest(group_id="forgetful", topics=topics), 0)
    errors = [partition.error_code for partition in response.topics[0].partitions]
    assert (response.error_code, errors) == (0, [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    groups = [OffsetFetchRequestGroup(group_id="forgetful", topics=None)]
    assert client.ask(OffsetFetchRequest(groups=groups), 9).groups[0].topics == []
    unknown = client.ask(OffsetDeleteRequest(group_id="no-such-group", topics=topics), 0)
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list(client: Client, version: int) -> None:
    stable(client, f"list-{version}")
    response = client.ask(ListGroupsRequest(), version)
    listed = {group.group_id: group for group in response.groups}[f"list-{version}"]
    assert listed.protocol_type == "consumer"
    assert listed.group_state == ("Stable" if version >= 4 else "")
    assert listed.group_type == ("classic" if version >= 5 else "")
    if version >= 4:
        assert client.ask(ListGroupsRequest(states_filter=["DEAD"]), version).groups == []
    if version >= 5:
        assert client.ask(ListGroupsRequest(types_filter=["share"]), version).groups == []


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe(client: Client, version: int) -> None:
    group = f"describe-{version}"
    me = stable(client, group)
    request = DescribeGroupsRequest(groups=[group, "no-such-group"])
    if version >= 3:
        request.include_authorized_operations = True
    found, missing = client.ask(request, version).groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (me, "tester", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"all")
    assert (found.authorized_operations > 0) is (version >= 3)
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete_groups(client: Client, version: int) -> None:
    stable(client, f"full-{version}")
    client.ask(commit(f"empty-{version}", 1), 9)
    names = [f"full-{version}", f"empty-{version}", "no-such-group"]
    response = client.ask(DeleteGroupsRequest(groups_names=names), version)
    expected = [ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert [(result.group_id, result.error_code) for result in response.results] == list(
        zip(names, expected, strict=True)
    )
