"""Unsafe recovery of a quorum whose voters have lost their majority: one surviving replica becomes the only voter.

    | the metadata log as it is here | VotersRecord: this replica alone, in an epoch above those of all others |

Works on the files of a node that does not run, of Ottla or of genuine Kafka. The log that is here becomes the
cluster's: records that only the given-up voters had are lost, and records that were not committed yet become so.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from ottla.clock import Clock
from ottla.config.broker import BrokerConfig
from ottla.errors import CorruptMessage, InvalidConfig, KafkaStorageError
from ottla.ids import uuid_to_text
from ottla.log import meta_properties
from ottla.log.directory import LogDirectory
from ottla.log.fs import File, FileSystem
from ottla.log.scan import InvalidBatch, scan
from ottla.metadata.quorum import election_file, formatting, snapshots
from ottla.metadata.quorum.metadata_log import DIRECTORY, MetadataLog, MetadataLogConfig
from ottla.quorum.checks import MAX_EPOCH
from ottla.quorum.control_records import encode_control_batch
from ottla.quorum.election_state import ElectionState
from ottla.quorum.replicas import EMPTY_LOG, OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from ottla.quorum.voter_history import VoterHistory, voters_record
from ottla.records.batch import BatchHeader, iter_batches

EPOCHS_AHEAD: Final = 1_000
"""How far the epoch of the recovery is above those that this replica knows.

The others may have had leaders that it does not know. Brokers that followed those are in later epochs; in an epoch that
two leaders had, they would keep the wrong leader's records unnoticed. Ottla's voters believe jumps of up to
`checks.MAX_JUMP`.
"""
_SEGMENT: Final = re.compile(r"\d{20}\.log")


class Survivor(NamedTuple):
    """The replica on this node, as its files show it."""

    directory: str
    """The directory that the metadata log is in (`metadata.log.dir`)."""
    cluster_id: str
    own: ReplicaKey
    end: OffsetAndEpoch
    epoch: int
    """The newest epoch that this replica has seen."""
    committed: int
    """Records below this offset are known to be committed: the end of the newest snapshot. Files show no later one."""
    last_append_ms: int | None
    """When the last record here was appended; None if that is not known."""
    torn: str | None
    """The first batch that is damaged or incomplete, behind which nothing counts; None if all are whole."""
    kraft_version: int
    voters: VoterSet
    """The newest voters in the log; empty at kraft.version 0, where the settings name them."""

    @property
    def is_voter(self) -> bool:
        """Whether this replica is one of the voters."""
        return self.voters.includes(self.own)

    @property
    def directory_id(self) -> str:
        """The id of the directory, as `meta.properties` has it."""
        return uuid_to_text(self.own.directory_id)

    @property
    def others(self) -> list[Voter]:
        """The voters that a recovery gives up."""
        return [voter for voter in self.voters if not voter.is_replica(self.own)]

    @property
    def next_epoch(self) -> int:
        """The epoch of the record that makes this replica the only voter."""
        return max(self.epoch, self.end.epoch) + EPOCHS_AHEAD


@contextmanager
def locked(fs: FileSystem, clock: Clock, config: BrokerConfig) -> Iterator[None]:
    """Keep the node from running meanwhile. Raises InvalidConfig for a directory that is none of a quorum's node,
    KafkaStorageError while a process has it, OSError."""
    path = formatting.metadata_path(config)
    owner = meta_properties.read(fs, path)
    if not owner or not fs.exists(f"{path}/{DIRECTORY}"):
        raise InvalidConfig(f"{path} holds no metadata log of a quorum: see metadata.log.dir and log.dirs")
    formatting.check_owner(path, owner, owner.get("cluster.id", ""), config.node_id)
    if "controller" not in config.process_roles:
        raise InvalidConfig(
            "process.roles of this node does not contain controller: a controller's node has to survive, or this one "
            "has to become one"
        )
    directory = LogDirectory(Path(path), fs=fs, clock=clock)
    directory.lock()
    try:
        yield
    finally:
        directory.close()


def examine(fs: FileSystem, config: BrokerConfig) -> Survivor:
    """Read the replica's files, and change none. Raises KafkaStorageError where they cannot be relied on, OSError."""
    path = formatting.metadata_path(config)
    directory = f"{path}/{DIRECTORY}"
    owner = meta_properties.read(fs, path)
    own = ReplicaKey(config.node_id, meta_properties.directory_uuid(owner.get("directory.id", "")))
    election = election_file.read(fs, directory) or ElectionState()
    newest = max(snapshots.find(fs, directory).whole, default=None)
    history = VoterHistory(VoterSet())
    end, last_append_ms = EMPTY_LOG, None
    if newest is not None:
        try:
            outline = snapshots.check(fs, f"{directory}/{snapshots.file_name(newest)}")
        except CorruptMessage as damaged:
            raise KafkaStorageError(f"the newest snapshot is damaged: {damaged}; recover on another node") from damaged
        history.load([(-1, memoryview(batch)) for batch in outline.control_batches], newest.offset)
        end, last_append_ms = newest, outline.last_append_time_ms or None
    log = _read_log(fs, directory, end)
    if (log.end.epoch, log.end.offset) >= (end.epoch, end.offset):  # else the log is to begin behind the snapshot
        end, last_append_ms = log.end, log.last_append_ms or last_append_ms
        for batch in log.control_batches:
            for header in iter_batches(batch):
                history.read(batch, header)
    return Survivor(
        path,
        owner.get("cluster.id", ""),
        own,
        end,
        max(election.epoch, end.epoch),
        0 if newest is None else newest.offset,
        last_append_ms,
        log.torn,
        history.kraft_version,
        history.voters,
    )


