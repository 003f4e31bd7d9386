"""Share sessions (KIP-932): which partitions a member of a share group reads here.

A session is known by group and member. Epoch 0 opens one, epochs 1, 2, 3 ... go on with it, epoch -1 closes it. It ends
with the connection that it was opened on, too. Then what the member holds is available again.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.session_epochs import FINAL_EPOCH, MAX_EPOCH

SharedPartition = tuple[UUID, int]
"""A topic's id and a partition."""


class MemberKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


class ShareSession:
    """The partitions in the order in which they were added."""

    __slots__ = ("connection_id", "epoch", "partitions")

    def __init__(self, partitions: Iterable[SharedPartition], connection_id: int) -> None:
        self.partitions = dict.fromkeys(partitions)
        self.connection_id = connection_id
        self.epoch = 1

    def update(self, added: Iterable[SharedPartition], forgotten: Iterable[SharedPartition]) -> None:
        """Change the session's partitions; one that is added twice keeps its place."""
        for partition in added:
            self.partitions.setdefault(partition)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def rotated(self, epoch: int) -> list[SharedPartition]:
        """The partitions, beginning with another one in each request: none starves when there is more than fits."""
        partitions = list(self.partitions)
        at = epoch % len(partitions) if partitions and epoch > 0 else 0
        return partitions[at:] + partitions[:at]


EndedListener = Callable[[MemberKey, Iterable[SharedPartition]], None]


class ShareSessionCache:
    """The share sessions of a broker; `ended` is called with each session that is over."""

    def __init__(self, max_sessions: int, ended: EndedListener) -> None:
        """`max_sessions`: group.share.max.share.sessions."""
        self._max_sessions = max_sessions
        self._ended = ended
        self._sessions: dict[MemberKey, ShareSession] = {}
        self._by_connection: dict[int, set[MemberKey]] = {}
        self._members: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        """Whether any member of the group has a session."""
        return group_id in self._members

    def open(self, member: MemberKey, partitions: Iterable[SharedPartition], connection_id: int) -> ShareSession:
        """A new session, in the place of one that the member may have (what it holds, it keeps).

        Raises ApiError SHARE_SESSION_LIMIT_REACHED.
        """
        self._remove(member)
        if len(self._sessions) >= self._max_sessions:
            raise ApiError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"there are {len(self._sessions)} share sessions (group.share.max.share.sessions)",
            )
        session = self._sessions[member] = ShareSession(partitions, connection_id)
        self._by_connection.setdefault(connection_id, set()).add(member)
        self._members[member.group_id] = self._members.get(member.group_id, 0) + 1
        return session

    def find(self, member: MemberKey, epoch: int) -> ShareSession:
        """The member's session. Raises ApiError SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH."""
        session = self._sessions.get(member)
        if session is None:
            raise ApiError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"member {member.member_id} of group {member.group_id} has no share session here",
            )
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the share session of member {member.member_id} is at epoch {session.epoch}, not {epoch}",
            )
        return session

    def use(self, member: MemberKey, epoch: int) -> ShareSession:
        """As `find`; the next request has to have the next epoch."""
        session = self.find(member, epoch)
        if epoch != FINAL_EPOCH:
            session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        return session

    def close(self, member: MemberKey) -> None:
        """The session, if there is one, is over."""
        session = self._remove(member)
        if session is not None:
            self._ended(member, session.partitions)

    def disconnected(self, connection_id: int) -> None:
        """A connection is closed, and with it the sessions that were opened on it."""
        for member in sorted(self._by_connection.get(connection_id, ())):
            self.close(member)

    def clear(self) -> None:
        """Forget them all, without calling `ended`."""
        self._sessions.clear()
        self._by_connection.clear()
        self._members.clear()

    def _remove(self, member: MemberKey) -> ShareSession | None:
        session = self._sessions.pop(member, None)
        if session is None:
            return None
        on_connection = self._by_connection[session.connection_id]
        on_connection.discard(member)
        if not on_connection:
            del self._by_connection[session.connection_id]
        self._members[member.group_id] -= 1
        if not self._members[member.group_id]:
            del self._members[member.group_id]
        return session
