"""Who is measured: a broker behind a name, so that a benchmark does not know which it drives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from tests.support.broker_process import BrokerProcess
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess

from benches.clusters import Cluster, KafkaCluster, OttlaCluster


class MakeBroker(Protocol):
    """Makes a broker that is not started yet."""

    def __call__(self, directory: Path, *, properties: Mapping[str, str], cpus: Sequence[int]) -> BrokerProcess: ...


@dataclass(frozen=True, slots=True)
class Contestant:
    """A broker and the settings it competes with."""

    name: str
    title: str
    make: MakeBroker
    cluster: type[Cluster]
    properties: Mapping[str, str] = field(default_factory=dict)

    def broker(
        self, directory: Path, cpus: Sequence[int], properties: Mapping[str, str] | None = None
    ) -> BrokerProcess:
        """A broker of this kind with its data under `directory`, pinned to `cpus`, not started."""
        return self.make(directory, properties={**self.properties, **(properties or {})}, cpus=cpus)


def _kafka(directory: Path, *, properties: Mapping[str, str], cpus: Sequence[int]) -> BrokerProcess:
    return GenuineKafka(directory, properties=properties, cpus=cpus, heap="1g", as_it_comes=True)


BASELINE: Final = "kafka"
CONTESTANTS: Final = {
    contestant.name: contestant
    for contestant in (
        Contestant("ottla", "Ottla", OttlaProcess, OttlaCluster),
        Contestant("ottla-nosync", "Ottla, not syncing", OttlaProcess, OttlaCluster, {"log.flush.before.ack": "false"}),
        Contestant(BASELINE, "Kafka", _kafka, KafkaCluster),
    )
}