class _Segments(NamedTuple):
    end: OffsetAndEpoch
    last_append_ms: int | None
    torn: str | None
    control_batches: list[memoryview]
    """Those behind the snapshot."""


def _read_log(fs: FileSystem, directory: str, snapshot: OffsetAndEpoch) -> _Segments:
    """Read the segments up to the first batch that is not whole. Raises KafkaStorageError where records are missing."""
    controls: list[memoryview] = []
    end: OffsetAndEpoch | None = None
    last_append_ms: int | None = None
    torn: str | None = None
    try:
        for header, file, path in _batches(fs, directory):
            if header.base_offset > (snapshot.offset if end is None else end.offset):
                raise KafkaStorageError(
                    f"{path}: the records before offset {header.base_offset} are missing; recover on another node"
                )
            end, last_append_ms = OffsetAndEpoch(header.next_offset, header.leader_epoch), header.max_timestamp
            if header.is_control and header.last_offset >= snapshot.offset:
                controls.append(memoryview(bytes(file.read(header.position, header.size_bytes))))
    except InvalidBatch as problem:
        torn = str(problem)
    return _Segments(end or EMPTY_LOG, last_append_ms, torn, controls)


def _batches(fs: FileSystem, directory: str) -> Iterator[tuple[BatchHeader, File, str]]:
    """The headers of all batches in all segments, in their order. Raises InvalidBatch, OSError."""
    for name in sorted(name for name, _, _ in fs.names(directory) if _SEGMENT.fullmatch(name)):
        path = f"{directory}/{name}"
        file = fs.open(path)
        for header in scan(file, path, 0, file.size(), check_crc=True):
            yield header, file, path


def only_voter(survivor: Survivor, config: BrokerConfig) -> Voter:
    """This replica as a voter: as the log names it, else as the settings do. Raises InvalidConfig."""
    found = survivor.voters.get(survivor.own.node_id)
    if found is not None and found.is_replica(survivor.own):
        return found
    return next(iter(formatting.only_voter(config, survivor.own.directory_id)))


def recover(fs: FileSystem, clock: Clock, survivor: Survivor, voter: Voter) -> None:
    """Append the record that makes `voter` the only one; durable when this returns.

    Call it while `locked`, with what `examine` has found. An interrupted call has changed nothing but the epoch. Raises
    KafkaStorageError, OSError.
    """
    if not survivor.kraft_version or survivor.end == EMPTY_LOG:
        raise KafkaStorageError(f"the metadata log in {survivor.directory} names no voters that could be replaced")
    if survivor.next_epoch > MAX_EPOCH - EPOCHS_AHEAD:
        raise KafkaStorageError(f"epoch {survivor.epoch} leaves none for a recovery: begin a new cluster")
    log = MetadataLog.open(survivor.directory, MetadataLogConfig(), fs=fs, clock=clock)
    try:
        if log.end != survivor.end:
            raise KafkaStorageError(f"{log.directory} ends at {log.end}, and ended at {survivor.end} before")
        epoch = survivor.next_epoch
        election_file.write(fs, log.directory, ElectionState(epoch), kraft_version=survivor.kraft_version, voter_ids=())
        record = voters_record(VoterSet([voter]))
        batch = encode_control_batch([record], base_offset=log.end.offset, epoch=epoch, now_ms=clock.now_ms())
        log.append(batch, log.end.offset)
    except BaseException:
        log.release()
        raise
    log.close()
