"""What happens to the simulated cluster: each fault undoes itself after a while, and the seed decides which and when.

A run has some kinds of faults, not all: what one kind shows would else be hidden by another that comes more often.

The promise under test: nothing acknowledged is lost whatever brokers are killed, paused, cut off or lose their power,
in any number, at any time. A disk does not fail, and is not replaced by an empty one, while what another machine had in
memory only may be gone, or before the disk replaced last is filled again: one of them has to be left. A disk that has
failed may have lost what was not synced, so no other one is replaced before its replicas are in sync again.
"""

import asyncio
import errno
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from struct import unpack_from
from typing import Final

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerUnavailable
from ottla.cluster.image import NO_LEADER, MetadataImage, PartitionImage
from ottla.ids import TopicName
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.testing.faulty_fs import Operation
from ottla.testing.simulation.loop import EXECUTOR_S
from ottla.testing.simulation.machine import DATA, METADATA, PORT, SimMachine
from ottla.testing.simulation.network import SimNetwork
from tests.simulation.coordination import Coordination
from tests.simulation.history import Place
from tests.simulation.observer import Observer, held_by

ALTER_PARTITION_REASSIGNMENTS: Final = 0
CREATE_TOPICS: Final = 5
DELETE_RECORDS: Final = 1
DELETE_TOPICS: Final = 5
ELECT_LEADERS: Final = 2
KINDS_AT_ONCE: Final = 5
MEAN_PAUSE_S: Final = 0.6
CALM_DELAY_S: Final = 0.0005
LOG_FILES: Final = "*/*.log"
LENGTH_AT: Final = 8
"""Where in a batch the number of bytes stands that follow it."""
BASE_OFFSET: Final = range(8)
LEADER_EPOCH: Final = range(12, 16)
"""And where its leader epoch."""


