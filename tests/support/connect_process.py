"""Workers of connectors as child processes, Ottla's and Kafka's alike: started, asked over REST, measured, killed."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ottla.connect.rest.client import RestError, ask
from tests.support.broker_process import BrokerFailedError, BrokerProcess
from tests.support.genuine import BROKER_JVM_OPTIONS, cache_of, maven_libs
from tests.support.requirements import java_program

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_RECIPE: Final = _REPOSITORY / "benches" / "genuine" / "debezium.xml"
_LOGGING: Final = _REPOSITORY / "benches" / "genuine" / "log4j2.properties"
_REQUEST_S: Final = 90.0
_HEAP: Final = ("-Xms256M", "-Xmx2G")
"""As Kafka's own start script gives to a worker (bin/connect-distributed.sh)."""


class WorkerProcess(BrokerProcess):
    """One worker with its state in topics; `properties` are the worker's own, by Kafka Connect's names."""

    ready_timeout_s = 120.0

    def __init__(self, brokers: str, directory: Path | None = None, **properties: str) -> None:
        """`brokers`: where records and state go."""
        super().__init__(directory, properties={name.replace("_", "."): value for name, value in properties.items()})
        self.brokers = brokers

    @property
    def url(self) -> str:
        """Where its REST API is."""
        return f"http://{self.host}:{self.port}"

    def settings(self) -> dict[str, str]:
        """All settings of the worker."""
        topics = {f"{what}.storage.topic": f"connect-{what}s" for what in ("config", "offset")}
        replicas = {f"{what}.storage.replication.factor": "1" for what in ("config", "offset", "status")}
        converters = {f"{side}.converter": "org.apache.kafka.connect.json.JsonConverter" for side in ("key", "value")}
        return {
            "bootstrap.servers": self.brokers,
            "group.id": "workers",
            "listeners": self.url,
            "status.storage.topic": "connect-status",
            **topics,
            **replicas,
            **converters,
            **self.properties,
        }

    def answers(self) -> bool:
        """Whether it takes requests and knows its state."""
        try:
            self.request("GET", "/connectors")
        except (OSError, RestError):
            return False
        return True

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the REST API; its answer from JSON. Raises RestError, OSError."""
        return ask(self.url, method, path, body, within_s=_REQUEST_S)

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Make a connector as soon as the worker takes it, which may not have answered yet.

        Raises:
            BrokerFailedError: it has ended, refuses the configuration, or takes none for two minutes.
        """
        deadline = time.monotonic() + self.ready_timeout_s
        while True:
            try:
                self.request("PUT", f"/connectors/{name}/config", dict(config))
            except (OSError, RestError) as problem:
                is_refused = isinstance(problem, RestError) and problem.status == 400
                if is_refused or not self.is_alive() or time.monotonic() > deadline:
                    raise BrokerFailedError(f"{self.name} takes no connector: {problem}\n{self.log_tail()}") from None
                time.sleep(self.poll_interval_s)
            else:
                return

    def wait(self, name: str, state: str, tasks: int = 1) -> None:
        """Wait until a connector and so many tasks of it are in a state.

        Raises:
            BrokerFailedError: a task has failed, or not within two minutes.
        """
        deadline = time.monotonic() + self.ready_timeout_s
        status: Any = None
        while time.monotonic() < deadline:
            try:
                status = self.request("GET", f"/connectors/{name}/status")
            except (OSError, RestError) as problem:
                status = str(problem)
            else:
                states = [each["state"] for each in (status["connector"], *status["tasks"])]
                if len(states) == tasks + 1 and set(states) == {state}:
                    return
                if "FAILED" in states and state != "FAILED":
                    break
            time.sleep(self.poll_interval_s)
        raise BrokerFailedError(f"{name} is not {state}: {status}\n{self.log_tail()}")

    def change(self, name: str, how: str) -> None:
        """`stop`, `pause` or `resume` a connector."""
        self.request("PUT", f"/connectors/{name}/{how}")


class OttlaConnect(WorkerProcess):
    """`ottla connect serve`."""

    name = "ottla-connect"

    def command(self) -> list[str]:
        """With everything as overrides."""
        script = Path(sys.executable).with_name("ottla")
        program = [str(script)] if script.exists() else [sys.executable, "-m", "ottla.cli.main"]
        overrides = [part for key, value in self.settings().items() for part in ("-o", f"{key}={value}")]
        return [*program, "connect", "serve", *overrides]


class GenuineConnect(WorkerProcess):
    """Kafka Connect, distributed, with Debezium's connector for PostgreSQL and Kafka's for files on its class path.

    Plugins are found by their manifests, which starts sooner than its default of looking at every class.
    """

    name = "kafka-connect"

    def settings(self) -> dict[str, str]:
        """All settings of the worker."""
        return {"plugin.discovery": "service_load", **super().settings()}

    def libs(self) -> Path:
        """Directory of the jars on its class path."""
        return genuine_connect_libs()

    def prepare(self) -> None:
        """Write its properties."""
        text = "".join(f"{key}={value}\n" for key, value in self.settings().items())
        (self.directory / "worker.properties").write_text(text)

    def command(self) -> list[str]:
        """`ConnectDistributed` with the options of Kafka's own start script."""
        return [
            java_program(),
            *_HEAP,
            *BROKER_JVM_OPTIONS,
            f"-Dlog4j2.configurationFile={_LOGGING}",
            "-Dkafka.log.level=INFO",
            "-cp",
            f"{self.libs()}/*",
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(self.directory / "worker.properties"),
        ]


class GenuineMariaDbConnect(GenuineConnect):
    """The same with Debezium's connector for MariaDB."""

    def libs(self) -> Path:
        """Directory of the jars on its class path."""
        return maven_libs(_RECIPE.with_name("debezium-mariadb.xml"), cache_of("connect-mariadb"))


class GenuineMySqlConnect(GenuineConnect):
    """The same with Debezium's connector for MySQL."""

    def libs(self) -> Path:
        """Directory of the jars on its class path."""
        return maven_libs(_RECIPE.with_name("debezium-mysql.xml"), cache_of("connect-mysql"))


def genuine_connect_libs() -> Path:
    """Directory of the jars of Kafka Connect and Debezium; see `maven_libs`."""
    return maven_libs(_RECIPE, cache_of("connect"))
