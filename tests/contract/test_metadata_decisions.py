"""One suite for every keeper of metadata: the same decisions are committed, and seen, wherever they are kept."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.quorum_brokers import CLUSTER_ID, registration
from tests.support.zookeeper import ZooKeeperServer

from ottla.clock import SystemClock
from ottla.cluster.commands import CreateTopic
from ottla.cluster.configs import ConfigChange, ConfigEdit, ConfigOperation
from ottla.cluster.controller import ElectionType, NewTopic
from ottla.cluster.features import FeatureUpdate
from ottla.cluster.image import BrokerImage, ResourceType, TopicImage
from ottla.config import load
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import BrokerId, PartitionId, TopicName, TopicPartition
from ottla.metadata.decisions import DecidingMetadata
from ottla.metadata.quorum_controller import QuorumController
from ottla.metadata.quorum_replay import QuorumReplay
from ottla.metadata.service import MetadataService
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, MetadataStore
from ottla.metadata.store.embedded import EmbeddedStore
from ottla.metadata.store.zookeeper import ZooKeeperStore
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.testing.memory_quorum import MemoryQuorum
from ottla.testing.memory_store import MemoryStore, MemoryTree

KEEPERS = ("embedded", "memory", pytest.param("zookeeper", marks=pytest.mark.soak), "quorum")
ONE = BrokerId(1)
T = TopicName("t")


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@asynccontextmanager
async def alone(path: Path) -> AsyncIterator[DecidingMetadata]:
    config, _ = load(None, {})
    service = MetadataService(EmbeddedStore(path / "metadata.db"), config, SystemClock())
    await service.start({"PLAINTEXT": ("h", 9001)})
    try:
        yield service
    finally:
        await service.close()


@asynccontextmanager
async def elected(store: MetadataStore) -> AsyncIterator[DecidingMetadata]:
    config, _ = load(None, {})
    await store.open()
    try:
        await store.commit([Create(layout.CONTROLLER_EPOCH_PATH, b"1")])
        service = MetadataService(store, config, SystemClock())
        await service.begin_term(1, 0)
        await service.see_brokers({ONE: BrokerImage(ONE, 1, None, {"PLAINTEXT": ("h", 9001)})})
        yield service
    finally:
        await store.close()


@asynccontextmanager
async def leading() -> AsyncIterator[DecidingMetadata]:
    node = MemoryQuorum(3000)
    problems: list[str] = []
    replay = QuorumReplay(CLUSTER_ID, failed=problems.append)
    config, _ = load(None, {"node.id": "3000"})
    controller = QuorumController(node, replay, config, SystemClock())
    controller.start()
    node.register(replay)
    await node.start()
    try:
        while not controller.is_active:
            await asyncio.sleep(0.001)
        epoch = await controller.register_broker(registration(1))
        await controller.heartbeat(
            BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=epoch,
                current_metadata_offset=replay.offset,
                want_fence=False,
                want_shut_down=False,
            )
        )
        yield controller.decisions
    finally:
        await controller.close()
    assert not problems


@pytest.fixture(params=KEEPERS)
def run(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[Callable[[DecidingMetadata], Awaitable[None]]], None]:
    def opened() -> Any:
        match request.param:
            case "embedded":
                return alone(tmp_path)
            case "memory":
                return elected(MemoryStore(MemoryTree()))
            case "zookeeper":
                server: ZooKeeperServer = request.getfixturevalue("zookeeper")
                connect = f"{server.connect}/{uuid4()}"
                return elected(ZooKeeperStore(connect, session_timeout_ms=30_000, connection_timeout_ms=60_000))
            case _:
                return leading()

    def run(scenario: Callable[[DecidingMetadata], Awaitable[None]]) -> None:
        async def main() -> None:
            async with opened() as decisions:
                await scenario(decisions)

        asyncio.run(main())

    return run


Run = Callable[[Callable[[DecidingMetadata], Awaitable[None]]], None]


def code(answer: object) -> ErrorCode | None:
    return answer.code if isinstance(answer, OttlaError) else None


def test_topics_are_created_grow_and_go(run: Run) -> None:
    async def scenario(service: DecidingMetadata) -> None:
        seen: list[int] = []
        service.subscribe(lambda old, new: seen.append(len(new.topics)))
        made, refused, twice = await service.create_topics(
            [
                NewTopic(T, 3, 1, configs={"retention.ms": "1000"}),
                NewTopic(TopicName("bad/name"), 1, 1),
                NewTopic(T, 1, 1),
            ]
        )
        assert isinstance(made, CreateTopic)
        assert (code(refused), code(twice)) == (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_ALREADY_EXISTS)
        topic = service.image.topics[T]
        assert topic == made.topic
        assert service.image.topics_by_id[topic.topic_id] is topic
        assert [(part.leader, part.isr, part.leader_epoch) for part in topic.partitions] == [(1, (1,), 0)] * 3
        assert service.log_config(T).retention_ms == 1000
        (planned,) = await service.create_topics([NewTopic(TopicName("u"), 1, 1)], validate_only=True)
        assert isinstance(planned, CreateTopic)
        assert "u" not in service.image.topics
        assert await service.create_partitions([(T, 5, None)]) == [None]
        assert len(service.image.topics[T].partitions) == 5
        gone, unknown = await service.delete_topics([T, TopicName("none")])
        assert isinstance(gone, TopicImage)
        assert len(gone.partitions) == 5
        assert code(unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert T not in service.image.topics
        assert service.image.topic_config(T) == {}
        assert seen[-1] == 0

    run(scenario)


def test_settings_are_changed_and_deleted(run: Run) -> None:
    async def scenario(service: DecidingMetadata) -> None:
        await service.create_topics([NewTopic(T, 1, 1)])
        change = ConfigChange(ResourceType.TOPIC, T, [ConfigEdit("retention.ms", ConfigOperation.SET, "5000")])
        wrong = ConfigChange(ResourceType.TOPIC, TopicName("none"), change.edits)
        quota = ConfigChange(
            ResourceType.CLIENT, "app", [ConfigEdit("producer_byte_rate", ConfigOperation.SET, "1024")]
        )
        answers = await service.alter_configs([change, wrong, quota])
        assert [code(answer) for answer in answers] == [None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None]
        assert service.log_config(T).retention_ms == 5000
        assert float(service.image.config(ResourceType.CLIENT, "app")["producer_byte_rate"]) == 1024
        gone = ConfigChange(ResourceType.TOPIC, T, [ConfigEdit("retention.ms", ConfigOperation.DELETE, None)])
        assert await service.alter_configs([gone], validate_only=True) == [None]
        assert service.log_config(T).retention_ms == 5000
        assert await service.alter_configs([gone]) == [None]
        assert service.image.topic_config(T) == {}

    run(scenario)


def test_feature_levels_change_all_or_none(run: Run) -> None:
    async def scenario(service: DecidingMetadata) -> None:
        epoch = service.image.features_epoch
        await service.update_features([FeatureUpdate("group.version", 0, 2)])
        assert "group.version" not in service.image.features
        assert service.image.features_epoch > epoch
        with pytest.raises(OttlaError) as refused:
            await service.update_features([FeatureUpdate("group.version", 1, 1), FeatureUpdate("none", 1, 1)])
        assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
        assert "group.version" not in service.image.features

    run(scenario)


def test_an_election_that_nobody_needs_is_refused(run: Run) -> None:
    async def scenario(service: DecidingMetadata) -> None:
        await service.create_topics([NewTopic(T, 1, 1)])
        at = [TopicPartition(T, PartitionId(0)), TopicPartition(T, PartitionId(9))]
        answers = await service.elect_leaders(at, ElectionType.PREFERRED)
        assert [code(answer) for answer in answers] == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    run(scenario)


def test_many_topics_at_once(run: Run) -> None:
    async def scenario(service: DecidingMetadata) -> None:
        wanted = [NewTopic(TopicName(f"topic-{number}"), 3, 1) for number in range(300)]
        answers = await service.create_topics(wanted)
        assert all(isinstance(answer, CreateTopic) for answer in answers)
        assert len(service.image.topics) == 300
        before = service.image.topics["topic-7"]  # type: ignore[index]  # a name
        await service.create_topics([NewTopic(T, 1, 1)])
        assert service.image.topics[TopicName("topic-7")] is before

    run(scenario)


def test_changes_asked_for_together_are_made_one_after_the_other(run: Run) -> None:
    async def scenario(service: DecidingMetadata) -> None:
        answers = await asyncio.gather(*(service.create_topics([NewTopic(T, 1, 1)]) for _ in range(8)))
        codes = sorted(str(code(answer)) for (answer,) in answers)
        assert codes.count("None") == 1
        assert len(service.image.topics) == 1

    run(scenario)


def test_producer_ids_are_never_given_twice(run: Run) -> None:
    async def scenario(service: DecidingMetadata) -> None:
        given = [await service.next_producer_id() for _ in range(1001)]
        assert given == sorted(set(given))

    run(scenario)
