"""The simulated world: time, network, faults, clients of the quorum, and the end of it all."""

from __future__ import annotations

import heapq
import struct
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final
from uuid import UUID
from zlib import crc32

from ottla.protocol.compiled import decode, encode
from ottla.protocol.errors import UnencodableMessage
from ottla.protocol.messages import vote
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.schema import Message
from ottla.quorum.config import OwnReplica, QuorumConfig
from ottla.quorum.effects import Role, Send
from ottla.quorum.election_state import ElectionState
from ottla.quorum.errors import NotLeader
from ottla.quorum.replicas import EMPTY_LOG, Endpoint, ReplicaKey, Voter, VoterSet
from ottla.quorum.requests import topics_of
from ottla.quorum.voter_history import kraft_version_record, voters_record
from tests.simulation.quorum.disk import Disk, snapshot_of
from tests.simulation.quorum.node import Node, PowerCut
from tests.simulation.quorum.observer import Broken, Observer

NEWEST: Final = 99
TROUBLE_MS: Final = 12_000
RECOVERY_MS: Final = 30_000
KINDS: Final = (
    "kill",
    "power",
    "power in between",
    "power all",
    "pause",
    "clock",
    "clock all",
    "cut",
    "cut one way",
    "loss",
    "late",
    "slow disk",
    "failing disk",
    "torn snapshot",
    "voters",
    "snapshots",
    "strangers",
    "repeats",
)
EVENT: Final = struct.Struct("<qq")
"""The time of an event, and its number."""


@dataclass
class Report:
    """What a run has seen."""

    seed: int
    voters: int
    committed: int
    elections: int
    faults: dict[str, int]
    virtual_seconds: float
    sent: int
    fingerprint: str
    """A checksum of all events with their times, and of the committed records: the same for the same seed."""
    problem: str | None = None


@dataclass(eq=False)
class Pending:
    """A request on its way: exactly one outcome is given to the machine."""

    node: Node
    life: int
    id: int
    version: int = NEWEST
    is_over: bool = False


@dataclass(eq=False)
class Delivery:
    """One arrival of a request, which may arrive twice."""

    pending: Pending


@dataclass
class Trouble:
    """What is broken at the moment."""

    cut: set[tuple[int, int]] = field(default_factory=set)
    loss: float = 0.0
    late: float = 0.0
    sync_ms: int = 10
    failing: float = 0.0
    power_in_between: float = 0.0
    torn: float = 0.0


def _ignore(response: Message) -> None:
    """Nobody waits for it."""


def _copied(message: Message, version: int) -> Message:
    data = b"".join(bytes(piece) for piece in encode(message, version))  # type: ignore[arg-type]
    return decode(type(message), data, version)


