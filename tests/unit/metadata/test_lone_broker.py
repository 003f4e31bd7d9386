"""The metadata file of a broker that was alone, as the first records of a quorum."""

import asyncio
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from ottla.clock import SystemClock
from ottla.cluster.commands import BeginDeletion, Command, CreateTopic, SetConfigs, SetFeatures
from ottla.cluster.image import PartitionImage, ResourceType, TopicImage, empty_image
from ottla.cluster.metadata_log.state import AclPattern, ClusterState
from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, ProducerId, TopicId, TopicName
from ottla.log.fs import File, RealFileSystem
from ottla.metadata.lone_broker import MOVED, MOVING, lone_metadata
from ottla.metadata.quorum.metadata_log import DIRECTORY, MetadataLog, MetadataLogConfig
from ottla.metadata.store import acl_layout, layout, token_layout
from ottla.metadata.store.base import Create
from ottla.metadata.store.embedded import FILE_NAME, EmbeddedStore
from ottla.security.acls import AccessRule, PatternType, PermissionType, ResourcePattern
from ottla.security.authorization import Operation
from ottla.security.authorization import ResourceType as AclResource
from ottla.security.delegation_tokens import DelegationToken

ME = BrokerId(4)
FS = RealFileSystem()
RESOURCE = ResourcePattern(AclResource.TOPIC, "t-", PatternType.PREFIXED)
RULE = AccessRule("User:a", "*", Operation.READ, PermissionType.ALLOW)
TOKEN = DelegationToken("x", "User:a", "User:b", ("User:c",), 1, 3, 2)
SETTINGS = {
    "node.id": "4",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}
DYNAMIC = {"controller.quorum.bootstrap.servers": "127.0.0.1:9093,127.0.0.1:9094"}


def _topic(name: str, number: int) -> TopicImage:
    partition = PartitionImage(PartitionId(0), ME, LeaderEpoch(7), (ME,), (ME,), 0)
    return TopicImage(TopicName(name), TopicId(UUID(int=number)), (partition,))


async def _alone(file: Path) -> None:
    """Write the metadata of a broker with one of everything."""
    store = EmbeddedStore(file)
    await store.open()
    commands: list[Command] = [
        CreateTopic(_topic("t", 1), {"retention.ms": "1"}),
        CreateTopic(_topic("going", 2), {}),
        SetConfigs(ResourceType.USER, "alice", {"producer_byte_rate": "5"}),
        SetFeatures({"group.version": 1}),
        BeginDeletion(TopicName("going")),
    ]
    operations = layout.operations_for(commands, empty_image("c"), {}, controller_epoch=0, now_ms=0)
    block = layout.ProducerIdBlock(ME, ProducerId(1000), ProducerId(1999))
    operations += [
        Create(layout.PRODUCER_IDS_PATH, layout.producer_id_block_node(block)),
        Create(acl_layout.acl_path(RESOURCE), acl_layout.acl_node([RULE])),
        Create(token_layout.token_path("x"), token_layout.token_node(TOKEN)),
    ]
    await store.commit(operations)
    await store.close()


def _files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_all_of_it_begins_the_log_and_is_read_until_the_log_has_it(tmp_path: Path) -> None:
    async def run() -> None:
        config = BrokerConfig({**SETTINGS, **DYNAMIC})
        assert await lone_metadata(tmp_path, UUID(int=500), config, FS, now_ms=1) is None
        await _alone(tmp_path / FILE_NAME)
        for _ in range(2):  # the second time, after a crash
            found = await lone_metadata(tmp_path, UUID(int=500), config, FS, now_ms=1)
            assert found is not None
            assert _files(tmp_path) == [DIRECTORY, MOVING]
        assert found is not None
        state = ClusterState("c")
        state.replay_all(found.records)
        image = state.image()
        assert image.topics == {"t": _topic("t", 1)}
        assert image.configs == {
            (ResourceType.TOPIC, "t"): {"retention.ms": "1"},
            (ResourceType.USER, "alice"): {"producer_byte_rate": "5"},
        }
        assert image.features["group.version"] == 1
        assert "share.version" not in image.features
        assert state.next_producer_id == 2000
        (record,) = state.acls[AclPattern(AclResource.TOPIC, "t-", PatternType.PREFIXED)].values()
        assert (record.principal, record.operation, record.permission_type) == ("User:a", 3, 3)
        token = state.tokens["x"]
        assert (token.requester, token.renewers, token.expiration_timestamp) == ("User:b", ["User:c"], 2)

        found.moved(FS)
        assert _files(tmp_path) == [DIRECTORY, MOVED]
        assert await lone_metadata(tmp_path, UUID(int=500), config, FS, now_ms=1) is None

    asyncio.run(run())


class EndsAt(RealFileSystem):
    """A process that ends at the step with a number; `ended` says whether it came to that."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self.ended = False

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.ended = True
            raise KilledError

    def make_directory(self, path: str) -> None:
        self._step()
        super().make_directory(path)

    def open(self, path: str, *, create: bool = False) -> File:
        self._step()
        return super().open(path, create=create)

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def sync_directory(self, path: str) -> None:
        self._step()
        super().sync_directory(path)


class KilledError(BaseException):
    """The process has ended."""


def test_a_move_that_ends_at_any_step_is_taken_up(tmp_path: Path) -> None:
    """The log has its first voter afterwards: without one, no node would ever lead it."""

    async def run(directory: Path, steps: int) -> bool:
        await _alone(directory / FILE_NAME)
        config, fs = BrokerConfig({**SETTINGS, **DYNAMIC}), EndsAt(steps)
        with suppress(KilledError):
            await lone_metadata(directory, UUID(int=500), config, fs, now_ms=1)
        found = await lone_metadata(directory, UUID(int=500), config, FS, now_ms=1)
        assert found is not None
        log = MetadataLog.open(str(directory), MetadataLogConfig(), fs=FS, clock=SystemClock())
        assert [len(records) for records in log.control_batches()], steps
        log.close()
        return fs.ended

    steps = 0
    goes_on = True
    while goes_on:
        directory = tmp_path / str(steps)
        directory.mkdir()
        goes_on = asyncio.run(run(directory, steps))
        steps += 1
    assert steps > 5


def test_it_is_refused_where_another_node_could_begin_the_cluster(tmp_path: Path) -> None:
    async def run() -> None:
        await _alone(tmp_path / FILE_NAME)
        voters = {"controller.quorum.voters": "4@127.0.0.1:9093,5@127.0.0.1:9094"}
        with pytest.raises(InvalidConfig, match="has to vote alone at first"):
            await lone_metadata(tmp_path, UUID(int=500), BrokerConfig({**SETTINGS, **voters}), FS, now_ms=1)
        (tmp_path / DIRECTORY).mkdir()
        with pytest.raises(InvalidConfig, match="and the metadata log of a quorum"):
            await lone_metadata(tmp_path, UUID(int=500), BrokerConfig({**SETTINGS, **DYNAMIC}), FS, now_ms=1)
        assert (tmp_path / FILE_NAME).exists()

    asyncio.run(run())
