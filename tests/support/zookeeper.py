"""A genuine ZooKeeper server as a child process: the version that Kafka 3.9 comes with."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from tests.support.broker_process import BrokerProcess
from tests.support.genuine39 import java_command

_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Started for seconds: compile quickly, collect simply; no waiting for a disk that nobody will pull the plug of.
_JVM_OPTIONS: Final = (
    "-Xms64m",
    "-Xmx128m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=64",
)


class ZooKeeperServer(BrokerProcess):
    """One standalone server; see `BrokerProcess` for its use. A restart keeps what it holds.

    Sessions may be as short as 400 ms: a test that waits for the end of one should not wait long.
    """

    name = "zookeeper"
    jvm_options: tuple[str, ...] = ()
    """Beside those of every server."""
    ready_timeout_s = 60.0
    defaults: ClassVar[dict[str, str]] = {
        "tickTime": "200",
        "minSessionTimeout": "400",
        "maxSessionTimeout": "60000",
        "maxClientCnxns": "0",
        "4lw.commands.whitelist": "ruok,srvr,cons,dump",
    }

    def __init__(
        self,
        directory: Path | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """As `BrokerProcess`; `properties` are those of `zoo.cfg`."""
        super().__init__(directory, properties=properties, port=port, host=host, prefix=prefix)

    @property
    def connect(self) -> str:
        """`host:port`, as `zookeeper.connect` wants it."""
        return self.bootstrap

    @property
    def config_file(self) -> Path:
        """The `zoo.cfg` it runs with."""
        return self.directory / "zoo.cfg"

    def prepare(self) -> None:
        """Write `zoo.cfg`."""
        settings = {
            "dataDir": str(self.log_dir),
            "clientPort": str(self.port),
            "clientPortAddress": self.host,
            **self.defaults,
            **self.properties,
        }
        self.config_file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def command(self) -> list[str]:
        """The server's own main class."""
        return java_command(
            _MAIN, str(self.config_file), jvm_options=(*_JVM_OPTIONS, *self.jvm_options), log_level="WARN"
        )

    def answers(self) -> bool:
        """Whether it serves clients."""
        return "Mode:" in self.ask("srvr")

    def ask(self, word: str) -> str:
        """The answer to one of its four-letter words; empty while it does not listen."""
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as connection:
                connection.sendall(word.encode())
                pieces = []
                while piece := connection.recv(65536):
                    pieces.append(piece)
        except OSError:
            return ""
        return b"".join(pieces).decode()
