"""PURE. Fetch and FetchSnapshot on a leader: what followers and observers may read (KIP-595, KIP-630).

Kinds of answers to a fetch: records from its offset on; the end of the newest epoch that leader and replica may have in
common, where the replica's log diverges; the newest snapshot, where records are not in the leader's log any longer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.errors import ErrorCode
from ottla.ids import uuid_to_text
from ottla.protocol.messages import fetch, fetch_snapshot
from ottla.quorum import checks, leading
from ottla.quorum.effects import Reply, ReplyRecords, ReplySnapshot, Token
from ottla.quorum.leader_state import LeaderState, ParkedFetch
from ottla.quorum.replicas import EMPTY_LOG, OffsetAndEpoch, ReplicaKey
from ottla.quorum.requests import TOPIC, TOPIC_ID, partition_of, snapshot_id
from ottla.quorum.state import QuorumState

MAX_PARKED: Final = 1_000
"""With more, the oldest ones are answered early."""
MAX_WAIT_MS: Final = 60_000
_NEVER_KNOWN: Final = 0x7FFF_FFFF_FFFF_FFFF


class Position(NamedTuple):
    """What a leader finds at a replica's position: at most one of the two is not None."""

    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None

    @property
    def is_valid(self) -> bool:
        return self.diverging is None and self.snapshot is None


def locate(state: QuorumState, at: OffsetAndEpoch) -> Position:
    """Compare a replica's end with the leader's log."""
    log = state.log
    newest, oldest = log.newest_snapshot, log.oldest_snapshot
    if at.offset == 0 and newest is not None and newest != EMPTY_LOG:
        return Position(snapshot=newest)
    if at.offset == 0 and log.start_offset == 0:
        return Position()
    if oldest is not None and (
        at.offset < log.start_offset
        or (at.offset == log.start_offset and at.epoch != oldest.epoch)
        or at.epoch < oldest.epoch
    ):
        return Position(snapshot=newest)
    end = state.end if at.epoch >= state.end.epoch else log.end_of_epoch(at.epoch)
    if end.epoch != at.epoch or end.offset < at.offset:
        return Position(diverging=end)
    return Position()


def handle_fetch(state: QuorumState, token: Token, request: fetch.FetchRequest, version: int) -> None:
    """Serve a follower's or observer's fetch, or park it until there are records for it."""
    asked: fetch.FetchPartition | None = partition_of(request.topics)
    refused = checks.addressing_error(state, request.cluster_id, asked)
    if refused or asked is None:
        state.emit(Reply(token, fetch.FetchResponse(error_code=refused, responses=[])))
        return
    key = _sender(request, asked)
    error = _fetch_error(state, key, request, asked)
    if error is not ErrorCode.NONE or not isinstance(state.part, LeaderState):
        state.emit(Reply(token, fetch_response(state, version, error)))
        return
    _serve(state, state.part, token, request, asked, key, version)


def _sender(request: fetch.FetchRequest, asked: fetch.FetchPartition) -> ReplicaKey:
    node_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    return ReplicaKey(node_id, asked.replica_directory_id)


def _fetch_error(
    state: QuorumState, key: ReplicaKey, request: fetch.FetchRequest, asked: fetch.FetchPartition
) -> ErrorCode:
    if request.max_wait_ms < 0 or asked.fetch_offset < 0:
        return ErrorCode.INVALID_REQUEST
    if asked.last_fetched_epoch < 0 or asked.last_fetched_epoch > asked.current_leader_epoch:
        return ErrorCode.INVALID_REQUEST
    error = checks.leader_request_error(state, asked.current_leader_epoch)
    if error is ErrorCode.NONE and key.node_id == state.own_id:
        state.warn(f"another node with this leader's id {state.own_id} fetches; give it a node.id of its own")
        return ErrorCode.INVALID_REQUEST
    return error


def _serve(
    state: QuorumState,
    leader: LeaderState,
    token: Token,
    request: fetch.FetchRequest,
    asked: fetch.FetchPartition,
    key: ReplicaKey,
    version: int,
) -> None:
    at = OffsetAndEpoch(asked.fetch_offset, asked.last_fetched_epoch)
    found = locate(state, at)
    if not found.is_valid:
        state.emit(Reply(token, fetch_response(state, version, position=found)))
        return
    note_fetch(state, leader, key, at.offset)
    parked = ParkedFetch(
        token,
        key,
        version,
        at.offset,
        max(request.max_bytes, 0),
        state.now_ms + min(request.max_wait_ms, MAX_WAIT_MS),
    )
    known = -1 if leader.high_watermark is None else leader.high_watermark
    is_news = at.offset < state.end.offset or asked.high_watermark < known
    if is_news or not request.max_wait_ms:
        _answer(state, parked)
        return
    if len(leader.parked) >= MAX_PARKED:
        _answer(state, leader.parked.pop(_oldest(leader)))
    leader.parked[token] = parked


def _oldest(leader: LeaderState) -> Token:
    """The fetch that has been parked for longest, of a voter only where there is no other: however many strangers
    send, nobody is shut out."""
    of_others = (each.token for each in leader.parked.values() if not leader.voters.includes(each.replica))
    return next(of_others, next(iter(leader.parked)))


def note_fetch(state: QuorumState, leader: LeaderState, key: ReplicaKey, offset: int) -> None:
    """A replica has everything before `offset`; the high watermark may move."""
    _note_twin(state, leader, key)
    progress = leader.progress_of(key)
    if progress is not None:
        progress.fetched(offset, state.end.offset, state.now_ms)
    leader.note_contact(key, state.now_ms)
    leading.advance(state, leader)


