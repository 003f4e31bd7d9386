"""The service over a real store in a file."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from ottla.clock import SystemClock
from ottla.cluster.commands import CreateTopic
from ottla.cluster.configs import ConfigChange, ConfigEdit, ConfigOperation
from ottla.cluster.controller import ElectionType, NewTopic
from ottla.cluster.image import MetadataImage, ResourceType
from ottla.config import load
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import PartitionId, TopicName, TopicPartition
from ottla.metadata.service import MetadataService, WrongCluster
from ottla.metadata.store.base import Operation, StoreUnavailable
from ottla.metadata.store.embedded import EmbeddedStore

ENDPOINTS = {"PLAINTEXT": ("127.0.0.1", 9092)}


@asynccontextmanager
async def running(
    directory: Path, overrides: dict[str, str] | None = None, **start: object
) -> AsyncIterator[MetadataService]:
    config, _ = load(None, overrides or {})
    service = MetadataService(EmbeddedStore(directory / "metadata.db"), config, SystemClock())
    await service.start(ENDPOINTS, **start)  # type: ignore[arg-type] # the test's own keywords
    try:
        yield service
    finally:
        await service.close()


def code(answer: object) -> ErrorCode | None:
    return answer.code if isinstance(answer, OttlaError) else None


def test_a_new_cluster(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as service:
            image = service.image
            assert len(image.cluster_id) == 22
            assert image.controller_id == 1
            assert image.brokers[service.broker_id].endpoints == ENDPOINTS
            assert image.topics == {}
        async with running(tmp_path) as again:
            assert again.image.cluster_id == image.cluster_id
            assert again.image.brokers[again.broker_id].epoch > image.brokers[service.broker_id].epoch

    asyncio.run(scenario())


def test_the_cluster_id_of_the_directories_is_kept_and_held(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, cluster_id="b3R0bGFfZ2VudWluZV8wMQ") as service:
            assert service.image.cluster_id == "b3R0bGFfZ2VudWluZV8wMQ"
        with pytest.raises(WrongCluster, match="another"):
            async with running(tmp_path, cluster_id="another"):
                pass

    asyncio.run(scenario())


def test_topics_survive_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as service:
            new = [
                NewTopic(TopicName("orders"), 3, 1, configs={"retention.ms": "1000"}),
                NewTopic(TopicName("bad/name")),
                NewTopic(TopicName("orders"), 1, 1),
                NewTopic(TopicName("events.all")),
                NewTopic(TopicName("events_all")),
            ]
            answers = await service.create_topics(new)
            assert [code(answer) for answer in answers] == [
                None,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                ErrorCode.TOPIC_ALREADY_EXISTS,
                None,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            ]
            assert service.log_config(TopicName("orders")).retention_ms == 1000
            before = service.image
        async with running(tmp_path) as service:
            assert service.image.topics == before.topics
            assert service.image.topics_by_id == before.topics_by_id
            assert service.image.configs == before.configs
            assert service.log_config(TopicName("orders")).retention_ms == 1000

    asyncio.run(scenario())


def test_what_is_only_validated_is_not_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as service:
            told: list[MetadataImage] = []
            service.subscribe(lambda old, new: told.append(new))
            answers = await service.create_topics([NewTopic(TopicName("orders"), 3)], validate_only=True)
            assert isinstance(answers[0], CreateTopic)
            assert len(answers[0].topic.partitions) == 3
            assert service.image.topics == {}
            assert told == []

    asyncio.run(scenario())


def test_subscribers_see_the_new_state(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as service:
            seen: list[tuple[int, int, bool]] = []

            def changed(old: MetadataImage, new: MetadataImage) -> None:
                seen.append((len(old.topics), len(new.topics), service.image is new))

            end = service.subscribe(changed)
            await service.create_topics([NewTopic(TopicName("a")), NewTopic(TopicName("b"))])
            await service.delete_topics([TopicName("a")])
            end()
            await service.delete_topics([TopicName("b")])
            assert seen == [(0, 2, True), (2, 1, True)]

    asyncio.run(scenario())


def test_deleting_and_creating_again_gives_another_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as service:
            ids: set[UUID] = set()
            for _ in range(3):
                await service.create_topics([NewTopic(TopicName("a"), 2, configs={"cleanup.policy": "compact"})])
                ids.add(service.image.topics[TopicName("a")].topic_id)
                assert service.log_config(TopicName("a")).compact
                assert [code(answer) for answer in await service.delete_topics([TopicName("a"), TopicName("a")])] == [
                    None,
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ]
                assert service.image.configs == {}
            assert len(ids) == 3
            assert service.image.topics_by_id == {}

    asyncio.run(scenario())


def test_growth(tmp_path: Path) -> None:
    async def scenario() -> None:
        name = TopicName("a")
        async with running(tmp_path) as service:
            await service.create_topics([NewTopic(name, 2)])
            assert await service.create_partitions([(name, 5, None)], validate_only=True) == [None]
            assert len(service.image.topics[name].partitions) == 2
            assert await service.create_partitions([(name, 5, None)]) == [None]
            refused = await service.create_partitions([(name, 5, None), (name, 1, None), (TopicName("b"), 1, None)])
            assert [code(answer) for answer in refused] == [
                ErrorCode.INVALID_PARTITIONS,
                ErrorCode.INVALID_PARTITIONS,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            before = service.image.topics
        async with running(tmp_path) as service:
            assert service.image.topics == before
            assert [partition.partition for partition in before[name].partitions] == [0, 1, 2, 3, 4]

    asyncio.run(scenario())


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        given: list[int] = []
        for _ in range(3):
            async with running(tmp_path) as service:
                given += await asyncio.gather(*(service.next_producer_id() for _ in range(1500)))
                await service.create_topics([NewTopic(TopicName(f"t{len(given)}"))])
        assert len(set(given)) == 4500
        assert given[0] == 0

    asyncio.run(scenario())


def test_broker_settings_change_while_it_runs(tmp_path: Path) -> None:
    def edit(name: str, value: str | None) -> list[ConfigEdit]:
        return [ConfigEdit(name, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)]

    async def scenario() -> None:
        topic = TopicName("a")
        async with running(tmp_path, {"log.retention.hours": "2"}) as service:
            await service.create_topics([NewTopic(topic)])
            assert service.log_config(topic).retention_ms == 2 * 3_600_000
            for resource, value in (("", "5000"), ("1", "7000"), ("", "6000")):
                change = ConfigChange(ResourceType.BROKER, resource, edit("log.retention.ms", value))
                assert await service.alter_configs([change]) == [None]
            assert service.log_config(topic).retention_ms == 7000
            assert service.config.log_retention_ms == 7000
        async with running(tmp_path, {"log.retention.hours": "2"}) as service:
            assert service.log_config(topic).retention_ms == 7000
            await service.alter_configs([ConfigChange(ResourceType.BROKER, "1", edit("log.retention.ms", None))])
            assert service.log_config(topic).retention_ms == 6000
            await service.alter_configs([ConfigChange(ResourceType.BROKER, "", edit("log.retention.ms", None))])
            assert service.log_config(topic).retention_ms == 2 * 3_600_000
            refused = await service.alter_configs(
                [
                    ConfigChange(ResourceType.BROKER, "", edit("node.id", "2")),
                    ConfigChange(ResourceType.BROKER, "2", edit("log.retention.ms", "1")),
                    ConfigChange(ResourceType.BROKER, "", edit("log.segment.bytes", "1")),
                ]
            )
            assert [code(answer) for answer in refused] == [ErrorCode.INVALID_REQUEST] * 3

    asyncio.run(scenario())


def test_group_settings_change_while_it_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        seen: list[int] = []
        async with running(tmp_path) as service:
            service.subscribe(lambda old, new: seen.append(service.group_settings("a/b").consumer_session_timeout_ms))
            assert service.group_settings("a/b") is service.group_settings("other")
            for value in ("46000", "47000"):
                edits = [ConfigEdit("consumer.session.timeout.ms", ConfigOperation.SET, value)]
                assert await service.alter_configs([ConfigChange(ResourceType.GROUP, "a/b", edits)]) == [None]
            assert service.group_settings("a/b") is service.group_settings("a/b")
            assert service.group_settings("other").consumer_session_timeout_ms == 45_000
        assert seen == [46_000, 47_000]
        async with running(tmp_path) as service:
            assert service.group_settings("a/b").consumer_session_timeout_ms == 47_000
            edits = [ConfigEdit("consumer.session.timeout.ms", ConfigOperation.DELETE, None)]
            assert await service.alter_configs([ConfigChange(ResourceType.GROUP, "a/b", edits)]) == [None]
            assert service.group_settings("a/b").consumer_session_timeout_ms == 45_000

    asyncio.run(scenario())


def test_a_new_leader_epoch_after_a_crash(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as service:
            await service.create_topics([NewTopic(TopicName("a"), 2)])
        async with running(tmp_path, new_leader_epochs=True) as service:
            epochs = [partition.leader_epoch for partition in service.image.topics[TopicName("a")].partitions]
            assert epochs == [1, 1]
        async with running(tmp_path) as service:
            partitions = service.image.topics[TopicName("a")].partitions
            assert [partition.leader_epoch for partition in partitions] == [1, 1]
            assert [partition.partition_epoch for partition in partitions] == [1, 1]

    asyncio.run(scenario())


def test_elections_are_not_needed_with_one_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as service:
            await service.create_topics([NewTopic(TopicName("a"))])
            partitions = [TopicPartition(TopicName("a"), PartitionId(number)) for number in (0, 1)]
            for election in ElectionType:
                answers = await service.elect_leaders(partitions, election)
                assert [code(answer) for answer in answers] == [
                    ErrorCode.ELECTION_NOT_NEEDED,
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ]

    asyncio.run(scenario())


def test_internal_topics_get_their_own_settings(tmp_path: Path) -> None:
    async def scenario() -> None:
        name = TopicName("__consumer_offsets")
        async with running(tmp_path, {"offsets.topic.num.partitions": "7"}) as service:
            answers = await asyncio.gather(*(service.ensure_topics([name, TopicName("x")]) for _ in range(3)))
            assert answers == [{name: None, TopicName("x"): None}] * 3
            topic = service.image.topics[name]
            assert topic.internal
            assert len(topic.partitions) == 7
            assert topic.replication_factor == 1
            assert service.log_config(name).compact
            assert not service.log_config(name).delete
            assert service.log_config(name).segment_bytes == 104857600
            assert code((await service.ensure_topics([TopicName("no/slash")]))[TopicName("no/slash")]) is (
                ErrorCode.INVALID_TOPIC_EXCEPTION
            )

    asyncio.run(scenario())


def test_a_cancelled_request_leaves_nothing_half_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as service:
            for number in range(20):
                task = asyncio.create_task(service.create_topics([NewTopic(TopicName(f"t{number}"))]))
                for _ in range(number % 4):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await service.create_topics([NewTopic(TopicName("last"))])
            before = service.image.topics
        async with running(tmp_path) as service:
            assert service.image.topics == before

    asyncio.run(scenario())


class FailingStore(EmbeddedStore):
    """Fails the next commit, before or after it was carried out."""

    failing: str | None = None

    async def commit(self, operations: Sequence[Operation]) -> None:
        failing, self.failing = self.failing, None
        if failing == "before":
            raise StoreUnavailable("the disk is full")
        await super().commit(operations)
        if failing == "after":
            raise StoreUnavailable("the disk is gone")


def test_who_is_cancelled_while_a_commit_fails_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that resigns cancels what it has begun: a loop that tries again would never let it."""
    begun, may_fail = asyncio.Event(), asyncio.Event()

    async def fail_late(_store: EmbeddedStore, _operations: Sequence[Operation]) -> None:
        begun.set()
        await may_fail.wait()
        raise StoreUnavailable("the connection is lost")

    async def scenario() -> None:
        async with running(tmp_path) as service:
            with monkeypatch.context() as patched:
                patched.setattr(EmbeddedStore, "commit", fail_late)
                task = asyncio.create_task(service.create_topics([NewTopic(TopicName("t"))]))
                await begun.wait()
                task.cancel()
                await asyncio.sleep(0)
                may_fail.set()
                with pytest.raises(asyncio.CancelledError):
                    await task
            (created,) = await service.create_topics([NewTopic(TopicName("t"))])  # what is in the store was read again
            assert not isinstance(created, OttlaError)

    asyncio.run(scenario())


