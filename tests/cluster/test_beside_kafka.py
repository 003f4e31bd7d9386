"""One cluster of genuine Kafka 3.9 and Ottla brokers: each is controller and leader in turn, topics move between them
under load, and nothing is lost."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tests.compat.cli.program import OttlaProgram
from tests.compat.genuine.test_same_answers import comparable, flat
from tests.support.eventually import eventually
from tests.support.mixed_cluster import KAFKA, OTTLA, SECOND_OTTLA, TIMEOUT_S, MixedCluster, check_nothing_lost
from tests.support.quota_stories import CLIENT, USER, Entity, alteration, consumed, produced, question
from tests.support.raw_client import RawConnection, ask
from tests.support.steady_producer import ONE_IN_FLIGHT, SteadyProducer
from tests.support.stories import batch
from tests.support.whole_topic import read_all
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer) -> Iterator[MixedCluster]:
    with ExitStack() as stack:
        mixed = MixedCluster(f"{zookeeper.connect}/{uuid4()}")
        for number in (OTTLA, KAFKA):
            stack.enter_context(mixed.brokers[number])
        yield mixed


@pytest.mark.timeout(300)
def test_a_topic_moves_to_ottla_under_load_and_back_whoever_decides(cluster: MixedCluster) -> None:
    cluster.create("moving", [[KAFKA], [KAFKA]])
    with SteadyProducer(cluster.bootstrap, "moving", **ONE_IN_FLIGHT) as producer:
        producer.until_acknowledged(300)
        cluster.have_decide(OTTLA)
        cluster.move("moving", {0: [OTTLA], 1: [OTTLA]})
        producer.until_acknowledged(100)
        ottla = OttlaProgram(cluster.bootstrap)

        def seen() -> list[tuple[int, str, int]]:
            watched = ottla.json("cluster", "watch", "moving", "--once")
            return [(row["broker"], row["state"], row["leads"]) for row in watched["brokers"]]

        # by one broker sooner than by the other
        eventually(lambda: seen() == [(KAFKA, "up", 0), (OTTLA, "up", 2)])
        cluster.have_decide(KAFKA)
        producer.until_acknowledged(100)
        cluster.move("moving", {0: [KAFKA], 1: [KAFKA]})
        producer.until_acknowledged(100)
    check_nothing_lost(cluster, "moving", producer)


@pytest.mark.timeout(300)
def test_groups_and_transactions_go_on_when_a_coordinator_of_the_other_kind_takes_over(cluster: MixedCluster) -> None:
    """All that coordinators know moves from one broker to the other and back."""
    cluster.have_decide(OTTLA)  # which has to see that Kafka's broker makes a topic for transactions by itself
    cluster.create("c", [[KAFKA, OTTLA], [OTTLA, KAFKA]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    member = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 30_000,
            "log_level": 0,
        }
    )
    member.subscribe(["c"])
    committed: list[bytes] = []
    aborted: list[bytes] = []
    read: list[bytes] = []

    def transact(name: str, *, commit: bool) -> None:
        values = [f"{name}-{number}".encode() for number in range(10)]
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce("c", value, partition=number % 2)
        if commit:
            producer.commit_transaction(TIMEOUT_S)
            committed.extend(values)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
            aborted.extend(values)

    def reads_all() -> bool:
        found = member.consume(100, timeout=0.5)
        read.extend(message.value() or b"" for message in found if not message.error())
        return len(read) >= len(committed)

    def commits() -> bool:
        try:
            member.commit(asynchronous=False)
        except KafkaException:  # the coordinator has just moved
            return False
        return True

    transact("first", commit=True)
    eventually(reads_all, timeout_s=TIMEOUT_S, interval_s=0)
    eventually(commits, timeout_s=TIMEOUT_S)
    for turn, coordinator in enumerate((OTTLA, KAFKA, OTTLA)):
        for topic in ("__consumer_offsets", "__transaction_state"):
            cluster.move(topic, {number: [coordinator] for number in cluster.partitions(topic)})
        transact(f"aborted {turn}", commit=False)
        transact(f"{turn}", commit=True)
        eventually(reads_all, timeout_s=TIMEOUT_S, interval_s=0)
        eventually(commits, timeout_s=TIMEOUT_S)
    member.close()
    assert sorted(read) == sorted(committed)  # each once: commits were found again, too
    positions = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    known = positions.committed([TopicPartition("c", 0), TopicPartition("c", 1)], timeout=TIMEOUT_S)
    positions.close()
    ends = [at.offset for at in known]
    assert min(ends) > len(committed) // 2  # of both partitions, with markers and aborted records among them
    assert sorted(read_all(cluster.bootstrap, "c", len(committed))) == sorted(committed)


def test_quotas_that_one_sets_hold_on_the_other(cluster: MixedCluster) -> None:
    """Each kind of entity, set by each broker: both describe and enforce it, and passwords stay beside it."""
    at = {number: cluster.brokers[number].bootstrap for number in (KAFKA, OTTLA)}
    for number in at:
        cluster.create(f"throttled-{number}", [[number]])
    data = batch(os.urandom(50_000))

    def throttled(number: int, client: str) -> bool:
        with RawConnection(at[number], client_id=client) as connection:
            return int(produced(connection, f"throttled-{number}", data).throttle_time_ms) > 1_000

    def described(number: int) -> list[str]:
        return flat(comparable(ask(at[number], question(), 1)))

    password = ScramCredentialUpsertion(
        name="ANONYMOUS", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )
    scram = AlterUserScramCredentialsRequest(deletions=[], upsertions=[password])
    assert ask(at[cluster.controller()], scram, 0).results[0].error_code == 0
    slow = (("producer_byte_rate", 1_000.0),)
    for setter, other in ((KAFKA, OTTLA), (OTTLA, KAFKA)):
        entities: tuple[Entity, ...] = (
            ((CLIENT, f"~ a/b {setter}"),),
            ((USER, "ANONYMOUS"), (CLIENT, f"of user {setter}")),
            ((USER, None), (CLIENT, f"of all {setter}")),
        )
        for entity in entities:
            assert ask(at[setter], alteration((entity, slow)), 1).entries[0].error_code == 0
            client = dict(entity)[CLIENT]
            assert client is not None
            for broker in (setter, other):
                eventually(partial(throttled, broker, client))
        eventually(lambda: described(KAFKA) == described(OTTLA))
        removal = [(entity, (("producer_byte_rate", None),)) for entity in entities[1:]]
        assert {each.error_code for each in ask(at[other], alteration(*removal), 1).entries} == {0}
        eventually(lambda: described(KAFKA) == described(OTTLA))
        assert not throttled(other, f"of user {setter}")
    user_quota = alteration((((USER, "ANONYMOUS"),), (("consumer_byte_rate", 1e9),)))
    assert ask(at[OTTLA], user_quota, 1).entries[0].error_code == 0
    eventually(lambda: "'consumer_byte_rate'" in str(described(KAFKA)))
    for number in at:
        known = ask(at[number], DescribeUserScramCredentialsRequest(users=None), 0)
        assert [(user.user, user.credential_infos[0].mechanism) for user in known.results] == [("ANONYMOUS", 1)]


def test_followers_use_no_quota(cluster: MixedCluster) -> None:
    """Brokers fetch as the user ANONYMOUS here, whose consumers may have a byte a second."""
    cluster.create("replicated", [[OTTLA, KAFKA]])
    leader = cluster.brokers[OTTLA].bootstrap
    entity: Entity = ((USER, "ANONYMOUS"),)
    assert ask(leader, alteration((entity, (("consumer_byte_rate", 1.0),))), 1).entries[0].error_code == 0
    try:
        with RawConnection(leader) as connection:
            for _ in range(5):  # acks=all
                produced(connection, "replicated", batch(os.urandom(50_000)))
            first, size = consumed(connection, "replicated", 0, 60_000)
            assert size > 50_000
            assert first.throttle_time_ms > 10_000
    finally:
        assert ask(leader, alteration((entity, (("consumer_byte_rate", None),))), 1).entries[0].error_code == 0


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_each_replicates_to_and_from_the_other_whoever_is_the_controller(cluster: MixedCluster) -> None:
    cluster.create("t", [[KAFKA, OTTLA], [OTTLA, KAFKA]])
    ottla = OttlaProgram(cluster.bootstrap)
    look = ("cluster", "watch", "t", "--once")
    with SteadyProducer(cluster.bootstrap, "t", **ONE_IN_FLIGHT) as producer:
        producer.until_acknowledged(200)
        cluster.until_in_sync("t", KAFKA, OTTLA)
        for number, kill in ((OTTLA, False), (KAFKA, False), (OTTLA, True), (KAFKA, True)):
            cluster.have_decide(number)
            cluster.brokers[number].restart(kill=kill)  # the controller goes, and with it the leader of one partition
            producer.until_acknowledged(200)
            cluster.until_in_sync("t", KAFKA, OTTLA)
            ottla("cluster", "elect", "t")
            eventually(lambda: all(leader == held[0] for leader, held, _ in cluster.partitions("t").values()))
            assert ottla.json(*look)["under_replicated"] == 0
            # unless a busy broker answers too late, each tells how far its log reaches
            eventually(lambda: all(row["behind"] for row in ottla.json(*look)["by_partition"]))
    check_nothing_lost(cluster, "t", producer)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_replicated_topics_move_off_kafka_and_back_with_much_in_them(zookeeper: ZooKeeperServer) -> None:
    """Six partitions with two replicas: from Kafka and one Ottla to two Ottlas, and back."""
    cluster = MixedCluster(f"{zookeeper.connect}/{uuid4()}", ottlas=2)
    with ExitStack() as stack:
        for broker in cluster.brokers.values():
            stack.enter_context(broker)
        cluster.create("t", [[KAFKA, OTTLA], [OTTLA, KAFKA], [KAFKA, SECOND_OTTLA]] * 2)
        with SteadyProducer(cluster.bootstrap, "t", **ONE_IN_FLIGHT) as producer:
            producer.until_acknowledged(2000)
            for decides, replicas in (
                (KAFKA, [OTTLA, SECOND_OTTLA]),
                (OTTLA, [KAFKA, SECOND_OTTLA]),
                (SECOND_OTTLA, [SECOND_OTTLA, OTTLA]),
                (KAFKA, [KAFKA, OTTLA]),
            ):
                cluster.have_decide(decides)
                cluster.move("t", dict.fromkeys(range(6), replicas))
                producer.until_acknowledged(500)
        check_nothing_lost(cluster, "t", producer)
