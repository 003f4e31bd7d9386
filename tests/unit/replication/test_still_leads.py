"""Which leaders go on while their session is in doubt."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.config.log import LogConfig
from ottla.errors import NotLeader
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.replication.decisions.in_sync import InSyncReplicas
from ottla.replication.manager import ReplicaManager
from ottla.server.quorum_membership import QuorumMembership

ONE, TWO = BrokerId(1), BrokerId(2)
LEADER_ONLY, ALL = 1, -1


def goes_on(
    *isr: BrokerId,
    acks: int = LEADER_ONLY,
    is_confirmed: bool = True,
    unclean: bool = False,
    only_in_sync_may_lead: bool = True,
    fetched: bool = False,
) -> bool:
    """May broker 1 go on leading replicas 1 and 2? Nobody has fetched, unless `fetched`."""
    in_sync = InSyncReplicas(
        ONE,
        (ONE, TWO),
        isr,
        leader_epoch=LeaderEpoch(4),
        partition_epoch=7,
        epoch_start=Offset(0),
        lag_s=10.0,
        now=0.0,
        is_confirmed=is_confirmed,
    )
    if fetched:
        in_sync.fetched(TWO, Offset(0), log_start_offset=Offset(0), end_offset=Offset(0), broker_epoch=3, now=99.5)
    log = SimpleNamespace(config=LogConfig(unclean_leader_election_enable=unclean))
    partition: Any = SimpleNamespace(in_sync=in_sync, log=log, topic_partition="t-0")
    loop = SimpleNamespace(time=lambda: 100.0)
    manager = cast(
        "ReplicaManager",
        SimpleNamespace(
            _broker_id=ONE, _loop=loop, _followed_seconds=1.0, only_in_sync_may_lead=lambda _: only_in_sync_may_lead
        ),
    )
    try:
        ReplicaManager._check_still_leads(manager, partition, acks)
    except NotLeader:
        return False
    return True


@pytest.mark.parametrize("acks", [LEADER_ONLY, ALL])
def test_who_is_alone_in_sync_goes_on_as_nobody_else_can_be_elected(acks: int) -> None:
    assert goes_on(ONE, acks=acks)
    assert not goes_on(ONE, TWO, acks=acks)
    assert not goes_on(ONE, acks=acks, unclean=True)


@pytest.mark.parametrize("acks", [LEADER_ONLY, ALL])
def test_who_has_not_confirmed_that_it_leads_does_not_for_who_led_before_may_lead_again(acks: int) -> None:
    assert not goes_on(ONE, acks=acks, is_confirmed=False)


def test_where_another_replica_is_eligible_it_may_lead_already() -> None:
    assert not goes_on(ONE, only_in_sync_may_lead=False)
    assert goes_on(ONE, TWO, acks=ALL, fetched=True)
    assert not goes_on(ONE, TWO, acks=LEADER_ONLY, fetched=True)
    assert not goes_on(ONE, TWO, acks=ALL, fetched=True, only_in_sync_may_lead=False)


@pytest.mark.parametrize(
    ("shown_epoch", "departed", "eligible", "is_so"),
    [(7, (), 0, True), (7, (2,), 0, True), (7, (2,), 1, False), (6, (), 0, False), (8, (), 0, False)],
)
def test_a_quorums_log_shows_who_is_eligible(
    shown_epoch: int, departed: tuple[int, ...], eligible: int, is_so: bool
) -> None:
    """In the state that the leader goes by: its in-sync set was larger before, or another leads since."""
    shown = partition(0, 1, (1, 2), isr=(1,))._replace(
        partition_epoch=shown_epoch, departed=tuple(map(BrokerId, departed)), eligible_count=eligible
    )
    metadata = SimpleNamespace(image=with_topic(cluster(1, 2), "t", shown))
    membership = cast("QuorumMembership", SimpleNamespace(metadata=metadata))
    for name, expected in (("t", is_so), ("u", False)):
        led: Any = SimpleNamespace(topic_partition=TopicPartition(TopicName(name), PartitionId(0)), partition_epoch=7)
        assert QuorumMembership._only_in_sync_may_lead(membership, led) is expected