@pytest.mark.parametrize("failing", ["before", "after"])
def test_a_store_that_fails_is_believed_afterwards(tmp_path: Path, failing: str) -> None:
    async def scenario() -> None:
        store = FailingStore(tmp_path / "metadata.db")
        service = MetadataService(store, load(None, {})[0], SystemClock())
        await service.start(ENDPOINTS)
        told: list[MetadataImage] = []
        service.subscribe(lambda old, new: told.append(new))
        store.failing = failing
        answers = await service.create_topics([NewTopic(TopicName("doubtful")), NewTopic(TopicName("no/name"))])
        assert [code(answer) for answer in answers] == [
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert told == []
        assert service.image.topics == {}
        await service.create_topics([NewTopic(TopicName("next"))])
        expected = {"next", "doubtful"} if failing == "after" else {"next"}
        assert set(service.image.topics) == expected
        assert told[-1] is service.image
        assert len(told) == 2
        await service.delete_topics([TopicName(name) for name in expected])
        assert service.image.topics == {}
        await service.close()

    asyncio.run(scenario())


def test_one_part_that_cannot_follow_does_not_keep_the_others_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        def fail(old: MetadataImage, new: MetadataImage) -> None:
            raise RuntimeError("cannot follow")

        async with running(tmp_path) as service:
            told: list[MetadataImage] = []
            service.subscribe(fail)
            service.subscribe(lambda old, new: told.append(new))
            assert isinstance((await service.create_topics([NewTopic(TopicName("a"))]))[0], CreateTopic)
            assert told == [service.image]
        assert "cannot follow" in caplog.text

    asyncio.run(scenario())


def test_settings_that_a_changed_properties_file_contradicts_are_left_aside(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as service:
            edits = [ConfigEdit("log.cleaner.min.compaction.lag.ms", ConfigOperation.SET, "100")]
            assert await service.alter_configs([ConfigChange(ResourceType.BROKER, "", edits)]) == [None]
            assert service.config.log_cleaner_min_compaction_lag_ms == 100
        async with running(tmp_path, {"log.cleaner.max.compaction.lag.ms": "50"}) as service:
            assert service.config.log_cleaner_min_compaction_lag_ms == 0

    asyncio.run(scenario())


def test_what_does_not_change_stays_the_same_object(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as service:
            await service.create_topics(
                [NewTopic(TopicName("a"), configs={"retention.ms": "5"}), NewTopic(TopicName("b"))]
            )
            before, of_a, of_b = service.image, service.log_config(TopicName("a")), service.log_config(TopicName("b"))
            await service.create_topics([NewTopic(TopicName("c"))])
            assert service.image.configs is before.configs
            assert service.image.brokers is before.brokers
            assert service.image.topics is not before.topics
            edits = [ConfigEdit("segment.ms", ConfigOperation.SET, "7")]
            await service.alter_configs([ConfigChange(ResourceType.TOPIC, "b", edits)])
            assert service.log_config(TopicName("a")) is of_a
            assert service.log_config(TopicName("b")) != of_b
            await service.delete_topics([TopicName("a")])
            await service.create_topics([NewTopic(TopicName("a"))])
            assert service.log_config(TopicName("a")).retention_ms == 604_800_000

    asyncio.run(scenario())
