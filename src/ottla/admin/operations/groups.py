"""What share and streams groups have in common: lists, deletion, committed offsets; and why groups rebalanced. PURE."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.admin.errors import NotFound, RequestRefused, refusal
from ottla.admin.operations.core import (
    GROUP,
    Ask,
    Operation,
    Version,
    ask_about_group,
    ask_coordinator,
    brokers,
    by_topic,
)
from ottla.client.addresses import Address
from ottla.client.errors import ClientError
from ottla.client.partition import Partition
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_group_history import DescribeGroupHistoryRequest, DescribeGroupHistoryResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from ottla.protocol.schema import Message

_LEAVES: Final = -1
"""The epoch with which a member of a consumer group leaves."""
_REMOVED: Final = "removed by an administrator"
_OFFSETS_BY_NAME: Final = 9
"""Later versions of OffsetFetch name topics by their ids."""
_NO_SUCH_OFFSET: Final = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Answers after which there is no offset."""
_MANY_GROUPS_SINCE: Final = 8
_MANY_KEYS_SINCE: Final = 4
"""Versions of OffsetFetch and FindCoordinator that ask about several groups at once (KIP-709, KIP-699)."""
_GROUPS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, order=True)
class ListedGroup:
    """A group, Kafka's name for its state, and its type; brokers before Kafka 3.8 name no type: ""."""

    group: str
    state: str
    kind: str = ""


def list_groups(group_type: str | None = None) -> Operation[list[ListedGroup]]:
    """List the groups of a type (`classic`, `consumer`, `share`, `streams`), by name; None: of all types.

    Raises `ClientError`.
    """
    types = [] if group_type is None else [group_type]
    found: list[ListedGroup] = []
    for address in (yield from brokers()).values():
        answer: ListGroupsResponse = yield Ask(ListGroupsRequest(types_filter=types), address)
        if answer.error_code:
            raise RequestRefused(f"{address} cannot list its groups: {refusal(answer.error_code)}", answer.error_code)
        found += [
            ListedGroup(group.group_id, group.group_state, group.group_type)
            for group in answer.groups
            if group_type in (None, group.group_type)
        ]
    return sorted(found)


def list_share_groups() -> Operation[list[ListedGroup]]:
    """List the share groups of all brokers, by name. Raises `ClientError`."""
    return (yield from list_groups("share"))


def list_streams_groups() -> Operation[list[ListedGroup]]:
    """List the streams groups of all brokers, by name. Raises `ClientError`."""
    return (yield from list_groups("streams"))


def delete_groups(names: Iterable[str]) -> Operation[dict[str, RequestRefused]]:
    """Delete groups of any type, with their offsets. Returns the refusals, by name. Raises `ClientError`."""
    refused: dict[str, RequestRefused] = {}
    for name in names:
        answer: DeleteGroupsResponse = yield from ask_coordinator(
            name, GROUP, DeleteGroupsRequest(groups_names=[name]), lambda answered: int(answered.results[0].error_code)
        )
        (result,) = answer.results
        if result.error_code:
            kind = NotFound if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND else RequestRefused
            refused[name] = kind(refusal(result.error_code), result.error_code)
    return refused


def remove_group_member(name: str, member: str, *, group_type: str) -> Operation[None]:
    """Have a member leave its group: of type `classic` as its own client would (KIP-345), of `consumer` by the
    heartbeat that ends a membership (KIP-848). A member that still runs notices, and joins again.

    Raises `NotFound` if the group has no such member, `RequestRefused`, `ClientError`.
    """
    request: Message
    if group_type == "consumer":
        request = ConsumerGroupHeartbeatRequest(group_id=name, member_id=member, member_epoch=_LEAVES)
    else:
        request = LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=member, reason=_REMOVED)])
    answer = yield from ask_coordinator(name, GROUP, request, lambda answered: int(answered.error_code))
    code = answer.error_code or next((each.error_code for each in getattr(answer, "members", ()) if each.error_code), 0)
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
        raise NotFound(f"group {name!r} has no member {member!r}", code)
    if code:
        raise RequestRefused(f"member {member!r} of group {name!r} cannot be removed: {refusal(code)}", code)


