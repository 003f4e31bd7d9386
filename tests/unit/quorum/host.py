"""A host for one machine: it carries effects out at once, and keeps what was sent and answered."""

from typing import Any, Final, TypeVar
from uuid import UUID

from tests.simulation.quorum.disk import Disk, snapshot_of

from ottla.protocol.messages import begin_quorum_epoch, fetch, vote
from ottla.protocol.schema import Message
from ottla.quorum.config import OwnReplica, QuorumConfig
from ottla.quorum.control_records import encode_control_batch
from ottla.quorum.effects import (
    Append,
    AppendFetched,
    ControlRecord,
    Effect,
    InstallSnapshot,
    Reply,
    ReplyRecords,
    ReplySnapshot,
    SaveElection,
    Send,
    Truncate,
    Warn,
    WriteSnapshot,
)
from ottla.quorum.election_state import ElectionState
from ottla.quorum.machine import QuorumMachine
from ottla.quorum.replicas import EMPTY_LOG, Endpoint, OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from ottla.quorum.requests import TOPIC, TOPIC_ID, topics_of
from ottla.quorum.voter_history import kraft_version_record, voters_record
from ottla.records.record import Record, encode_batch

SHORT_MS: Final = 300
R = TypeVar("R", bound=Message)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, UUID(int=node_id))


def voter(node_id: int) -> Voter:
    return Voter(key(node_id), (Endpoint("CONTROLLER", f"n{node_id}", 9093),), 0, 1)


def records(base: int, epoch: int, count: int = 1) -> bytes:
    """A batch of records."""
    rows = [Record(base + delta, 0, None, b"%d" % (base + delta)) for delta in range(count)]
    return bytes(encode_batch(rows, leader_epoch=epoch))


class Host:
    """Node `node_id` of a quorum of `voters`, dynamic unless `static`. Randomness is 0, except that a voter waits
    299 ms before its first election."""

    def __init__(
        self,
        node_id: int = 1,
        voters: tuple[int, ...] = (1, 2, 3),
        *,
        static: bool = False,
        disk: Disk | None = None,
        election: ElectionState | None = None,
        directory: int | None = None,
        **settings: Any,
    ) -> None:
        self.now = 0
        self.disk = disk or Disk()
        members = VoterSet(voter(each) for each in voters)
        config = QuorumConfig(
            bootstrap_servers=settings.pop("bootstrap_servers", tuple((f"n{each}", 9093) for each in voters)),
            static_voters=VoterSet(Voter(ReplicaKey(each.key.node_id), each.endpoints) for each in members if static),
            **settings,
        )
        if not static and not self.disk.snapshots:
            contents = snapshot_of(EMPTY_LOG, [kraft_version_record(1), voters_record(members)], b"")
            self.disk.snapshots[EMPTY_LOG] = contents
        self.disk.recover()
        directory_id = UUID(int=node_id if directory is None else directory)
        own = OwnReplica(ReplicaKey(node_id, directory_id), "cluster", voter(node_id).endpoints)
        self.machine = QuorumMachine(own, config, self.disk, lambda n: n - 1 if n == SHORT_MS else 0)
        self.sent: list[Send] = []
        self.replies: dict[Any, Any] = {}
        self.warnings: list[str] = []
        self.effects: list[Effect] = []
        self.do(self.machine.start(election, 0))

    def do(self, effects: list[Effect]) -> list[Effect]:
        """Carry effects out, except syncs of the log."""
        self.effects = effects
        for effect in effects:
            self._do(effect)
        return effects

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send():
                self.sent.append(effect)
            case Reply() | ReplyRecords() | ReplySnapshot():
                self.replies[effect.token] = effect.response
            case SaveElection():
                self.disk.election = effect.state
            case Append():
                self.disk.append(_encoded(effect))
            case AppendFetched():
                self.disk.append(bytes(effect.batches))
            case Truncate():
                self.disk.truncate(effect.offset)
            case WriteSnapshot():
                self.disk.partial.setdefault(effect.snapshot, bytearray()).extend(effect.data)
            case InstallSnapshot():
                self.disk.install(effect.snapshot, bytes(self.disk.partial.pop(effect.snapshot)))
            case Warn():
                self.warnings.append(effect.text)

    # -- inputs --------------------------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.now += ms
        self.do(self.machine.tick(self.now))

    def sync(self) -> None:
        """Sync the log."""
        self.disk.synced = self.disk.end.offset
        self.do(self.machine.synced(self.disk.synced, self.now))

    def ask(self, request: Message, token: Any = "asked", version: int = 99) -> Any:
        """Hand a request over; returns the response, None if it waits."""
        self.replies.pop(token, None)
        self.do(self.machine.handle(token, request, self.now, version=version, wall_ms=1_000_000 + self.now))
        return self.replies.get(token)

    def take(self, request_class: type[R]) -> list[tuple[Send, R]]:
        """The requests of a class that were sent, once."""
        taken = [(each, each.request) for each in self.sent if isinstance(each.request, request_class)]
        self.sent = [each for each in self.sent if not isinstance(each.request, request_class)]
        return taken

    def answer(self, sent: Send, response: Message) -> None:
        """Answer a request that was sent."""
        self.do(self.machine.answered(sent.id, response, self.now))

    def win(self) -> None:
        """Become leader with the votes of all, of which as many as needed are asked."""
        self.now = max(self.now, self.machine.next_deadline() or 0) + 2000
        self.advance(0)
        for pre_vote in (True, False):
            for sent, request in self.take(vote.VoteRequest):
                asked = request.topics[0].partitions[0]
                if asked.pre_vote is pre_vote:
                    self.answer(sent, vote_answer(asked.replica_epoch, granted=True))
        self.sync()


