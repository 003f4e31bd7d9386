"""The leader: its high watermark, what it serves to others, when it resigns."""

from typing import Any
from uuid import UUID

import pytest
from tests.unit.quorum.host import Host, fetch_request, key, partition, records

from ottla.errors import ErrorCode
from ottla.protocol.framing import encode_response
from ottla.protocol.messages import describe_quorum, end_quorum_epoch, fetch_snapshot
from ottla.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from ottla.quorum.effects import ReplyRecords, ReplySnapshot, Role
from ottla.quorum.errors import NotLeader
from ottla.quorum.replicas import OffsetAndEpoch, ReplicaKey
from ottla.quorum.requests import TOPIC
from ottla.quorum.serving import MAX_PARKED


@pytest.fixture
def leader() -> Host:
    """Node 1 leads a quorum of three; its log ends with the record that opens its epoch."""
    host = Host()
    host.win()
    assert host.machine.role is Role.LEADER
    return host


def fetched(host: Host, node_id: int, at: OffsetAndEpoch | None = None, **options: Any) -> Any:
    request = fetch_request(key(node_id), host.machine.epoch, at or host.disk.end, **options)
    return host.ask(request, token=f"fetch of {node_id}")


def test_a_record_is_committed_by_a_majority_that_has_synced_it(leader: Host) -> None:
    start = leader.disk.end.offset
    assert leader.machine.high_watermark is None
    fetched(leader, 2)
    assert leader.machine.high_watermark == start
    leader.do(leader.machine.append([b"x", b"y"], leader.machine.epoch, leader.now))
    fetched(leader, 2)
    assert leader.machine.high_watermark == start
    leader.sync()
    assert leader.machine.high_watermark == start + 2


def test_records_of_earlier_epochs_are_committed_with_one_of_the_own_epoch() -> None:
    host = Host()
    host.disk.append(records(0, 1, 5))
    host = Host(disk=host.disk)
    host.win()
    assert host.machine.epoch == 2
    fetched(host, 2, OffsetAndEpoch(5, 1))
    fetched(host, 3, OffsetAndEpoch(5, 1))
    assert host.machine.high_watermark is None
    fetched(host, 2)
    assert host.machine.high_watermark == host.disk.end.offset


def test_a_fetch_is_parked_until_there_are_records(leader: Host) -> None:
    fetched(leader, 2)
    assert fetched(leader, 2) is None
    at = leader.disk.end.offset
    leader.do(leader.machine.append([b"x"], leader.machine.epoch, leader.now))
    (reply,) = [effect for effect in leader.effects if isinstance(effect, ReplyRecords)]
    assert (reply.token, reply.offset) == ("fetch of 2", at)


