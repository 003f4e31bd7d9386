"""Cordoned log directories (KIP-1066): refused, described and passed over as by Kafka."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.genuine.test_same_answers import APPEND, BROKER, DELETE, SET, SUBTRACT, Pair, comparable, flat, new
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask

from ottla.protocol.messages import alter_replica_log_dirs as ar
from ottla.protocol.messages import create_partitions as cp
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import describe_log_dirs as dl
from ottla.protocol.messages import incremental_alter_configs as ic
from ottla.protocol.schema import Message


class TwoDirectories(Pair):
    """Both brokers, each with directories `one` and `two`, and their parents in the same order."""

    parents: tuple[Path, Path]

    def same(self, make: "list[Message]", version: int) -> list[str]:
        """The answers to the same request about each broker's own directories."""
        genuine, ottla = (
            [
                line.replace(str(parent), "DIR").replace("requirement failed: ", "")  # Scala's words, not Kafka's
                for line in flat(comparable(ask(bootstrap, request, version)))
            ]
            for bootstrap, parent, request in zip(self, self.parents, make, strict=True)
        )
        assert ottla == genuine
        return ottla

    def cordon(self, value: str | None, how: int = SET, name: str = "1") -> list[str]:
        requests: list[Message] = []
        for parent in self.parents:
            text = None if value is None else value.replace("DIR", str(parent))
            edit = ic.AlterableConfig(name="cordoned.log.dirs", config_operation=how, value=text)
            resource = ic.AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=[edit])
            requests.append(ic.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        return self.same(requests, 1)

    def cordoned(self) -> list[list[str]]:
        """The names of each broker's cordoned directories."""
        return [
            [
                Path(result.log_dir).name
                for result in ask(bootstrap, dl.DescribeLogDirsRequest(topics=[]), 5).results
                if result.is_cordoned
            ]
            for bootstrap in self
        ]

    def see(self, *names: str) -> None:
        eventually(lambda: self.cordoned() == [list(names)] * 2)

    def until_topics_are(self, *, refused: bool) -> None:
        """Genuine Kafka's controller learns of cordoned directories with the broker's next heartbeat."""
        asked = ct.CreateTopicsRequest(topics=[new("asked", 1)], validate_only=True)
        eventually(lambda: bool(ask(self[0], asked, 7).topics[0].error_code) is refused)

    def held(self, topic: str) -> list[Counter[str]]:
        """How many partitions of a topic are in each directory."""
        asked = dl.DescribeLogDirsRequest(topics=None)
        return [
            Counter(
                {
                    Path(result.log_dir).name: len(found.partitions)
                    for result in ask(bootstrap, asked, 5).results
                    for found in result.topics
                    if found.name == topic
                }
            )
            for bootstrap in self
        ]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoDirectories]:
    parents = tmp_path_factory.mktemp("genuine"), tmp_path_factory.mktemp("ottla")
    settings = [{"log.dirs": f"{parent}/one,{parent}/two"} for parent in parents]
    with GenuineKafka(properties=settings[0]) as genuine, OttlaProcess(properties=settings[1]) as ottla:
        both = TwoDirectories(genuine.bootstrap, ottla.bootstrap)
        both.parents = parents
        yield both


def test_values_that_are_refused(pair: TwoDirectories) -> None:
    pair.cordon("DIR/three")
    pair.cordon("DIR/one,DIR/three")
    pair.cordon("*,DIR/one")
    pair.cordon("DIR/one", name="")
    pair.cordon("DIR/one", SUBTRACT)
    pair.cordon("DIR/three", APPEND)
    pair.cordon(None, DELETE)
    pair.see()


def test_new_replicas_go_elsewhere(pair: TwoDirectories) -> None:
    pair.cordon("DIR/one")
    pair.see("one")
    pair.ask(ct.CreateTopicsRequest(topics=[new("open", 6)]), 7)
    eventually(lambda: pair.held("open") == [Counter(two=6)] * 2)
    moved = ar.AlterReplicaLogDirTopic(name="open", partitions=[0])
    requests: list[Message] = [
        ar.AlterReplicaLogDirsRequest(dirs=[ar.AlterReplicaLogDir(path=f"{parent}/one", topics=[moved])])
        for parent in pair.parents
    ]
    pair.same(requests, 2)
    pair.cordon("*")
    pair.see("one", "two")
    pair.until_topics_are(refused=True)
    pair.ask(ct.CreateTopicsRequest(topics=[new("refused", 1), new("placed", assignments=((0, [1]),))]), 7)
    grown = [cp.CreatePartitionsTopic(name="open", count=7, assignments=None)]
    pair.ask(cp.CreatePartitionsRequest(topics=grown, timeout_ms=60_000, validate_only=False), 3)
    eventually(lambda: pair.held("placed") == [Counter(one=1)] * 2)
    pair.cordon(None, DELETE)
    pair.see()
    pair.until_topics_are(refused=False)
    pair.ask(ct.CreateTopicsRequest(topics=[new("refused", 3)]), 7)
    eventually(lambda: pair.held("refused") == [Counter(one=3)] * 2)