@dataclass(frozen=True, slots=True)
class Move:
    """Partitions of a topic that went from one member to another; None: from or to no member."""

    topic: str
    partitions: tuple[int, ...]
    source_member_id: str | None
    target_member_id: str | None


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance of a group, and why it happened.

    `timestamp_ms` is milliseconds since 1970. `moved_partitions` counts all partitions that changed hands, `moves` has
    the largest of the moves.
    """

    timestamp_ms: int
    epoch: int
    protocol: str
    assignor: str
    reasons: tuple[str, ...]
    member_count: int
    moved_partitions: int
    moves: tuple[Move, ...]


def describe_group_history(name: str) -> Operation[list[Rebalance]]:
    """Why a group has rebalanced since its broker coordinates it, the oldest rebalance first. Ottla's brokers only.

    Raises `NotFound`, `UnsupportedRequest` by other brokers, `ClientError`.
    """
    answer: DescribeGroupHistoryResponse = yield from ask_coordinator(
        name, GROUP, DescribeGroupHistoryRequest(group_ids=[name]), lambda answered: int(answered.groups[0].error_code)
    )
    (history,) = answer.groups
    if history.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise NotFound(f"group {name!r} does not exist", history.error_code)
    if history.error_code:
        why = refusal(history.error_code, history.error_message)
        raise RequestRefused(f"the history of group {name!r} cannot be shown: {why}", history.error_code)
    return [
        Rebalance(
            each.timestamp_ms,
            each.epoch,
            each.protocol,
            each.assignor,
            tuple(each.reasons),
            each.member_count,
            each.moved_partitions,
            tuple(
                Move(move.topic, tuple(move.partitions), move.source_member_id, move.target_member_id)
                for move in each.moves
            ),
        )
        for each in history.rebalances
    ]


def list_group_offsets(name: str) -> Operation[dict[Partition, int]]:
    """The offsets that a consumer or streams group has committed: of the next record to read. Raises `ClientError`.

    Partitions without a commit are left out; a group that does not exist has none.
    """
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None)])
    found: OffsetFetchResponseGroup = yield from ask_about_group(
        name, request, f"the offsets of group {name!r} cannot be read", _OFFSETS_BY_NAME
    )
    return _committed(found)


def list_offsets_of_groups(
    names: Sequence[str], partitions: Collection[Partition] | None = None
) -> Operation[dict[str, dict[Partition, int]]]:
    """The offsets that many consumer or streams groups have committed, by group: of all partitions, or of these.

    One request a coordinator for 500 groups at a time. A group that cannot be asked is left out, and so is a partition
    without a commit. Raises `ClientError`.
    """
    version: int = yield Version(ApiKey.OFFSET_FETCH)
    finding: int = yield Version(ApiKey.FIND_COORDINATOR)
    found: dict[str, dict[Partition, int]] = {}
    if version < _MANY_GROUPS_SINCE or finding < _MANY_KEYS_SINCE:
        for name in names:
            try:
                committed = yield from list_group_offsets(name)
            except RequestRefused:
                continue
            found[name] = {each: at for each, at in committed.items() if partitions is None or each in partitions}
        return found
    topics = None if partitions is None else by_topic(partitions)
    for start in range(0, len(names), _GROUPS_AT_ONCE):
        found |= yield from _offsets_of(names[start : start + _GROUPS_AT_ONCE], topics)
    return found


def _offsets_of(
    names: Sequence[str], topics: dict[str, list[int]] | None
) -> Operation[dict[str, dict[Partition, int]]]:
    request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=list(names))
    there: FindCoordinatorResponse = yield Ask(request)
    by_coordinator: dict[Address, list[str]] = {}
    for each in there.coordinators:
        if not each.error_code:
            by_coordinator.setdefault(Address(each.host, each.port), []).append(each.key)
    found: dict[str, dict[Partition, int]] = {}
    for address, coordinated in by_coordinator.items():
        wanted = [OffsetFetchRequestGroup(group_id=name, topics=_named(topics)) for name in coordinated]
        try:
            answer: OffsetFetchResponse = yield Ask(OffsetFetchRequest(groups=wanted), address, _OFFSETS_BY_NAME)
        except ClientError:
            continue
        found |= {each.group_id: _committed(each) for each in answer.groups if not each.error_code}
    return found


def _named(topics: dict[str, list[int]] | None) -> list[OffsetFetchRequestTopics] | None:
    if topics is None:
        return None
    return [OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics.items()]


def _committed(group: OffsetFetchResponseGroup) -> dict[Partition, int]:
    return {
        Partition(topic.name, part.partition_index): part.committed_offset
        for topic in group.topics
        for part in topic.partitions
        if not part.error_code and part.committed_offset >= 0
    }


def delete_group_offsets(name: str, partitions: Iterable[tuple[str, int]]) -> Operation[None]:
    """Forget the offsets of partitions that a consumer group has committed, and no others (KIP-496).

    To forget what is not there is no error. Raises `RequestRefused`, also if members of the group read the topic, and
    `ClientError`.
    """
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=number))
    request = OffsetDeleteRequest(
        group_id=name, topics=[OffsetDeleteRequestTopic(name=topic, partitions=each) for topic, each in topics.items()]
    )
    answer: OffsetDeleteResponse = yield from ask_coordinator(
        name, GROUP, request, lambda answered: int(answered.error_code)
    )
    codes = [answer.error_code, *(part.error_code for topic in answer.topics for part in topic.partitions)]
    refused = next((code for code in codes if code not in _NO_SUCH_OFFSET), None)
    if refused is not None:
        raise RequestRefused(f"the offsets of group {name!r} cannot be deleted: {refusal(refused)}", refused)