class World:
    """One run, which its seed decides."""

    def __init__(self, seed: int, kinds: tuple[str, ...] | None = None, *, encodes: bool = False) -> None:
        """With `encodes` messages are encoded, in versions that differ from node to node."""
        self.seed = seed
        self.encodes = encodes
        self.random = Random(seed)
        self.kinds = kinds or tuple(self.random.sample(KINDS, 6))
        self.now = 0
        self.sent = 0
        self.fingerprint = 0
        self.in_flight: dict[int, list[Pending]] = defaultdict(list)
        """Requests that fail when their receiver's process ends."""
        self.recent: deque[tuple[Node, Message]] = deque(maxlen=300)
        """Requests that have arrived, and may do so again."""
        self.trouble = Trouble()
        self.happened: Counter[str] = Counter()
        self._events: list[tuple[int, int, Node | None, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._payload = count(1)
        self.is_dynamic = self.random.random() < 0.75
        self.voter_count = self.random.choice((3, 3, 5))
        self.nodes = self._make_nodes()
        self.observer = Observer(self.nodes)
        self.by_address = {(f"n{node.id}", 9093): node for node in self.nodes}

    def _make_nodes(self) -> list[Node]:
        others = 2
        owns = []
        for node_id in range(1, self.voter_count + others + 1):
            is_broker = node_id == self.voter_count + others
            endpoints = () if is_broker else (Endpoint("CONTROLLER", f"n{node_id}", 9093),)
            owns.append(OwnReplica(ReplicaKey(node_id, UUID(int=node_id)), "cluster", endpoints))
        voters = [Voter(own.key, own.endpoints, 0, 1) for own in owns[: self.voter_count]]
        static = VoterSet(
            Voter(ReplicaKey(voter.key.node_id), voter.endpoints) for voter in voters if not self.is_dynamic
        )
        servers = tuple((f"n{voter.key.node_id}", 9093) for voter in voters)
        config = QuorumConfig(
            static_voters=static,
            bootstrap_servers=servers,
            snapshot_fetch_max_bytes=150,
            fetch_max_bytes=self.random.choice((200, 1 << 20)),
        )
        nodes = [Node(self, own, config) for own in owns]
        if self.is_dynamic:
            records = [kraft_version_record(1), voters_record(VoterSet(voters))]
            bootstrap = snapshot_of(EMPTY_LOG, records, b"\0" * 4)
            for node in nodes[: self.voter_count]:
                node.disk.snapshots[EMPTY_LOG] = bootstrap
        return nodes

    # -- time ----------------------------------------------------------------------------------------------------------

    def at(self, when: int, node: Node | None, do: Callable[..., None], *arguments: Any) -> None:
        """Have something happen to `node`, if it lives on until then, or to nobody."""
        life = 0 if node is None else node.life
        heapq.heappush(self._events, (when, next(self._order), node, life, do, arguments))

    def run_until(self, end: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Let things happen until `end`, or until `is_done`; returns whether it is."""
        while self._events and self._events[0][0] <= end:
            when, number, node, life, do, arguments = heapq.heappop(self._events)
            self.now = max(self.now, when)
            self.fingerprint = crc32(EVENT.pack(when, number), self.fingerprint)
            if node is not None:
                if not node.is_up or node.life != life:
                    continue
                if node.paused_until > self.now:
                    self.at(node.paused_until, node, do, *arguments)
                    continue
            try:
                do(*arguments)
            except PowerCut as cut:
                self.cut_power(cut.node)
            if is_done is not None and is_done():
                return True
        self.now = end
        return False

    # -- network -------------------------------------------------------------------------------------------------------

    def _delay(self) -> int:
        if self.random.random() < self.trouble.late:
            return self.random.randint(100, 4000)
        return self.random.randint(1, 10)

    def _is_lost(self, sender: Node, receiver: Node) -> bool:
        return (sender.id, receiver.id) in self.trouble.cut or self.random.random() < self.trouble.loss

    def send(self, sender: Node, effect: Send) -> None:
        """Send a request on its way, which may end nowhere, or arrive twice."""
        self.sent += 1
        receiver = self.by_address[effect.to.host, effect.to.port]
        pending = Pending(sender, sender.life, effect.id)
        self.at(self.now + effect.timeout_ms, sender, self._fail, pending)
        if not receiver.is_up:
            self.at(self.now + self._delay(), sender, self._fail, pending)
            return
        try:
            request, pending.version = self._on_the_wire(effect.request, receiver)
        except UnencodableMessage:
            self.at(self.now + self._delay(), sender, self._fail_as_unsupported, pending)
            return
        self.in_flight[receiver.id] = [each for each in self.in_flight[receiver.id] if not each.is_over]
        self.in_flight[receiver.id].append(pending)
        copies = 2 if self.trouble.loss and self.random.random() < 0.2 else 1
        for _ in range(copies):
            if not self._is_lost(sender, receiver):
                self.at(self.now + self._delay(), receiver, self._deliver, receiver, pending, request)

    def _on_the_wire(self, message: Message, receiver: Node) -> tuple[Message, int]:
        """The request as it arrives, and its version; every third node knows no newest versions."""
        if not self.encodes:
            return message, NEWEST
        version = message.VERSIONS[-1]
        if receiver.id % 3 == 0 and version > 0 and not isinstance(message, FetchRequest | AddRaftVoterRequest):
            version -= 1
        return _copied(message, version), version

    def _fail(self, pending: Pending) -> None:
        if not pending.is_over:
            pending.is_over = True
            pending.node.carry_out(pending.node.machine.failed(pending.id, pending.node.now))

    def _fail_as_unsupported(self, pending: Pending) -> None:
        if not pending.is_over:
            pending.is_over = True
            node = pending.node
            node.carry_out(node.machine.failed(pending.id, node.now, unsupported=True))

    def _deliver(self, receiver: Node, pending: Pending, request: Message) -> None:
        if isinstance(request, ApiVersionsRequest):
            feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            self.reply(receiver, Delivery(pending), ApiVersionsResponse(api_keys=[], supported_features=[feature]))
            return
        self.recent.append((receiver, request))
        receiver.carry_out(
            receiver.machine.handle(
                Delivery(pending), request, receiver.now, version=pending.version, wall_ms=receiver.now
            )
        )

    def reply(self, sender: Node, token: Any, response: Message) -> None:
        """Send a response on its way; one to a client of the quorum is there at once."""
        if not isinstance(token, Delivery):
            token(response)
        elif not self._is_lost(sender, token.pending.node):
            if self.encodes:
                response = _copied(response, token.pending.version)
            self.at(self.now + self._delay(), None, self._answer, token.pending, response)

    def _answer(self, pending: Pending, response: Message) -> None:
        node = pending.node
        if pending.is_over or not node.is_up or node.life != pending.life:
            return
        if node.paused_until > self.now:
            self.at(node.paused_until, None, self._answer, pending, response)
            return
        pending.is_over = True
        node.carry_out(node.machine.answered(pending.id, response, node.now))

    # -- disks and power -----------------------------------------------------------------------------------------------

    def save_election(self, disk: Disk, state: ElectionState) -> None:
        disk.election = state

    def sync_time(self) -> int:
        return self.random.randint(1, self.trouble.sync_ms)

    def disk_fails(self) -> bool:
        return self.trouble.failing > 0 and self.random.random() < self.trouble.failing

    def tears_snapshot(self) -> bool:
        return self.random.random() < self.trouble.torn

    def power_cut_within(self, node: Node, effects: int) -> int | None:
        """The index of the effect before which the power fails, if it does."""
        if effects and self.trouble.power_in_between and self.random.random() < self.trouble.power_in_between:
            self.happened["power in between"] += 1
            return self.random.randrange(effects)
        return None

    def cut_power(self, node: Node) -> None:
        self.stop(node, power=True)

    def stop(self, node: Node, *, power: bool) -> None:
        """Stop a node, which starts again after a while."""
        if node.is_up:
            node.stop(power=power)
            self._break_connections(node)
            down = self.random.choice((self.random.randint(1, 50), self.random.randint(10, 3000)))
            self.at(self.now + down, None, self._restart, node, node.life)

    def _break_connections(self, node: Node) -> None:
        for pending in self.in_flight.pop(node.id, []):
            if (node.id, pending.node.id) not in self.trouble.cut:
                self.at(self.now + self._delay(), pending.node, self._fail, pending)

    def _restart(self, node: Node, life: int) -> None:
        if not node.is_up and node.life == life:
            node.start()

    # -- clients -------------------------------------------------------------------------------------------------------

    def leaders(self) -> list[Node]:
        return [node for node in self.nodes if node.is_up and node.machine.role is Role.LEADER]

    def append(self) -> None:
        """Give records to every node that believes that it leads."""
        for node in self.leaders():
            if node.paused_until > self.now:
                continue
            values = [next(self._payload).to_bytes(8, "big") for _ in range(self.random.randint(1, 3))]
            with suppress(NotLeader):
                node.carry_out(node.machine.append(values, node.machine.epoch, node.now))
        self.at(self.now + self.random.randint(20, 400), None, self.append)

    def change_voters(self) -> None:
        """Have a leader add or remove a voter."""
        for leader in self.leaders():
            voters = leader.machine.voters
            outside = [node for node in self.nodes if node.own.endpoints and node.id not in voters.ids]
            if outside and (len(voters) <= 3 or self.random.random() < 0.5):
                node = self.random.choice(outside)
                request: Message = AddRaftVoterRequest(
                    cluster_id=None,
                    timeout_ms=1000,
                    voter_id=node.id,
                    voter_directory_id=node.key.directory_id,
                    listeners=[Listener(name="CONTROLLER", host=f"n{node.id}", port=9093)],
                    ack_when_committed=self.random.random() < 0.5,
                )
            else:
                key = self.random.choice([voter.key for voter in voters])
                request = RemoveRaftVoterRequest(
                    cluster_id=None, voter_id=key.node_id, voter_directory_id=key.directory_id
                )
            name = type(request).__name__
            token = partial(self._note_change, name)
            leader.carry_out(leader.machine.handle(token, request, leader.now, version=1, wall_ms=0))

    def _note_change(self, name: str, response: Any) -> None:
        self.happened[f"{name} {'done' if not response.error_code else 'refused'}"] += 1

    # -- faults --------------------------------------------------------------------------------------------------------

    def disturb(self) -> None:
        """One fault, and the next one after a while."""
        kind = self.random.choice(self.kinds)
        self.happened[kind] += 1
        self._begin(kind, self.random.choice(self.nodes))
        self.at(self.now + self.random.randint(100, 900), None, self.disturb)

    def _begin(self, kind: str, node: Node) -> None:
        trouble, random = self.trouble, self.random
        lasts = random.randint(200, 3000)
        match kind:
            case "kill" | "power":
                self.stop(node, power=kind == "power")
            case "power all":
                for each in self.nodes:
                    self.stop(each, power=True)
            case "power in between":
                trouble.power_in_between = random.choice((0.02, 0.1))
                self.at(self.now + lasts, None, self._end, "power_in_between", 0.0)
            case "pause":
                node.paused_until = self.now + lasts
            case "clock":
                node.clock_ahead += random.randint(100, 5000)
            case "clock all":
                for each in self.nodes:
                    each.clock_ahead += random.randint(2000, 5000)
            case "cut" | "cut one way":
                self._cut(node, lasts, both=kind == "cut")
            case "loss":
                trouble.loss = random.choice((0.05, 0.3))
                self.at(self.now + lasts, None, self._end, "loss", 0.0)
            case "late":
                trouble.late = random.choice((0.1, 0.5))
                self.at(self.now + lasts, None, self._end, "late", 0.0)
            case "slow disk":
                trouble.sync_ms = 800
                self.at(self.now + lasts, None, self._end, "sync_ms", 10)
            case "failing disk":
                trouble.failing = random.choice((0.02, 0.1))
                self.at(self.now + lasts, None, self._end, "failing", 0.0)
            case "torn snapshot":
                trouble.torn = 0.5
                self.at(self.now + lasts, None, self._end, "torn", 0.0)
            case "voters":
                self.change_voters()
            case "snapshots":
                if node.is_up:
                    node.write_snapshot()
            case "strangers":
                self._ask_as_stranger(node)
            case "repeats":
                for receiver, request in random.sample(self.recent, min(20, len(self.recent))):
                    self.at(self.now, receiver, self._repeat, receiver, request)

    def _cut(self, node: Node, lasts: int, *, both: bool) -> None:
        others = self.random.sample(self.nodes, self.random.randint(1, len(self.nodes)))
        pairs = {(node.id, other.id) for other in others}
        if both or self.random.random() < 0.5:
            pairs |= {(second, first) for first, second in pairs}
        if not both and self.random.random() < 0.5:
            pairs = {(second, first) for first, second in pairs}
        self.trouble.cut |= pairs
        self.at(self.now + lasts, None, self.trouble.cut.difference_update, pairs)

    def _ask_as_stranger(self, node: Node) -> None:
        """A node that is no voter asks for votes, in epochs that have not come yet, with a log of any length."""
        random, epoch = self.random, node.machine.epoch + self.random.randint(0, 3) if node.is_up else 1
        asked = vote.PartitionData(
            partition_index=0,
            replica_epoch=epoch,
            replica_id=random.choice((77, node.id)),
            replica_directory_id=UUID(int=77),
            last_offset_epoch=random.randint(0, epoch),
            last_offset=random.randint(0, 100),
            pre_vote=random.random() < 0.5,
        )
        request = vote.VoteRequest(cluster_id="cluster", topics=topics_of(vote.TopicData, asked))
        self.at(self.now, node, self._repeat, node, request)

    def _repeat(self, receiver: Node, request: Message) -> None:
        """A request whose sender does not wait for the response."""
        receiver.carry_out(
            receiver.machine.handle(_ignore, request, receiver.now, version=NEWEST, wall_ms=receiver.now)
        )

    def _end(self, name: str, value: float) -> None:
        setattr(self.trouble, name, value)

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        """Trouble, then recovery. Raises Broken for an invariant that does not hold, or without an end."""
        for node in self.nodes:
            self.at(self.random.randint(0, 50), None, self._restart, node, 0)
        self.at(500, None, self.append)
        self.at(1000, None, self.disturb)
        self.run_until(TROUBLE_MS)
        self._events = [event for event in self._events if event[4] not in (self.disturb, self.append)]
        heapq.heapify(self._events)
        self.trouble = Trouble()
        for node in self.nodes:
            node.paused_until = min(node.paused_until, self.now)
        self._recover()
        return Report(
            self.seed,
            self.voter_count,
            self.observer.committed_end.offset,
            len(self.observer.leaders),
            dict(self.happened),
            self.now / 1000,
            self.sent,
            f"{self.fingerprint:08x}{self.observer.states[self.observer.committed_end.offset].hex()}",
        )

    def _recover(self) -> None:
        """Liveness: a leader is elected, commits a record, and all nodes have all records."""
        before = self.observer.committed_end.offset
        deadline = self.now + RECOVERY_MS
        self.at(self.now + 4000, None, self.append)
        if not self.run_until(deadline, lambda: self._is_settled(before)):
            raise Broken(f"no recovery within {RECOVERY_MS} ms: {self.describe()}")

    def _is_settled(self, before: int) -> bool:
        if self.observer.committed_end.offset <= before or not all(node.is_up for node in self.nodes):
            return False
        leaders = self.leaders()
        if len(leaders) != 1 or leaders[0].high_watermark != leaders[0].disk.end.offset:
            return False
        leader = leaders[0]
        return all(
            node.disk.end == leader.disk.end
            and node.high_watermark == leader.high_watermark
            and node.machine.leader_id == leader.id
            and node.machine.voters == leader.machine.voters
            for node in self.nodes
        )

    def describe(self) -> str:
        """All nodes, for a report."""
        return "; ".join(
            f"{node.id} {'up' if node.is_up else 'down'} {node.machine.role.value} epoch {node.machine.epoch} leader "
            f"{node.machine.leader_id} end {tuple(node.disk.end)} synced {node.disk.synced} hw {node.high_watermark} "
            f"start {node.disk.start.offset} voters {node.machine.voters}"
            for node in self.nodes
        )