def test_a_parked_fetch_ends_with_its_time_with_a_greater_high_watermark_and_with_the_leadership(leader: Host) -> None:
    fetched(leader, 2)
    assert fetched(leader, 2, max_wait_ms=200) is None
    leader.advance(199)
    assert "fetch of 2" not in leader.replies
    leader.advance(1)
    assert partition(leader.replies["fetch of 2"]).error_code == 0

    fetched(leader, 2)
    leader.do(leader.machine.resign(leader.machine.epoch, leader.now))
    assert partition(leader.replies["fetch of 2"]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_forgotten_fetch_is_not_answered(leader: Host) -> None:
    fetched(leader, 2)
    fetched(leader, 2)
    leader.machine.forget("fetch of 2")
    leader.advance(1000)
    assert "fetch of 2" not in leader.replies


def test_a_flood_of_fetches_shuts_out_nobody(leader: Host) -> None:
    """The oldest are answered early, as far as they are too many; those of voters stay parked."""
    fetched(leader, 2)
    fetched(leader, 2)
    leader.replies.clear()
    for nth in range(MAX_PARKED + 10):
        asked = fetch_request(key(8), leader.machine.epoch, leader.disk.end)
        leader.ask(asked, token=f"stranger {nth}")
    assert sorted(leader.replies) == sorted(f"stranger {nth}" for nth in range(11))
    assert fetched(leader, 9) is None
    leader.do(leader.machine.append([b"x"], leader.machine.epoch, leader.now))
    answered = {effect.token for effect in leader.effects if isinstance(effect, ReplyRecords)}
    assert len(answered) == MAX_PARKED
    assert answered >= {"fetch of 2", "fetch of 9"}


def test_diverging_logs_are_told_the_last_epoch_in_common() -> None:
    host = Host()
    host.disk.append(records(0, 1, 5))
    host.disk.append(records(5, 3, 5))
    host = Host(disk=host.disk)
    host.win()
    found = partition(fetched(host, 2, OffsetAndEpoch(9, 2))).diverging_epoch
    assert (found.epoch, found.end_offset) == (1, 5)
    found = partition(fetched(host, 2, OffsetAndEpoch(12, 3))).diverging_epoch
    assert (found.epoch, found.end_offset) == (3, 10)
    assert partition(fetched(host, 2, OffsetAndEpoch(7, 3))).diverging_epoch is None


def test_records_before_the_log_are_in_a_snapshot_that_is_served_in_pieces() -> None:
    snapshot = OffsetAndEpoch(10, 2)
    host = Host()
    host.disk.install(snapshot, host.disk.snapshots.popitem()[1])
    host = Host(disk=host.disk)
    host.win()
    for at in (OffsetAndEpoch(0, 0), OffsetAndEpoch(4, 1), OffsetAndEpoch(12, 1)):
        found = partition(fetched(host, 2, at)).snapshot_id
        assert (found.end_offset, found.epoch) == snapshot
    assert partition(fetched(host, 2, OffsetAndEpoch(10, 2))).snapshot_id is None

    size = len(host.disk.snapshots[snapshot])
    assert snapshot_answer(host, snapshot, 0) == (0, size)
    (reply,) = [effect for effect in host.effects if isinstance(effect, ReplySnapshot)]
    assert (reply.snapshot, reply.position, reply.max_bytes) == (snapshot, 0, 100)
    assert snapshot_answer(host, snapshot, size) == (ErrorCode.POSITION_OUT_OF_RANGE, 0)
    assert snapshot_answer(host, snapshot, -1) == (ErrorCode.POSITION_OUT_OF_RANGE, 0)
    assert snapshot_answer(host, OffsetAndEpoch(11, 2), 0) == (ErrorCode.SNAPSHOT_NOT_FOUND, 0)
    assert snapshot_answer(host, snapshot, 0, epoch=1) == (ErrorCode.FENCED_LEADER_EPOCH, 0)


def snapshot_answer(host: Host, snapshot: OffsetAndEpoch, position: int, epoch: int | None = None) -> tuple[int, int]:
    asked = fetch_snapshot.PartitionSnapshot(
        partition=0,
        current_leader_epoch=host.machine.epoch if epoch is None else epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
    )
    topics = [fetch_snapshot.TopicSnapshot(name=TOPIC, partitions=[asked])]
    answer = partition(host.ask(fetch_snapshot.FetchSnapshotRequest(replica_id=2, max_bytes=100, topics=topics)))
    return answer.error_code, answer.size


@pytest.mark.parametrize(
    ("epoch", "at", "wait", "error"),
    [
        (0, OffsetAndEpoch(0, 0), 0, ErrorCode.FENCED_LEADER_EPOCH),
        (2, OffsetAndEpoch(0, 0), 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0x7FFF_FFFF, OffsetAndEpoch(0, 0), 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, OffsetAndEpoch(-1, 0), 0, ErrorCode.INVALID_REQUEST),
        (1, OffsetAndEpoch(0, -1), 0, ErrorCode.INVALID_REQUEST),
        (1, OffsetAndEpoch(0, 2), 0, ErrorCode.INVALID_REQUEST),
        (1, OffsetAndEpoch(0, 0), -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_fetches_are_refused_and_do_not_count(
    leader: Host, epoch: int, at: OffsetAndEpoch, wait: int, error: ErrorCode
) -> None:
    answer = partition(leader.ask(fetch_request(key(2), epoch, at, max_wait_ms=wait)))
    assert answer.error_code == error
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 1)
    assert leader.machine.high_watermark is None


def test_fetches_beyond_the_log_of_others_clusters_and_of_the_own_id_do_not_count(leader: Host) -> None:
    end = leader.disk.end
    found = partition(fetched(leader, 2, OffsetAndEpoch(2**62, end.epoch)))
    assert found.diverging_epoch.end_offset == end.offset
    answer = leader.ask(fetch_request(key(2), 1, end, cluster_id="another"))
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert partition(fetched(leader, 1)).error_code == ErrorCode.INVALID_REQUEST
    assert "this leader's id 1" in leader.warnings[-1]
    stranger = ReplicaKey(2, UUID(int=99))
    leader.ask(fetch_request(stranger, 1, end))
    assert leader.machine.high_watermark is None


def test_a_second_node_with_the_id_of_a_voter_is_named_by_its_directory(leader: Host) -> None:
    leader.ask(fetch_request(ReplicaKey(2, UUID(int=99)), 1, leader.disk.end))
    assert (
        "node 2 fetches with the directory AAAAAAAAAAAAAAAAAAAAYw, and the voter 2 has AAAAAAAAAAAAAAAAAAAAAg"
        in (leader.warnings[-1])
    )


def test_two_nodes_with_the_id_of_a_static_voter_are_named_when_they_take_turns() -> None:
    leader = Host(static=True)
    leader.win()
    for directory in (8, 9):  # a replaced disk looks like this, too
        leader.ask(fetch_request(ReplicaKey(2, UUID(int=directory)), 1, leader.disk.end), token=directory)
    assert leader.warnings == []
    leader.ask(fetch_request(ReplicaKey(2, UUID(int=8)), 1, leader.disk.end))
    assert "two nodes fetch as the voter 2, in turns with different directories" in leader.warnings[-1]


def test_strangers_do_not_fill_the_memory(leader: Host) -> None:
    for number in range(3000):
        leader.ask(fetch_request(ReplicaKey(number + 10, UUID(int=number + 1)), 1, leader.disk.end), token=number)
    observers = partition(described(leader)).observers
    assert len(observers) == 1000
    leader.advance(1000)
    assert len(leader.replies) >= 3000


def test_a_leader_announces_itself_to_voters_that_do_not_fetch(leader: Host) -> None:
    first = leader.take(BeginQuorumEpochRequest)
    assert [request.voter_id for _, request in first] == [2, 3]
    for sent, _ in first:
        leader.do(leader.machine.failed(sent.id, leader.now))
    fetched(leader, 2)
    leader.advance(1000)
    assert [request.voter_id for _, request in leader.take(BeginQuorumEpochRequest)][-1] == 3


def test_a_leader_that_hears_of_no_majority_resigns(leader: Host) -> None:
    leader.advance(2999)
    fetched(leader, 2)
    leader.advance(2999)
    assert leader.machine.role is Role.LEADER
    leader.advance(1)
    assert leader.machine.role is Role.RESIGNED
    assert "no majority" in leader.warnings[-1]


def test_a_leader_that_resigns_names_the_most_complete_first(leader: Host) -> None:
    epoch = leader.machine.epoch
    at = leader.disk.end
    leader.do(leader.machine.append([b"x"], epoch, leader.now))
    fetched(leader, 2, at)
    fetched(leader, 3)
    leader.do(leader.machine.shut_down(leader.now))
    assert leader.machine.role is Role.RESIGNED
    assert not leader.machine.has_shut_down
    requests = leader.take(EndQuorumEpochRequest)
    assert [each.candidate_id for each in partition(requests[0][1]).preferred_candidates] == [3, 2]
    with pytest.raises(NotLeader, match="does not lead"):
        leader.machine.append([b"y"], epoch, leader.now)


def test_who_shuts_down_is_not_due_all_the_time_when_its_resignation_is_over(leader: Host) -> None:
    leader.advance(3000)
    assert leader.machine.role is Role.RESIGNED
    leader.do(leader.machine.shut_down(leader.now))
    for sent, _ in leader.take(EndQuorumEpochRequest):
        leader.do(leader.machine.failed(sent.id, leader.now))
    leader.advance(10_000)
    assert leader.machine.role is Role.RESIGNED
    due = leader.machine.next_deadline()
    assert due is None or due > leader.now


def test_followers_stand_for_election_in_the_order_that_the_resigning_leader_names() -> None:
    deadlines = []
    for order in ([1, 3], [3, 1], []):
        host = Host()
        candidates = [
            end_quorum_epoch.ReplicaInfo(candidate_id=each, candidate_directory_id=UUID(int=each)) for each in order
        ]
        asked = end_quorum_epoch.PartitionData(
            partition_index=0, leader_id=2, leader_epoch=1, preferred_candidates=candidates
        )
        topics = [end_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[asked])]
        host.ask(EndQuorumEpochRequest(cluster_id="cluster", topics=topics))
        deadlines.append(0 if host.machine.role is Role.PROSPECTIVE else host.machine.next_deadline())
    assert deadlines == [0, 500, 1000]


def described(host: Host, version: int = 2) -> Any:
    partitions = [describe_quorum.PartitionData(partition_index=0)]
    topics = [describe_quorum.TopicData(topic_name=TOPIC, partitions=partitions)]
    return host.ask(describe_quorum.DescribeQuorumRequest(topics=topics), version=version)


@pytest.mark.parametrize("version", [0, 1])
def test_old_versions_have_no_place_for_directories_and_nodes(leader: Host, version: int) -> None:
    fetched(leader, 9)
    encode_response(described(leader, version), version, 1)
    own = partition(described(leader)).current_voters[0]
    assert own.replica_directory_id == key(1).directory_id


def test_the_quorum_is_described(leader: Host) -> None:
    fetched(leader, 2)
    leader.advance(100)
    fetched(leader, 9)
    answer = described(leader)
    found = partition(answer)
    assert (found.leader_id, found.leader_epoch, found.high_watermark) == (1, 1, leader.disk.end.offset)
    wall = 1_000_000 + leader.now
    assert [
        (each.replica_id, each.log_end_offset, each.last_fetch_timestamp, each.last_caught_up_timestamp)
        for each in (*found.current_voters, *found.observers)
    ] == [
        (1, leader.disk.end.offset, wall, wall),
        (2, leader.disk.end.offset, wall - 100, wall - 100),
        (3, -1, -1, -1),
        (9, leader.disk.end.offset, wall, wall),
    ]
    assert [node.node_id for node in answer.nodes] == [1, 2, 3]
    assert partition(described(Host())).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    topics = [describe_quorum.TopicData(topic_name="mine", partitions=[])]
    assert leader.ask(describe_quorum.DescribeQuorumRequest(topics=topics)).topics[0].partitions == []


def test_an_append_needs_the_leader_of_its_epoch_and_records(leader: Host) -> None:
    with pytest.raises(NotLeader):
        leader.machine.append([b"x"], leader.machine.epoch - 1, leader.now)
    with pytest.raises(ValueError, match="records"):
        leader.machine.append([], leader.machine.epoch, leader.now)
    with pytest.raises(NotLeader):
        Host().machine.append([b"x"], 0, 0)