class Faults:
    """The faults of one run."""

    def __init__(
        self,
        random: Random,
        network: SimNetwork,
        coordination: Coordination,
        places: Sequence[Place],
        observer: Observer,
    ) -> None:
        """`places` are the partitions there will be."""
        self._random = random
        self._network = network
        self._loop = network.loop
        self._machines = coordination.machines
        self._nodes = coordination.nodes
        self._coordination = coordination
        self._stores = coordination.hosts
        self._places = places
        self._observer = observer
        self._requests: dict[asyncio.Task[None], None] = {}
        self._epoch_ms = self._machines[0].clock.offset_ms
        self._failing: set[str] = set()
        """Machines with a disk that has failed, or will."""
        self._dark: set[str] = set()
        """Machines whose power is about to fail."""
        self._failed: set[str] = set()
        """Machines with a disk that has failed, until all of their replicas are in sync again."""
        self._emptied: SimMachine | None = None
        """The machine whose disk was replaced last."""
        self._is_changing_disk = False
        self.happened: dict[str, int] = defaultdict(int)
        self.kinds: dict[str, Callable[[], bool]] = {
            "kill": self._kill,
            "kill all": self._kill_all,
            "power": self._lose_power,
            "power all": self._lose_power_everywhere,
            "stop": self._stop,
            "pause": self._pause,
            "cut": self._cut,
            "one way": self._cut_one_way,
            "from store": self._cut_from_store,
            "from controller": self._cut_from_controller,
            "store": self._lose_store,
            "depose": self._depose,
            "reset": self._reset,
            "storm": self._storm,
            "disk": self._break_disk,
            "full disk": self._fill_disk,
            "replace disk": self._replace_disk,
            "slow disks": self._slow_disks_down,
            "clock": self._jump_in_time,
            "elect": self._elect,
            "reassign": self._reassign,
            "topics": self._change_topics,
            "trim": self._trim,
        }
        if len(self._machines) == 1:
            for kind in ("elect", "reassign", "one way", "from controller", "depose", "power all", "replace disk"):
                del self.kinds[kind]
        if coordination.is_quorum:
            for kind in ("store", "from store"):
                del self.kinds[kind]
            self.kinds["voters"] = self._change_voters

    async def run(self, seconds: float, kinds: Sequence[str] = ()) -> None:
        """Make trouble for so long, of these kinds; without any, of some that the seed decides."""
        chosen = list(kinds) or self._random.sample(sorted(self.kinds), KINDS_AT_ONCE)
        until = self._loop.time() + seconds
        while self._loop.time() < until:
            await asyncio.sleep(self._random.expovariate(1 / MEAN_PAUSE_S))
            kind = self._random.choice(chosen)
            if self.kinds[kind]():
                self.happened[kind] += 1

    def end(self) -> None:
        """End all faults, and start the brokers that are down."""
        for task in self._requests:
            task.cancel()
        self._dark.clear()
        self._network.heal()
        self._calm()
        self._speed_disks_up()
        for machine in self._nodes:
            self._mend(machine)
            if machine.is_paused:
                machine.resume()
            self.revive(machine)

    def revive(self, machine: SimMachine) -> None:
        """Start the broker if it does not run."""
        if not machine.is_running:
            machine.start()

    # -- processes and machines ----------------------------------------------------------------------------------------

    def _running(self) -> list[SimMachine]:
        return [machine for machine in self._nodes if machine.is_running]

    def _victim(self) -> SimMachine | None:
        found = self._running()
        return self._random.choice(found) if found else None

    def _later(self, longest_s: float, undo: Callable[[], object]) -> None:
        self._loop.call_later(self._random.uniform(0.02, longest_s), undo)

    def _kill(self) -> bool:
        machine = self._victim()
        if machine is None:
            return False
        machine.kill()
        self._later(4.0, lambda: self.revive(machine))
        return True

    def _kill_all(self) -> bool:
        for machine in self._running():
            machine.kill()
            self._later(3.0, partial(self.revive, machine))
        return True

    def _lose_power(self) -> bool:
        if self._failing or self._is_refilling():
            return False
        self._switch_off(self._random.choice(self._nodes))
        return True

    def _lose_power_everywhere(self) -> bool:
        """On one machine after the other, some of them before the session of another has expired; they come back in
        any order, perhaps before that, too."""
        if self._failing or self._dark or self._is_refilling():
            return False
        longest_s = self._random.choice((0.05, 1.0, 3.0))
        for machine in self._nodes:
            self._dark.add(machine.name)
            self._later(longest_s, partial(self._black_out, machine))
        return True

    def _black_out(self, machine: SimMachine) -> None:
        if machine.name in self._dark:
            self._dark.discard(machine.name)
            self._switch_off(machine)

    def _switch_off(self, machine: SimMachine) -> None:
        machine.lose_power()
        self._failed.add(machine.name)
        for path in _log_files(machine):
            self._flip_bit(machine, path)
        self._observer.power_lost(machine)
        self._later(4.0, partial(self.revive, machine))

    def _flip_bit(self, machine: SimMachine, path: str) -> None:
        """Perhaps one of what has survived though it was not synced: half-written sectors read as they like."""
        at_risk = machine.fs.survived_unsynced(path)
        if at_risk and self._random.random() < 0.5:
            bit = self._random.randrange(8 * at_risk.start, 8 * at_risk.stop)
            data = machine.fs.read_bytes(path)
            if not _is_unprotected(data, bit // 8, is_compacted="__transaction_state" in path):
                machine.fs.flip_bit(path, bit)
                self.happened["bit"] += 1

    def _stop(self) -> bool:
        machine = self._victim()
        if machine is None:
            return False
        machine.stop()
        self._later(4.0, lambda: self.revive(machine))
        return True

    def _pause(self) -> bool:
        machine = self._victim()
        if machine is None or machine.is_paused:
            return False
        machine.pause()
        self._later(5.0, machine.resume)
        return True

    # -- network -------------------------------------------------------------------------------------------------------

    def _cut_off(self, victims: Sequence[str], others: Sequence[str], *, one_way: bool = False) -> bool:
        if not others:
            return False
        self._network.cut(victims, others, one_way=one_way)
        self._later(5.0, self._network.heal)
        return True

    def _some_of(self, victim: str) -> list[str]:
        names = [*(machine.name for machine in self._nodes), *self._stores]
        return [name for name in names if name != victim and self._random.random() < 0.6]

    def _cut(self) -> bool:
        victim = self._random.choice(self._nodes).name
        return self._cut_off([victim], self._some_of(victim))

    def _cut_one_way(self) -> bool:
        victim = self._random.choice(self._nodes).name
        others = self._some_of(victim)
        if self._random.random() < 0.5:
            return self._cut_off([victim], others, one_way=True)
        return self._cut_off(others, [victim], one_way=True)

    def _cut_from_store(self) -> bool:
        return self._cut_off([self._random.choice(self._machines).name], self._stores)

    def _cut_from_controller(self) -> bool:
        """One broker does not get through to the controller, or does not hear it, and everybody else does; ZooKeeper
        hears all of them."""
        controller = self._coordination.controller()
        others = [machine.name for machine in self._running() if machine.name != controller]
        if controller is None or len(others) == len(self._running()) or not others:
            return False
        ends = [[self._random.choice(others)], [controller]]
        self._random.shuffle(ends)
        return self._cut_off(*ends, one_way=True)

    def _lose_store(self) -> bool:
        """Nobody reaches ZooKeeper: all sessions may be over afterwards."""
        return self._cut_off([machine.name for machine in self._machines], self._stores)

    def _depose(self) -> bool:
        """What the controller says does not get to some for a while, in which it ceases to be the controller."""
        controller = self._coordination.controller()
        if controller is None or all(machine.name != controller for machine in self._running()):
            return False
        others = [machine.name for machine in self._nodes if machine.name != controller]
        self._network.cut([controller], self._random.sample(others, self._random.randint(1, len(others))), one_way=True)
        until_deposed = self._random.uniform(0.1, 4.0)
        self._loop.call_later(until_deposed, self._network.cut, [controller], self._stores or others)
        self._loop.call_later(until_deposed + self._random.uniform(1.5, 4.0), self._network.heal)
        return True

    def _reset(self) -> bool:
        return self._network.break_connections(self._random.choice((0.1, 0.5, 1.0))) > 0

    def _storm(self) -> bool:
        self._network.weather.loss = self._random.uniform(0.01, 0.2)
        self._network.weather.mean_delay_seconds = self._random.uniform(0.001, 0.04)
        self._later(4.0, self._calm)
        return True

    def _jump_in_time(self) -> bool:
        """The wall clock of one machine goes wrong, or right again."""
        hours = self._random.choice((-24 * 400, -1, 0, 1, 24 * 400))
        self._random.choice(self._nodes).clock.offset_ms = self._epoch_ms + hours * 3_600_000
        return True

    def _calm(self) -> None:
        self._network.weather.loss = 0.0
        self._network.weather.mean_delay_seconds = CALM_DELAY_S

    # -- disks ---------------------------------------------------------------------------------------------------------

    def _break_disk(self) -> bool:
        if self._observer.lost_power or self._dark or self._is_refilling():
            return False
        machine = self._random.choice(self._nodes)
        operation = self._random.choice((Operation.SYNC, Operation.WRITE))
        number = self._random.choice((errno.EIO, errno.ENOSPC))
        machine.fs.fail(operation, LOG_FILES, error=number, skip=self._random.randrange(3), times=1)
        self._failing.add(machine.name)
        self._failed.add(machine.name)
        self._later(3.0, lambda: self._mend(machine))
        return True

    def _fill_disk(self) -> bool:
        """For a while, hardly anything more can be written on one machine."""
        machine = self._random.choice(self._nodes)
        machine.fs.capacity_bytes = machine.fs.used_bytes() + self._random.randrange(20_000)
        self._later(5.0, partial(self._make_room, machine))
        return True

    def _make_room(self, machine: SimMachine) -> None:
        machine.fs.capacity_bytes = None
        if self._coordination.is_quorum:  # a node whose metadata log finds no room ends
            self.revive(machine)

    def _replace_disk(self) -> bool:
        """A machine goes on with an empty disk, perhaps when the others have gone, too, and before they are back."""
        if self._observer.lost_power or self._dark or self._failing or self._is_refilling():
            return False
        self._failed = {each.name for each in self._machines if each.name in self._failed and not self._is_filled(each)}
        if self._failed:
            return False
        machine = self._emptied = self._random.choice(self._machines)
        others = [other for other in self._running() if other is not machine]
        if self._random.random() < 0.5:
            self._random.shuffle(others)
            for number, other in enumerate(others):
                end = other.stop if self._random.random() < 0.5 else other.kill
                self._loop.call_later(0.3 * number, end)
                self._loop.call_later(1.0 + self._random.uniform(0.0, 4.0), partial(self.revive, other))
        self._is_changing_disk = True
        self._loop.call_later(0.9, self._change_disk, machine)
        return True

    def _change_disk(self, machine: SimMachine) -> None:
        if machine.is_running:
            machine.kill()
        machine.replace_disk()
        self._is_changing_disk = False
        self._later(2.0, partial(self.revive, machine))

    def _is_refilling(self) -> bool:
        """Whether a partition has not got back a replica that was on a disk which has been replaced."""
        machine = self._emptied
        if machine is None or self._is_changing_disk:
            return self._is_changing_disk
        is_filled = self._is_filled(machine)
        if is_filled:
            self._emptied = None
        return not is_filled

    def _is_filled(self, machine: SimMachine) -> bool:
        """Whether all replicas of a machine are there and in sync."""
        number = int(machine.name[1:])
        image = self._coordination.image()
        return machine.broker is not None and all(
            number in part.isr
            and part.leader >= 0 > part.last_known_leader
            and held_by(machine, Place(topic.name, part.partition)) is not None
            for topic in image.topics.values()
            for part in topic.partitions
            if number in part.replicas
        )

    def begin_lost_anew(self) -> None:
        """An operator gives up partitions that are lost with the replaced disk: those of one replica, and those of
        which no other replica has been in sync yet, so that nothing has been committed."""
        image = self._coordination.image()
        lost = [
            (topic.name, part.partition)
            for topic in image.topics.values()
            for part in topic.partitions
            if part.leader < 0 and (len(part.replicas) == 1 or self._was_never_copied(image, topic.name, part))
        ]
        if lost and self._emptied is not None:
            asked = [TopicPartitions(topic=name, partitions=[number]) for name, number in lost]
            self._ask(ElectLeadersRequest(election_type=1, topic_partitions=asked, timeout_ms=2_000), ELECT_LEADERS)

    def _was_never_copied(self, image: MetadataImage, topic: TopicName, part: PartitionImage) -> bool:
        """Whether nothing has been committed, and only lost replicas have been in sync: no other one leads by itself,
        whether its broker reports that it must not, or has made it before the loss."""
        return not self._observer.end_of(Place(topic, part.partition)) and is_lost_with_first_copies(image, topic, part)

    def _slow_disks_down(self) -> bool:
        mean_s = self._random.choice((0.02, 0.1, 0.5))
        self._loop.executor_seconds = lambda: self._loop.random.expovariate(1 / mean_s)
        self._later(3.0, self._speed_disks_up)
        return True

    def _speed_disks_up(self) -> None:
        self._loop.executor_seconds = lambda: self._loop.random.expovariate(1 / EXECUTOR_S)

    def _mend(self, machine: SimMachine) -> None:
        """The disk works again, and the broker is started anew: until then it may leave a failed directory alone."""
        machine.fs.heal()
        if machine.name in self._failing:
            self._failing.discard(machine.name)
            if machine.is_running:
                machine.kill()
            self.revive(machine)

    # -- what an operator does -----------------------------------------------------------------------------------------

    def _ask(self, request: object, version: int) -> bool:
        machine = self._random.choice(self._machines)
        connect = self._network.host("admin").connect
        peer = AsyncConnection(machine.name, PORT, "admin", connect=connect)

        async def ask() -> None:
            try:
                await peer.ask(request, version, timeout_s=2)  # type: ignore[arg-type]
            except BrokerUnavailable:
                return
            finally:
                peer.close()

        task = self._loop.create_task(ask())
        self._requests[task] = None
        task.add_done_callback(self._requests.pop)
        return True

    def _elect(self) -> bool:
        return self._ask(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=2_000), ELECT_LEADERS)

    def _change_topics(self) -> bool:
        """Create a topic that nobody uses, or delete one of them."""
        name = f"side{self._random.randrange(3)}"
        if self._random.random() < 0.5:
            return self._ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=2_000), DELETE_TOPICS)
        factor = self._random.randint(1, len(self._machines))
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=factor, assignments=[], configs=[])
        return self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=2_000), CREATE_TOPICS)

    def _change_voters(self) -> bool:
        """Add a voter to the quorum, or remove one, whether it is one or not."""
        request = self._coordination.change_of_voters(self._random)
        return request is not None and self._ask(request, type(request).VERSIONS[-1])

    def _trim(self) -> bool:
        """Delete records up to somewhere."""
        place = self._random.choice(self._places)
        before = self._random.randrange(self._observer.end_of(place) + 1)
        partition = DeleteRecordsPartition(partition_index=place.partition, offset=before)
        topic = DeleteRecordsTopic(name=place.topic, partitions=[partition])
        return self._ask(DeleteRecordsRequest(topics=[topic], timeout_ms=2_000), DELETE_RECORDS)

    def _reassign(self) -> bool:
        place = self._random.choice(self._places)
        numbers = [int(machine.name[1:]) for machine in self._machines]
        replicas = self._random.sample(numbers, self._random.choice((len(numbers), max(1, len(numbers) - 1))))
        partition = ReassignablePartition(partition_index=place.partition, replicas=replicas)
        topic = ReassignableTopic(name=place.topic, partitions=[partition])
        return self._ask(
            AlterPartitionReassignmentsRequest(timeout_ms=2_000, topics=[topic]), ALTER_PARTITION_REASSIGNMENTS
        )


