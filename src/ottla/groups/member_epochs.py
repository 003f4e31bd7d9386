"""What consumer groups (KIP-848) and streams groups (KIP-1071) answer alike: their members have epochs. PURE."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

from ottla.coordination.state_machine import Effect
from ottla.errors import ErrorCode
from ottla.groups.events import CommitOffsets
from ottla.ids import MemberId

EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"

M = TypeVar("M")


class MemberEpochsGroup(ABC, Generic[M]):
    """The part of a `Group` that such groups share; `assignment_epoch` is the epoch of the target assignment."""

    __slots__ = ()

    members: Mapping[MemberId, M]
    assignment_epoch: int

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def may_expire(self) -> bool:
        return not self.members

    def reconciliation(self, group_epoch: int) -> str:
        """The state of a group that has members."""
        epoch = self.assignment_epoch
        if group_epoch > epoch:
            return ASSIGNING
        members: Mapping[MemberId, Any] = self.members
        return STABLE if all(member.is_reconciled_to(epoch) for member in members.values()) else RECONCILING

    def commit_refusal(self, commit: CommitOffsets) -> ErrorCode:
        is_transactional = commit.producer is not None
        if commit.generation < 0 and not self.members:
            return ErrorCode.NONE
        if is_transactional and commit.generation < 0 and not commit.member_id and commit.instance_id is None:
            return ErrorCode.NONE  # the sender does not identify itself
        member = self.members.get(commit.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not commit.knows_member_epochs and not is_transactional and self.needs_member_epochs(member):
            return ErrorCode.UNSUPPORTED_VERSION
        error = self.member_commit_refusal(member, commit)
        return ErrorCode.ILLEGAL_GENERATION if error and is_transactional else error

    def needs_member_epochs(self, member: M) -> bool:
        """Whether the member has to use requests that can express STALE_MEMBER_EPOCH."""
        return True

    def member_commit_refusal(self, member: M, commit: CommitOffsets) -> ErrorCode:
        """Why the member may not commit with this epoch, or NONE."""
        return self.epoch_refusal(member, commit.generation)

    @abstractmethod
    def epoch_refusal(self, member: M, epoch: int) -> ErrorCode:
        """Why this is not the member's epoch, or NONE."""

    def fetch_refusal(self, member_id: MemberId | None, epoch: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = None if member_id is None else self.members.get(member_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else self.epoch_refusal(member, epoch)

    def delete_offsets_refusal(self) -> ErrorCode:
        return ErrorCode.NONE

    def keep_alive(self, member_id: MemberId) -> list[Effect]:
        return []