def _note_twin(state: QuorumState, leader: LeaderState, key: ReplicaKey) -> None:
    """Warn where two nodes fetch with the id of one voter; their directories tell them apart."""
    voter = leader.voters.get(key.node_id)
    if voter is None or not key.directory_id.int or key.node_id == state.own_id:
        return
    known = voter.key.directory_id
    if known.int and known != key.directory_id:
        state.warn(
            f"node {key.node_id} fetches with the directory {uuid_to_text(key.directory_id)}, and the voter "
            f"{key.node_id} has {uuid_to_text(known)}: give one of two nodes a node.id of its own; or, if the voter's "
            "disk was replaced, remove the voter and add it again"
        )
    if not known.int and leader.progress[key.node_id].is_twin(key.directory_id):
        state.warn(
            f"two nodes fetch as the voter {key.node_id}, in turns with different directories: give one of them a "
            "node.id of its own"
        )


def _answer(state: QuorumState, parked: ParkedFetch) -> None:
    response = fetch_response(state, parked.version)
    if parked.offset < state.end.offset:
        state.emit(ReplyRecords(parked.token, response, parked.offset, parked.max_bytes))
    else:
        state.emit(Reply(parked.token, response))


def answer_parked(state: QuorumState, leader: LeaderState, *, everyone: bool) -> None:
    """Answer the parked fetches that have something to read or have waited long enough, or all of them."""
    for parked in list(leader.parked.values()):
        if everyone or parked.offset < state.end.offset or state.now_ms >= parked.deadline:
            del leader.parked[parked.token]
            _answer(state, parked)
    state.wake(min((parked.deadline for parked in leader.parked.values()), default=None))


def refuse_parked(state: QuorumState, leader: LeaderState) -> None:
    """The replica leads no longer."""
    for parked in leader.parked.values():
        state.emit(Reply(parked.token, fetch_response(state, parked.version, ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    leader.parked.clear()


def fetch_response(
    state: QuorumState, version: int, error: ErrorCode = ErrorCode.NONE, position: Position | None = None
) -> fetch.FetchResponse:
    """A response without records; those of `ReplyRecords` are put into it."""
    leader = state.part if isinstance(state.part, LeaderState) else None
    known = None if leader is None or error is not ErrorCode.NONE else leader.high_watermark
    diverging, snapshot = position or Position()
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=-1 if known is None else known,
        log_start_offset=state.log.start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=state.sent_leader_id, leader_epoch=state.epoch),
        diverging_epoch=None
        if diverging is None
        else fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset),
        snapshot_id=None if snapshot is None else fetch.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        aborted_transactions=None,
        records=b"",
    )
    return fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
        node_endpoints=leading.leader_endpoints(state, fetch.NodeEndpoint, wanted=version >= 16),
    )


def handle_fetch_snapshot(
    state: QuorumState, token: Token, request: fetch_snapshot.FetchSnapshotRequest, version: int
) -> None:
    """Serve a piece of a snapshot."""
    asked: fetch_snapshot.PartitionSnapshot | None = partition_of(request.topics)
    refused = checks.addressing_error(state, request.cluster_id, asked)
    if refused or asked is None:
        state.emit(Reply(token, fetch_snapshot.FetchSnapshotResponse(error_code=refused, topics=[])))
        return
    snapshot = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    size = state.log.snapshot_size(snapshot)
    error = _snapshot_error(state, asked, snapshot, size)
    response = _snapshot_response(state, version, asked, error, size or 0)
    if error is not ErrorCode.NONE or not isinstance(state.part, LeaderState):
        state.emit(Reply(token, response))
        return
    if request.replica_id != state.own_id:
        state.part.note_contact(ReplicaKey(request.replica_id, asked.replica_directory_id), state.now_ms)
    max_bytes = max(min(request.max_bytes, state.config.snapshot_fetch_max_bytes), 1)
    state.emit(ReplySnapshot(token, response, snapshot, asked.position, max_bytes))


def _snapshot_error(
    state: QuorumState, asked: fetch_snapshot.PartitionSnapshot, snapshot: OffsetAndEpoch, size: int | None
) -> ErrorCode:
    error = checks.leader_request_error(state, asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return error
    if size is None or snapshot == EMPTY_LOG:
        return ErrorCode.SNAPSHOT_NOT_FOUND
    return ErrorCode.NONE if 0 <= asked.position < size else ErrorCode.POSITION_OUT_OF_RANGE


def _snapshot_response(
    state: QuorumState, version: int, asked: fetch_snapshot.PartitionSnapshot, error: ErrorCode, size: int
) -> fetch_snapshot.FetchSnapshotResponse:
    is_served = error is ErrorCode.NONE
    partition = fetch_snapshot.ResponsePartitionSnapshot(
        index=0,
        error_code=error,
        snapshot_id=asked.snapshot_id if is_served else snapshot_id(EMPTY_LOG),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=state.sent_leader_id, leader_epoch=state.epoch),
        size=size if is_served else 0,
        position=asked.position if is_served else 0,
        unaligned_records=b"",
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.ResponseTopicSnapshot(name=TOPIC, partitions=[partition])],
        node_endpoints=leading.leader_endpoints(state, fetch_snapshot.NodeEndpoint, wanted=version >= 1),
    )
