"""`quorum-state`: the election in which a node takes part, as Kafka writes it in the directory of the metadata log.

    {"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}

One line of JSON. Version 0 belongs to kraft.version 0: it lists the ids of the voters, and its vote has no directory.
Source: the schema `QuorumStateData` of Kafka 4.3.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from ottla.errors import KafkaStorageError
from ottla.ids import uuid_from_text, uuid_to_text
from ottla.log.fs import FileSystem, replace_in_spare
from ottla.protocol.primitives import NULL_UUID
from ottla.quorum.election_state import ElectionState
from ottla.quorum.replicas import ReplicaKey

QUORUM_STATE: Final = "quorum-state"
NEWEST_VERSION: Final = 1
_UNKNOWN: Final = -1


def encode(state: ElectionState, *, kraft_version: int, voter_ids: Iterable[int]) -> bytes:
    """The file's content, in the version that belongs to a level of `kraft.version`."""
    leader_id = _UNKNOWN if state.leader_id is None else state.leader_id
    voted_id = _UNKNOWN if state.voted is None else state.voted.node_id
    fields: dict[str, Any]
    if kraft_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in sorted(voter_ids)],
            "data_version": 0,
        }
    else:
        directory_id = NULL_UUID if state.voted is None else state.voted.directory_id
        fields = {
            "leaderId": leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_to_text(directory_id),
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes, path: str) -> ElectionState:
    """The election in a file's content. Raises KafkaStorageError for a damaged file, or one of an unknown version."""
    try:
        fields = json.loads(data.decode().partition("\n")[0])
        version = fields["data_version"]
        if version not in range(NEWEST_VERSION + 1):
            raise KafkaStorageError(
                f"{path} has version {version}, and only versions up to {NEWEST_VERSION} are known: use the software "
                "that wrote it"
            )
        epoch, leader_id, voted_id = (int(fields[name]) for name in ("leaderEpoch", "leaderId", "votedId"))
        directory_id = NULL_UUID
        if "votedDirectoryId" in fields:
            directory_id = uuid_from_text(fields["votedDirectoryId"])
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise KafkaStorageError(
            f"{path} is damaged ({problem!r}). It holds this node's vote, without which an epoch could get two "
            "leaders: restore it; or, while the other controllers are a majority, remove this node from the voters, "
            "remove its directory, and let it join again"
        ) from problem
    return ElectionState(
        max(epoch, 0),
        None if leader_id < 0 else leader_id,
        None if voted_id < 0 else ReplicaKey(voted_id, directory_id),
    )


def read(fs: FileSystem, directory: str) -> ElectionState | None:
    """The election of the metadata log in `directory`; None if it took part in none. Raises as `decode`, OSError."""
    path = f"{directory}/{QUORUM_STATE}"
    try:
        data = fs.read_bytes(path)
    except FileNotFoundError:
        return None
    return decode(data, path)


def write(
    fs: FileSystem, directory: str, state: ElectionState, *, kraft_version: int, voter_ids: Iterable[int]
) -> None:
    """Durable when this returns: for a thread. A full disk does not matter where `keep_spare` of that file has found
    room, or the last write. Raises OSError."""
    data = encode(state, kraft_version=kraft_version, voter_ids=voter_ids)
    replace_in_spare(fs, f"{directory}/{QUORUM_STATE}", data)