def is_lost_with_first_copies(image: MetadataImage, topic: TopicName, part: PartitionImage) -> bool:
    """Whether each replica that is known to have been in sync was lost with its disk."""
    lost = image.failed_replicas - image.full_replicas
    first_copies = {*part.isr, *part.departed, part.last_known_leader} - {NO_LEADER}
    return bool(first_copies) and all((replica, topic, part.partition) in lost for replica in first_copies)


def _is_unprotected(data: bytes, position: int, *, is_compacted: bool) -> bool:
    """No checksum covers the leader epoch and the base offset of a batch, and recovery keeps what they say, here as in
    Kafka; of the base offset only where compaction may have made a gap."""
    start = 0
    while start + LEADER_EPOCH.stop <= len(data):
        if position - start in LEADER_EPOCH or (is_compacted and position - start in BASE_OFFSET):
            return True
        (length,) = unpack_from(">i", data, start + LENGTH_AT)
        if length <= 0:
            break
        start += LENGTH_AT + 4 + length
    return False


def _log_files(machine: SimMachine) -> list[str]:
    """The segments of all partitions on a machine."""
    fs = machine.fs
    directories = [
        f"{parent}/{name}" for parent in (DATA, METADATA) for name, is_directory, _ in fs.names(parent) if is_directory
    ]
    return [f"{path}/{name}" for path in directories for name, _, _ in fs.names(path) if name.endswith(".log")]
