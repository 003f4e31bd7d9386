"""A member's acknowledgements in a request, partition by partition: checked, passed on, and answered."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from ottla.errors import ErrorCode, InvalidRequest
from ottla.security.authorization import Operation
from ottla.share.partition import OUTCOMES, RENEW, Acknowledgement
from ottla.share_partitions.sessions import MemberKey, SharedPartition

if TYPE_CHECKING:
    from ottla.server.access.access import Access
    from ottla.share_partitions.led_partitions import SharePartitions


LONGEST_MEMBER_ID: Final = 36
SHARE_GROUPS_ARE_OFF: Final = "share groups are off: the feature share.version is 0"


class _Batch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class _Partition(Protocol):
    partition_index: int

    @property
    def acknowledgement_batches(self) -> Sequence[_Batch]: ...


class _Topic(Protocol):
    topic_id: UUID

    @property
    def partitions(self) -> Sequence[_Partition]: ...


def member_key(group_id: str | None, member_id: str | None) -> MemberKey:
    """The member that asks. Raises InvalidRequest for a request that does not name it."""
    if group_id is None or member_id is None:
        raise InvalidRequest("a request of a share group names the group and the member")
    if not 0 < len(member_id) <= LONGEST_MEMBER_ID:
        raise InvalidRequest(
            f"the id of a member of a share group has 1 to {LONGEST_MEMBER_ID} characters, not {len(member_id)}"
        )
    return MemberKey(group_id, member_id)


def may_read(access: "Access | None", topic_id: UUID) -> bool:
    """Whether a member has the right to read a topic; a topic that is not there is refused elsewhere."""
    if access is None:
        return True
    name = access.name_of(None, topic_id)
    return name is None or access.may_topic(Operation.READ, name)


class Acknowledging:
    """The acknowledgements of one request; `done` is called once when all are answered, at once perhaps."""

    def __init__(
        self,
        share_partitions: "SharePartitions",
        member: MemberKey,
        topics: Sequence[_Topic],
        done: Callable[[], None],
        *,
        may_renew: bool,
        access: "Access | None",
    ) -> None:
        """`may_renew`: whether the request renews locks (KIP-1222). `access`: the member's rights."""
        self.results: dict[SharedPartition, ErrorCode] = {}
        """An error, or NONE, for each partition that was mentioned with acknowledgements."""
        said: dict[SharedPartition, list[Acknowledgement]] = {}
        for topic in topics:
            for partition in topic.partitions:
                if partition.acknowledgement_batches:
                    said[topic.topic_id, partition.partition_index] = [
                        Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                        for batch in partition.acknowledgement_batches
                    ]
        self._open = len(said) + 1
        self._done = done
        for key, batches in said.items():
            problem = _problem(batches, may_renew=may_renew)
            if not may_read(access, key[0]):
                problem = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if problem:
                self._answer(key, problem)
            else:
                share_partitions.acknowledge(
                    member,
                    key,
                    batches,
                    lambda code, key=key: self._answer(key, code),  # type: ignore[misc]
                )
        self._settle()

    @property
    def is_done(self) -> bool:
        return not self._open

    def _answer(self, key: SharedPartition, code: ErrorCode) -> None:
        self.results[key] = code
        self._settle()

    def _settle(self) -> None:
        self._open -= 1
        if not self._open:
            self._done()


def _problem(batches: Sequence[Acknowledgement], *, may_renew: bool) -> ErrorCode:
    last = -1
    for batch in batches:
        count = len(batch.types)
        if (
            not last <= batch.first <= batch.last
            or count not in (1, batch.last + 1 - batch.first)
            or any(kind not in OUTCOMES and not (may_renew and kind == RENEW) for kind in batch.types)
        ):
            return ErrorCode.INVALID_REQUEST
        last = batch.last
    return ErrorCode.NONE