def _encoded(effect: Append) -> bytes:
    if isinstance(effect.records[0], ControlRecord):
        rows: Any = effect.records
        return bytes(encode_control_batch(rows, base_offset=effect.base_offset, epoch=effect.epoch, now_ms=0))
    values: Any = effect.records
    rows = [Record(effect.base_offset + delta, 0, None, value) for delta, value in enumerate(values)]
    return bytes(encode_batch(rows, leader_epoch=effect.epoch))


# -- requests and responses ------------------------------------------------------------------------------------------


def vote_request(
    sender: int,
    epoch: int,
    end: OffsetAndEpoch = EMPTY_LOG,
    *,
    pre_vote: bool = False,
    cluster_id: str | None = "cluster",
    receiver: ReplicaKey | None = None,
) -> vote.VoteRequest:
    to = receiver or key(1)
    asked = vote.PartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=sender,
        replica_directory_id=UUID(int=max(sender, 0)),
        voter_directory_id=to.directory_id,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=pre_vote,
    )
    topics = topics_of(vote.TopicData, asked)
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=to.node_id, topics=topics)


def vote_answer(epoch: int, *, granted: bool, leader_id: int = -1) -> vote.VoteResponse:
    answer = vote.ResponsePartitionData(
        partition_index=0, leader_id=leader_id, leader_epoch=epoch, vote_granted=granted
    )
    return vote.VoteResponse(topics=topics_of(vote.ResponseTopicData, answer))


def begin_request(leader: int, epoch: int) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    asked = begin_quorum_epoch.PartitionData(partition_index=0, leader_id=leader, leader_epoch=epoch)
    topics = topics_of(begin_quorum_epoch.TopicData, asked)
    return begin_quorum_epoch.BeginQuorumEpochRequest(cluster_id="cluster", topics=topics)


def fetch_request(
    sender: ReplicaKey, epoch: int, at: OffsetAndEpoch, *, max_wait_ms: int = 500, cluster_id: str | None = "cluster"
) -> fetch.FetchRequest:
    asked = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=at.offset,
        last_fetched_epoch=at.epoch,
        partition_max_bytes=0,
        replica_directory_id=sender.directory_id,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=sender.node_id),
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        topics=[fetch.FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[asked])],
    )


def fetch_answer(
    leader: int,
    epoch: int,
    batches: bytes = b"",
    *,
    high_watermark: int = -1,
    diverging: OffsetAndEpoch | None = None,
    snapshot: OffsetAndEpoch | None = None,
    error: int = 0,
) -> fetch.FetchResponse:
    found = fetch.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
        diverging_epoch=diverging and fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset),
        snapshot_id=snapshot and fetch.SnapshotId(epoch=snapshot.epoch, end_offset=snapshot.offset),
        aborted_transactions=None,
        records=batches,
    )
    topic = fetch.FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[found])
    return fetch.FetchResponse(responses=[topic])


def partition(response: Any) -> Any:
    """The only partition of a response."""
    topics = getattr(response, "topics", None) or response.responses
    return topics[0].partitions[0]
