"""A topic that is deleted and created again while a broker is busy: the broker learns both from one change."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from confluent_kafka.admin import NewTopic

from ottla.cluster.controller_requests import OwnChanges
from ottla.ids import TopicName
from ottla.log.partition_log import PartitionLog
from ottla.server.quorum_membership import QuorumMembership
from tests.support.eventually import eventually
from tests.support.quorum_in_process import QuorumInProcess

MANY = 300


@pytest.fixture
def may_follow(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """While it is not set, the broker is busy with an earlier change, such as thousands of new replicas."""
    event, take = asyncio.Event(), QuorumMembership._take
    event.set()

    async def busy(self: QuorumMembership, changes: OwnChanges) -> None:
        await event.wait()
        await take(self, changes)

    monkeypatch.setattr(QuorumMembership, "_take", busy)
    return event


@pytest.fixture
def cluster() -> Iterator[QuorumInProcess]:
    with QuorumInProcess(1, min_insync_replicas="1", default_replication_factor="1") as started:
        yield started


def held(cluster: QuorumInProcess) -> PartitionLog | None:
    """The log of the broker's replica, if it is that of the topic as it is now."""

    async def find() -> PartitionLog | None:
        topic = cluster.image(1).topics[TopicName("t")]
        found = cluster.brokers[1].replicas.find(topic.topic_id, 0)
        return None if found is None else found.log

    return cluster.run(find())


def recreate(cluster: QuorumInProcess, may_follow: asyncio.Event, *, partitions_that_follow: int = 0) -> None:
    """Delete `t` and create it again; the broker follows when `may_follow` is set."""
    cluster.create("t", [[1]])
    cluster.loop.call_soon_threadsafe(may_follow.clear)
    cluster.create("other", [[1]])
    admin = cluster.admin()
    admin.delete_topics(["t"])["t"].result(20)
    cluster.create("t", [[1]])
    if partitions_that_follow:
        admin.create_topics([NewTopic("many", partitions_that_follow, 1)])["many"].result(60)


async def followed(cluster: QuorumInProcess) -> None:
    """Once this broker has the replicas of what was created last."""
    while cluster.brokers[1].replicas.find("last", 0) is None:
        await asyncio.sleep(0.02)


def test_a_topic_created_again_is_held(cluster: QuorumInProcess, may_follow: asyncio.Event) -> None:
    recreate(cluster, may_follow)
    cluster.loop.call_soon_threadsafe(may_follow.set)
    eventually(lambda: held(cluster) is not None)
    cluster.create("last", [[1]])
    cluster.run(followed(cluster))
    assert held(cluster) is not None, "the new replica was deleted in place of the old one"


def test_a_topic_created_again_keeps_what_was_acknowledged(cluster: QuorumInProcess, may_follow: asyncio.Event) -> None:
    recreate(cluster, may_follow, partitions_that_follow=MANY)
    cluster.loop.call_soon_threadsafe(may_follow.set)
    eventually(lambda: held(cluster) is not None)
    cluster.produce("t", [b"acknowledged"])
    cluster.create("last", [[1]])
    cluster.run(followed(cluster))
    cluster.stop(1)
    cluster.start(1)
    eventually(lambda: held(cluster) is not None)
    log = held(cluster)
    assert log is not None
    assert log.log_end_offset == 1


def test_no_record_goes_to_the_topic_that_was_deleted(cluster: QuorumInProcess, may_follow: asyncio.Event) -> None:
    recreate(cluster, may_follow)
    with ThreadPoolExecutor(1) as client:
        producing = client.submit(cluster.produce, "t", [b"for the new one"])
        assert not wait([producing], timeout=1).done, "the broker has only the old replica"
        cluster.loop.call_soon_threadsafe(may_follow.set)
        producing.result(60)
    log = held(cluster)
    assert log is not None
    assert log.log_end_offset == 1
