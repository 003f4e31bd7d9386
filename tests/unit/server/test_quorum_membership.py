"""A broker's replicas follow the log of a quorum."""

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.commands import SetPartitions, apply
from ottla.cluster.controller_requests import OwnChanges
from ottla.cluster.image import MetadataImage, empty_image
from ottla.ids import LeaderEpoch, TopicName
from ottla.replication.decisions.refused_replicas import RefusedReplicas
from ottla.server import cluster_member, quorum_membership
from ottla.server.quorum_membership import QuorumMembership


class Following(QuorumMembership):
    """What is needed of broker 1 to follow images."""

    def __init__(self, image: MetadataImage) -> None:
        self.metadata: Any = SimpleNamespace(image=image, stopping=frozenset())
        self._config: Any = SimpleNamespace(node_id=1, inter_broker_listener="PLAINTEXT")
        self.hurried = 0
        self.lifecycle: Any = SimpleNamespace(broker_epoch=7, wants_shut_down=False, hurry=self._hurry)
        self._assignments: Any = SimpleNamespace(lost=set())
        self._directories: Any = SimpleNamespace(online=[])
        self._fetchers: Any = SimpleNamespace(held=nullcontext)
        self.roles: Any = SimpleNamespace(refused=RefusedReplicas())
        self._loop = asyncio.get_running_loop()
        self._image_changed = asyncio.Event()
        self._has_followed = asyncio.Event()

    def _hurry(self) -> None:
        self.hurried += 1


def test_a_change_that_cannot_be_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_membership, "LOOK_AGAIN_S", 0.0)
    taken: list[Any] = []

    class Member(Following):
        async def _take(self, changes: Any) -> None:
            taken.append(changes)
            if len(taken) == 1:
                raise RuntimeError("a defect, or a disk")

    async def scenario() -> None:
        member = Member(empty_image("cluster"))
        member._image_changed.set()
        following = asyncio.create_task(member._follow())
        async with asyncio.timeout(60):
            await asyncio.wait(
                [following, asyncio.create_task(member._has_followed.wait())], return_when="FIRST_COMPLETED"
            )
        assert not following.done(), following
        following.cancel()
        await asyncio.wait([following])

    asyncio.run(scenario())
    assert taken[0] == taken[1], "all of it again"


def test_a_broker_that_hands_over_does_not_begin_to_follow_the_new_leaders() -> None:
    """With thousands of partitions, to answer it would keep them from what they have just been given."""
    led = with_topic(cluster(1, 2), "t", partition(0, 1, (1, 2)))
    shrunk = partition(0, 2, (1, 2), (2,))._replace(leader_epoch=LeaderEpoch(6))
    taken: list[OwnChanges] = []

    class Member(Following):
        async def _take(self, changes: OwnChanges) -> None:
            taken.append(changes)

    async def scenario() -> None:
        member = Member(led)
        member._image_changed.set()
        following = asyncio.create_task(member._follow())
        async with asyncio.timeout(60):
            await member._has_followed.wait()
            member.lifecycle.wants_shut_down = True
            member.metadata.image = apply(led, [SetPartitions(TopicName("t"), (shrunk,))])
            member._image_changed.set()
            while len(taken) < 2:
                await asyncio.sleep(0.001)
        following.cancel()
        await asyncio.wait([following])

    asyncio.run(scenario())
    begun, handed_over = taken
    assert begun.lead_and_follow is not None
    assert handed_over.lead_and_follow is None
    assert handed_over.stop is not None
    (topic,) = handed_over.stop.topic_states
    (state,) = topic.partition_states
    assert (state.partition_index, state.leader_epoch, state.delete_partition) == (0, 6, False)


def test_a_broker_reports_at_once_how_far_it_has_read_while_another_waits_to_stop() -> None:
    """The controller lets that one stop when it knows, by default with the next heartbeat in two seconds."""
    led = with_topic(cluster(1, 2), "t", partition(0, 2, (1, 2)))
    begun: list[int] = []

    class Member(Following):
        async def _take(self, changes: OwnChanges) -> None:
            begun.append(self.hurried)

    async def scenario() -> None:
        member = Member(led)
        member._image_changed.set()
        following = asyncio.create_task(member._follow())
        async with asyncio.timeout(60):
            await member._has_followed.wait()
            moved = partition(0, 1, (1, 2), (1,))._replace(leader_epoch=LeaderEpoch(6))
            member.metadata.image = apply(led, [SetPartitions(TopicName("t"), (moved,))])
            member.metadata.stopping = frozenset({2})
            member._image_changed.set()
            while not member.hurried:
                await asyncio.sleep(0.001)
            for _ in range(3):
                member._image_changed.set()
                await asyncio.sleep(0.01)
        assert (member.hurried, following.done()) == (1, False), following
        following.cancel()
        await asyncio.wait([following])

    asyncio.run(scenario())
    assert begun[:2] == [0, 0], "not before its replicas have followed"


@pytest.mark.parametrize("answered_s", [0.0, 0.1, 60.0])
def test_a_broker_waits_for_others_to_lead_no_longer_than_a_controller_answers(
    monkeypatch: pytest.MonkeyPatch, answered_s: float
) -> None:
    """Without one nobody can lead in its place, and its next start has to wait for its end."""
    for module in (quorum_membership, cluster_member):
        monkeypatch.setattr(module, "HAND_OVER_S", 0.2)

    class Lifecycle:
        broker_epoch = 7
        wants_shut_down = may_shut_down = False

        def hurry(self) -> None:
            pass

        async def until(self, is_so: Callable[[], bool]) -> None:
            began = time.monotonic()
            while not is_so():
                await asyncio.sleep(0.01 if time.monotonic() - began < answered_s else 60)

    class Member(QuorumMembership):
        def __init__(self) -> None:
            self._config: Any = SimpleNamespace(
                node_id=1,
                controlled_shutdown_enable=True,
                controlled_shutdown_max_retries=4,
                controlled_shutdown_retry_backoff_ms=250,
            )
            self.metadata: Any = SimpleNamespace(image=SimpleNamespace(brokers={1: None, 2: None}))
            self.lifecycle: Any = Lifecycle()
            self._following: Any = object()
            self._loop = asyncio.get_running_loop()

    async def scenario() -> float:
        began = time.monotonic()
        await Member().hand_over()
        return time.monotonic() - began

    took_s = asyncio.run(scenario())
    assert took_s >= min(answered_s + 0.2, 1.0)
    assert (took_s < 1.0) is (answered_s < 1.0)
