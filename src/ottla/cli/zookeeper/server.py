"""A ZooKeeper server for development, as a child process."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from ottla.cli.terminal.exits import CommandFailed
from ottla.waiting import tries

OLDEST_JAVA: Final = 8
READY_S: Final = 60.0
STOP_S: Final = 10.0
MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JVM_OPTIONS: Final = (
    "-Xms64m",
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dzookeeper.admin.enableServer=false",
)

# One of the two is read, whichever library the jars log with. Left out: that one server is no quorum, and the stack
# trace with which the server ends a connection that came before it was ready.
_LOG4J: Final = """\
log4j.rootLogger=WARN, stderr
log4j.logger.org.apache.zookeeper.server.quorum=ERROR
log4j.logger.org.apache.zookeeper.server.ServerCnxnFactory=ERROR
log4j.logger.org.apache.zookeeper.server.ServerCnxn=OFF
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d{ISO8601} %p zookeeper: %m%n
"""
_LOGBACK: Final = """\
<configuration>
  <appender name="stderr" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d{ISO8601} %p zookeeper: %m%n</pattern></encoder>
  </appender>
  <logger name="org.apache.zookeeper.server.quorum" level="ERROR"/>
  <logger name="org.apache.zookeeper.server.ServerCnxnFactory" level="ERROR"/>
  <logger name="org.apache.zookeeper.server.ServerCnxn" level="OFF"/>
  <root level="WARN"><appender-ref ref="stderr"/></root>
</configuration>
"""


def java_program() -> str:
    """Path of `java`: from JAVA_HOME, else from PATH. Raises `CommandFailed` if there is none, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    found = (shutil.which(str(Path(home) / "bin" / "java")) if home else None) or shutil.which("java")
    if found is None:
        raise CommandFailed(
            "ZooKeeper runs on Java, and there is no `java` in JAVA_HOME or PATH (Debian: apt-get install "
            "default-jre-headless). A single broker needs neither: `ottla serve`"
        )
    report = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', report)
    if version is None or int(version[1]) < OLDEST_JAVA:
        shown = report.splitlines()[0] if report else "reports no version"
        raise CommandFailed(f"ZooKeeper needs Java {OLDEST_JAVA} or newer, and {found} is: {shown}")
    return found


class ZooKeeperProcess:
    """One standalone server on an address of this machine, with its data below `directory`."""

    def __init__(self, class_path: str, directory: Path, host: str, port: int) -> None:
        self._class_path = class_path
        self._directory = directory.absolute()
        self._host, self._port = host, port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """As `zookeeper.connect` wants it."""
        return f"{self._host}:{self._port}"

    def start(self) -> None:
        """Start it and wait until it serves. Raises `CommandFailed`."""
        if self.answers():
            raise CommandFailed(f"something listens at {self.address} already; --port takes another")
        java = java_program()
        self._directory.mkdir(parents=True, exist_ok=True)
        for name, text in (("log4j.properties", _LOG4J), ("logback.xml", _LOGBACK), ("zoo.cfg", self._settings())):
            (self._directory / name).write_text(text, encoding="utf-8")
        self._process = subprocess.Popen(
            [
                java,
                *JVM_OPTIONS,
                f"-Dlog4j.configuration={(self._directory / 'log4j.properties').as_uri()}",
                f"-Dlogback.configurationFile={self._directory / 'logback.xml'}",
                "-cp",
                self._class_path,
                MAIN_CLASS,
                str(self._directory / "zoo.cfg"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C on the terminal is handled here
        )
        for _ in tries(READY_S, every_s=0.05):
            if self.answers():
                return
            code = self._process.poll()
            if code is not None:
                raise CommandFailed(f"ZooKeeper ended with exit code {code}; see its output above")
        self.stop()
        raise CommandFailed(f"ZooKeeper gives no answer at {self.address} after {READY_S:.0f} s")

    def _settings(self) -> str:
        return "".join(
            f"{name}={value}\n"
            for name, value in (
                ("dataDir", self._directory / "data"),
                ("clientPort", self._port),
                ("clientPortAddress", self._host),
                ("tickTime", 1000),
                ("maxClientCnxns", 0),
                ("autopurge.purgeInterval", 1),
            )
        )

    def answers(self) -> bool:
        """Whether it serves clients: the answer to `srvr`."""
        with contextlib.suppress(OSError), socket.create_connection((self._host, self._port), timeout=1) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
            return b"Mode:" in answer
        return False

    def wait(self) -> int:
        """Wait for its end; its exit code."""
        assert self._process is not None
        return self._process.wait()

    def is_alive(self) -> bool:
        """Whether it runs at this moment."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End it, and wait for that; nothing if it does not run."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
