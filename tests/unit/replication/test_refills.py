"""When a replica that was made anew in place of a lost one counts as filled again, also after its process has ended."""

from pathlib import Path
from types import MappingProxyType

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic
from tests.unit.log.driver import SetClock

from ottla.cluster.image import ELIGIBLE_LEADER_REPLICAS, NO_LEADER, MetadataImage
from ottla.config.log import LogConfig
from ottla.ids import BrokerId, PartitionId, TopicName, TopicPartition
from ottla.log.directories import LogDirectories
from ottla.log.refill_marks import MARK
from ottla.replication.refills import Refills
from ottla.testing.faulty_fs import FaultyFS

T0 = TopicPartition(TopicName("t"), PartitionId(0))
LEADER, OWN, LAST = BrokerId(1), BrokerId(2), BrokerId(3)


def image(
    epoch: int, leader: int, *isr: int, eligible: tuple[int, ...] = (), elects_eligible: bool = True
) -> MetadataImage:
    """The partition in one of its epochs."""
    part = partition(0, leader, (LEADER, OWN, LAST), isr)._replace(
        partition_epoch=epoch, departed=tuple(map(BrokerId, eligible)), eligible_count=len(eligible)
    )
    features = MappingProxyType({ELIGIBLE_LEADER_REPLICAS: int(elects_eligible)})
    return with_topic(cluster(1, 2, 3), "t", part)._replace(features=features)


class Filled:
    """Broker 2, whose replica was lost with its disk, and begins empty in some epoch of the partition."""

    def __init__(self, before: MetadataImage) -> None:
        self.fs = FaultyFS(seed=1)
        self.fs.make_directory("/data")
        directories = self.start()
        self.refills = Refills(directories)
        refill = self.refills.anew(T0, before, OWN)
        directories.create_log(T0, None, LogConfig(), refill=refill)
        self.refills.begin(T0, refill)

    def start(self) -> LogDirectories:
        directories = LogDirectories([Path("/data")], fs=self.fs, clock=SetClock())
        directories.acquire(cluster_id="c", node_id=OWN)
        directories.load_all(lambda _topic: LogConfig())
        return directories

    def is_after_a_restart(self, first: MetadataImage, *later: MetadataImage) -> bool:
        """Whether it counts as filled, once another process has seen these images."""
        self.fs.end_process()
        self.refills = Refills(self.start())
        self.refills.load()
        for old, new in zip((first, first, *later), (first, *later), strict=False):
            self.refills.end_where_in_sync(old, new, OWN)
        assert (T0 in self.refills) == self.fs.exists(f"/data/{T0}/{MARK}")
        return T0 not in self.refills


OUT_OF_SYNC = image(4, LEADER, LEADER)
ABANDONED = image(7, NO_LEADER, eligible=(OWN,))


def test_a_replica_is_filled_when_a_leader_has_it_in_sync() -> None:
    broker = Filled(OUT_OF_SYNC)
    broker.refills.end_where_in_sync(OUT_OF_SYNC, image(5, LEADER, LEADER, LAST), OWN)
    assert T0 in broker.refills
    broker.refills.end_where_in_sync(OUT_OF_SYNC, image(6, LEADER, LEADER, OWN), OWN)
    assert T0 not in broker.refills


@pytest.mark.parametrize(
    "images",
    [
        [ABANDONED],
        [OUT_OF_SYNC, ABANDONED],
        [image(5, LEADER, LEADER, OWN)],
        [image(6, LAST, LAST, eligible=(OWN,)), image(7, OWN, OWN)],
    ],
)
def test_a_replica_was_filled_if_it_was_in_sync_and_its_process_ended_before_it_knew(
    images: list[MetadataImage],
) -> None:
    """Perhaps it is the only one that is left, and then nobody else can lead."""
    assert Filled(OUT_OF_SYNC).is_after_a_restart(*images)


@pytest.mark.parametrize(
    "images",
    [
        [OUT_OF_SYNC],
        [image(5, NO_LEADER)],
        [image(3, LEADER, LEADER, OWN)],
        [image(3, NO_LEADER, eligible=(OWN,)), OUT_OF_SYNC],
        [image(5, NO_LEADER), image(6, OWN, OWN)],
    ],
    ids=["out of sync", "not eligible", "in sync before", "eligible before", "led uncleanly"],
)
def test_a_replica_is_not_filled_by_what_happened_before_it_was_lost_nor_by_an_unclean_election(
    images: list[MetadataImage],
) -> None:
    assert not Filled(OUT_OF_SYNC).is_after_a_restart(*images)


@pytest.mark.parametrize(
    "before",
    [image(4, LEADER, LEADER, eligible=(OWN,)), image(4, LEADER, LEADER, elects_eligible=False), cluster(1, 2, 3)],
    ids=["eligible all along", "eligible are others, too", "not known"],
)
def test_to_be_eligible_proves_nothing_of_a_replica_that_may_have_been_so_when_it_was_lost(
    before: MetadataImage,
) -> None:
    broker = Filled(before)
    assert not broker.is_after_a_restart(ABANDONED)
    assert broker.is_after_a_restart(image(8, LEADER, LEADER, OWN))


@pytest.mark.parametrize(
    ("recorded", "expected", "message"),
    [
        ({}, True, "t-0 is not here, and this broker had it, or was to have it: another replica has to lead"),
        ({"gone": 1}, False, "t-0 is not here, and a log directory that this broker had is missing, and may have it"),
        ({"own": 7}, False, "t-0 is not here, and /data is an old copy of what this broker had, which may have had it"),
    ],
)
def test_the_error_says_whether_this_broker_had_the_replica(
    recorded: dict[str, int], expected: bool, message: str
) -> None:
    """While a log directory is missing, a broker cannot know what it never had."""
    fs = FaultyFS(seed=1)
    fs.make_directory("/data")
    directories = LogDirectories([Path("/data")], fs=fs, clock=SetClock())
    directories.acquire(cluster_id="c", node_id=OWN)
    directories.load_all(lambda _topic: LogConfig())
    own = directories.directories[0].directory_id
    directories.compare({own if each == "own" else each: generation for each, generation in recorded.items()})
    if expected:
        directories.expect(T0)
    assert str(Refills(directories).lost(T0)).startswith(message)


def test_the_error_of_a_replica_that_is_filled_again_says_so() -> None:
    assert str(Filled(OUT_OF_SYNC).refills.lost(T0)).startswith(
        "t-0 began empty on this broker, since its log was lost"
    )
