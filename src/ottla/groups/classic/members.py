"""The members of a classic group, their waiting requests, and their common protocols. PURE."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from ottla.groups.classic.records import GroupMetadata, StoredMember
from ottla.groups.events import Assignor, Join, JoinedMember, Sync
from ottla.ids import InstanceId, MemberId


class Member:
    """One member. `parked_join` and `parked_sync` are set while its JoinGroup or SyncGroup is parked."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "parked_join",
        "parked_sync",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: MemberId,
        instance_id: InstanceId | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: tuple[Assignor, ...],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        """From the last record: what the member owns while the group is stable; none, after a rebalance broken off."""
        self.parked_join: Join | None = None
        self.parked_sync: Sync | None = None
        self.is_new = False
        """It has not yet been through a rebalance, so it knows no id and sends no heartbeats."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for this protocol; empty if it does not support it."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def vote(self, candidates: frozenset[str]) -> str:
        """The first of its protocols that is a candidate: members list them by preference."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)


class Roster(Mapping[MemberId, Member]):
    """A group's members by id, in the order they came, with its leader.

    Counts the supporters of each protocol and the parked members, so that a join costs the same in a large group.
    """

    def __init__(self) -> None:
        self._members: dict[MemberId, Member] = {}
        self._static: dict[InstanceId, MemberId] = {}
        self._supporters: Counter[str] = Counter()
        self._joining = 0
        self.leader: MemberId | None = None

    def __getitem__(self, member_id: MemberId) -> Member:
        return self._members[member_id]

    def __iter__(self) -> Iterator[MemberId]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    # --- coming and going ---

    @classmethod
    def of_record(cls, record: GroupMetadata, present: "Roster") -> "Roster":
        """The members in a record. Present members that match the record stay, since they hold more state."""
        roster = cls()
        for stored in record.members:
            member = present.get(stored.member_id)
            if member is None or not _is_as_stored(member, stored, record.protocol):
                member = _from_record(stored, record.protocol)
            member.assignment = stored.assignment
            roster.add(member)
        roster.leader = record.leader
        return roster

    def add(self, member: Member) -> None:
        """The first one leads."""
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._supporters.update(_names(member.protocols))
        self._joining += member.parked_join is not None
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: MemberId) -> Member | None:
        """The next in line leads, if the leader goes."""
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        if member.instance_id is not None and self._static.get(member.instance_id) == member_id:
            del self._static[member.instance_id]
        self._supporters.subtract(_names(member.protocols))
        self._joining -= member.parked_join is not None
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def rename(self, old_id: MemberId, new_id: MemberId) -> Member:
        """A static member has come back: it keeps everything but its id, and its place in line."""
        member = self._members[old_id]
        self._members = {new_id if id_ == old_id else id_: m for id_, m in self._members.items()}
        member.member_id = new_id
        assert member.instance_id is not None
        self._static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def change_protocols(self, member: Member, protocols: tuple[Assignor, ...]) -> None:
        self._supporters.subtract(_names(member.protocols))
        member.protocols = protocols
        self._supporters.update(_names(protocols))

    # --- waiting requests ---

    def park_join(self, member: Member, join: Join) -> Join | None:
        """Returns the request that it takes the place of, if the member had asked before."""
        superseded = member.parked_join
        self._joining += superseded is None
        member.parked_join = join
        return superseded

    def unpark_join(self, member: Member) -> Join | None:
        join = member.parked_join
        self._joining -= join is not None
        member.parked_join = None
        return join

    @property
    def joining(self) -> int:
        """How many JoinGroups are parked."""
        return self._joining

    # --- questions ---

    def static_member(self, instance_id: InstanceId) -> MemberId | None:
        return self._static.get(instance_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The most patient member decides."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has joined; False: none has."""
        if self.leader is not None and self._members[self.leader].parked_join is not None:
            return True
        joined = next((member for member in self._members.values() if member.parked_join is not None), None)
        if joined is not None:
            self.leader = joined.member_id
        return joined is not None

    def supports_any(self, protocols: Iterable[Assignor]) -> bool:
        """Is one of these known to every member?"""
        return any(self._supporters[protocol.name] == len(self._members) for protocol in protocols)

    def select_protocol(self) -> str:
        """The protocol that all members support and most prefer; among equals, the one named first."""
        everybody = len(self._members)
        candidates = frozenset(name for name, count in self._supporters.items() if count == everybody)
        votes = Counter(member.vote(candidates) for member in self._members.values())
        return votes.most_common(1)[0][0]

    def to_record(self, protocol_name: str | None, assignment: Callable[[Member], bytes]) -> tuple[StoredMember, ...]:
        return tuple(
            StoredMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(protocol_name),
                assignment(member),
            )
            for member in self._members.values()
        )

    def as_seen_by_leader(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol_name))
            for member in self._members.values()
        )


def _is_as_stored(member: Member, stored: StoredMember, protocol: str | None) -> bool:
    return (
        Assignor(protocol or "", stored.subscription) in member.protocols
        and member.session_timeout_ms == stored.session_timeout_ms
        and member.rebalance_timeout_ms == stored.rebalance_timeout_ms
    )


def _from_record(stored: StoredMember, protocol: str | None) -> Member:
    rebalance_timeout_ms = stored.rebalance_timeout_ms
    return Member(
        stored.member_id,
        stored.instance_id,
        stored.client_id,
        stored.client_host,
        stored.session_timeout_ms,
        stored.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        (Assignor(protocol or "", stored.subscription),),
    )


def _names(protocols: tuple[Assignor, ...]) -> set[str]:
    return {protocol.name for protocol in protocols}
