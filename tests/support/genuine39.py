"""Genuine Apache Kafka 3.9, the last that works with ZooKeeper, fetched once by Maven into `.cache/`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import BROKER_JVM_OPTIONS, maven_libs
from tests.support.requirements import java_program
from tests.support.znodes import connected

KAFKA_VERSION: Final = "3.9.1"
_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_RECIPE: Final = _REPOSITORY / "benches" / "genuine" / "kafka39.xml"
_CACHE: Final = _REPOSITORY / ".cache" / f"kafka-{KAFKA_VERSION}"


def kafka39_libs() -> Path:
    """Directory of the jars of Kafka 3.9 and of its ZooKeeper, fetched on first use.

    Raises:
        MissingProgramError: Java or Maven is missing.
        ToolFailedError: Maven could not fetch the jars.
    """
    return maven_libs(_RECIPE, _CACHE)


def java_command(class_name: str, *args: str, jvm_options: Sequence[str], log_level: str = "INFO") -> list[str]:
    """The command line of a Java program from those jars."""
    return [
        java_program(),
        *jvm_options,
        f"-Dkafka.log.level={log_level}",
        f"-Dlog4j.configuration=file:{_RECIPE.with_name('log4j.properties')}",
        "-cp",
        f"{kafka39_libs()}/*",
        class_name,
        *args,
    ]


class GenuineKafka39(BrokerProcess):
    """A genuine Kafka 3.9 broker that keeps its metadata in ZooKeeper; see `BrokerProcess` for its use."""

    name = "kafka-3.9"
    jvm_options: tuple[str, ...] = ()
    """Beside those of every broker."""
    ready_timeout_s = 180.0
    defaults: ClassVar[dict[str, str]] = {
        "broker.id": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "5",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }

    def __init__(
        self,
        connect: str,
        directory: Path | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        heap: str = "256m",
    ) -> None:
        """As `BrokerProcess`; `connect` is `zookeeper.connect`, `heap` both -Xms and -Xmx."""
        super().__init__(directory, properties=properties, port=port)
        self._connect = connect
        self._heap = heap

    @property
    def properties_file(self) -> Path:
        """The server.properties it runs with."""
        return self.directory / "server.properties"

    def prepare(self) -> None:
        """Write server.properties."""
        settings = {
            "zookeeper.connect": self._connect,
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.log_dir),
            **self.defaults,
            **self.properties,
        }
        self.properties_file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def command(self) -> list[str]:
        """`kafka.Kafka server.properties` with Kafka's own options of the virtual machine."""
        options = (f"-Xms{self._heap}", f"-Xmx{self._heap}", *BROKER_JVM_OPTIONS, *self.jvm_options)
        return java_command("kafka.Kafka", str(self.properties_file), jvm_options=options)

    def restart(self, *, kill: bool = False) -> None:
        """As `BrokerProcess`; a killed broker starts again when ZooKeeper has ended its session. Until then its id is
        taken, and the new process would end."""
        if not kill:
            super().restart()
            return
        self.kill()
        own = f"/brokers/ids/{self.properties.get('broker.id', self.defaults['broker.id'])}"
        with connected(self._connect) as client:
            eventually(lambda: not client.exists(own))
        self.start()
