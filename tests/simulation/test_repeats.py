"""What the simulation says of a batch that is in the log twice: only a leader that cannot know may accept it again, and
only a coordinator of transactions may write a state once more."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.config.log import LogConfig
from ottla.ids import LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.partition_log import PartitionLog
from ottla.records.record import encode_batch
from ottla.testing import FaultyFS, ManualClock
from tests.simulation.clients import as_records
from tests.simulation.history import History, Place, Violation
from tests.simulation.observer import Observer

PLACE = Place("t", 0)
FIRST = (b"a", b"b")


class Replica:
    """The log of a partition on a machine of its own."""

    def __init__(self, name: str) -> None:
        self.fs = FaultyFS(seed=1)
        self.fs.make_directory("/t-0")
        self.machine = SimpleNamespace(name=name, fs=self.fs, broker=None)
        self.log = PartitionLog.open(
            "/t-0", TopicPartition(TopicName("t"), PartitionId(0)), LogConfig(), fs=self.fs, clock=ManualClock()
        )

    def accept(self, epoch: int, sequence: int, *values: bytes) -> None:
        batch = encode_batch(as_records(values), producer_id=7, producer_epoch=0, base_sequence=sequence)
        self.log.append_as_leader(batch, LeaderEpoch(epoch))

    def copy(self, leader: "Replica") -> None:
        """All that the leader has from here on, and what it has committed."""
        start, end = self.log.log_end_offset, leader.log.log_end_offset
        data = leader.log.read_blocking(start, 1 << 20, upper_bound=end, min_one_message=True).data
        self.log.append_as_follower(bytes(data))
        self.log.high_watermark = leader.log.high_watermark = end

    def forget(self) -> None:
        """Lose what is known of producers, though their records are there."""
        self.log.producer_state.producers.clear()


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def replicas(history: History) -> Any:
    pair = Replica("b1"), Replica("b2")
    machines = [replica.machine for replica in pair]
    coordination: Any = SimpleNamespace(machines=machines, in_sync=lambda place: ())
    with Observer(history, coordination).installed():
        yield pair


def begin(leader: Replica, follower: Replica) -> None:
    """Two batches, copied and committed."""
    leader.accept(0, 0, *FIRST)
    leader.accept(0, 2, b"c")
    follower.copy(leader)


def test_a_leader_may_accept_a_batch_again_that_was_deleted_before_it_copied_the_log(
    history: History, replicas: tuple[Replica, Replica]
) -> None:
    leader, follower = replicas
    begin(leader, follower)
    follower.log.truncate_fully_and_start_at(Offset(3))
    follower.accept(1, 0, *FIRST)
    leader.copy(follower)
    history.acknowledge(PLACE, 3, b"a", 0.0, once=True)
    history.judge()


@pytest.mark.parametrize("start", [None, 0, 1])
def test_a_leader_that_has_copied_the_batch_may_not(
    history: History, replicas: tuple[Replica, Replica], start: int | None
) -> None:
    """Not either when it has copied the log anew, from the batch on, or from its midst."""
    leader, follower = replicas
    begin(leader, follower)
    if start is not None:
        follower.log.truncate_fully_and_start_at(Offset(3))
        follower.log.truncate_fully_and_start_at(Offset(start))
        follower.copy(leader)
    follower.forget()
    follower.accept(1, 0, *FIRST)
    leader.copy(follower)
    history.acknowledge(PLACE, 3, b"a", 0.0, once=True)
    with pytest.raises(Violation, match="b'a' of an idempotent producer is there 2 times"):
        history.judge()


def test_a_batch_that_has_been_copied_again_may_not_be_there_a_third_time(
    history: History, replicas: tuple[Replica, Replica]
) -> None:
    leader, follower = replicas
    begin(leader, follower)
    follower.log.truncate_fully_and_start_at(Offset(3))
    follower.accept(1, 0, *FIRST)
    leader.copy(follower)
    follower.forget()
    follower.accept(1, 0, *FIRST)
    leader.copy(follower)
    with pytest.raises(Violation, match="several times"):
        history.judge()


def test_a_replica_whose_log_was_deleted_only_may_not(history: History, replicas: tuple[Replica, Replica]) -> None:
    leader, follower = replicas
    begin(leader, follower)
    follower.log.delete_records_before(Offset(3))
    follower.forget()
    follower.accept(1, 0, *FIRST)
    leader.copy(follower)
    with pytest.raises(Violation, match="several times"):
        history.judge()


def test_a_replica_that_drops_an_end_its_leader_has_otherwise_may_not(
    history: History, replicas: tuple[Replica, Replica]
) -> None:
    leader, follower = replicas
    begin(leader, follower)
    follower.log.truncate_fully_and_start_at(Offset(2))
    follower.copy(leader)
    follower.forget()
    follower.accept(1, 0, *FIRST)
    leader.copy(follower)
    with pytest.raises(Violation, match="several times"):
        history.judge()


def test_a_coordinator_may_write_the_state_of_an_id_again_before_it_changes(history: History) -> None:
    write(
        history, Place("__transaction_state", 0), (b"t", b"1"), (b"u", b"2"), (b"t", b"1"), (b"t", b"1"), (b"t", b"3")
    )
    history.judge()


@pytest.mark.parametrize(
    ("topic", "records"),
    [
        ("__transaction_state", [(b"t", b"1"), (b"t", b"2"), (b"t", b"1")]),
        ("__transaction_state", [(b"t", b"1"), (b"u", b"1")]),
        ("t", [(b"t", b"1"), (b"t", b"1")]),
    ],
    ids=["after it has changed", "of another id", "in another topic"],
)
def test_nothing_else_may_be_written_again(history: History, topic: str, records: list[tuple[bytes, bytes]]) -> None:
    write(history, Place(topic, 0), *records)
    with pytest.raises(Violation, match="several times"):
        history.judge()


def write(history: History, place: Place, *records: tuple[bytes, bytes]) -> None:
    """Commit records with a key, each in a batch of its own."""
    committed = history.committed[place]
    for offset, (key, value) in enumerate(records):
        committed.batches[offset] = (offset, 0, 0)
        committed.values[offset] = value
        committed.records[offset] = (key, value)
