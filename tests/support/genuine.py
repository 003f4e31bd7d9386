"""Genuine Apache Kafka: its broker and its tools, fetched once by Maven into `.cache/`."""

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import ClassVar, Final

from tests.support.broker_process import BrokerProcess
from tests.support.probe import free_port
from tests.support.requirements import java_program, require

KAFKA_VERSION: Final = "4.3.1"
"""The version that Ottla is compared with."""
OLDER_KAFKA_VERSION: Final = "4.1.1"
"""The second peer, where its answers differ from the newest one's."""
_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_RECIPE: Final = _REPOSITORY / "benches" / "genuine"
CLUSTER_ID: Final = "b3R0bGFfZ2VudWluZV8wMQ"
_FORMATTED: Final = ("unstable.", "controller.", "node.", "process.")
"""How settings begin that the format of a log directory depends on."""

# Kafka's own performance options (bin/kafka-run-class.sh), with which its start script runs the broker.
BROKER_JVM_OPTIONS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# A tool lives for a second or two: compile quickly, collect simply.
TOOL_JVM_OPTIONS: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
# So does most of a test's broker: it starts with 40 % of the processor time. What is measured runs as it comes.
_TEST_BROKER_JVM_OPTIONS: Final = (*TOOL_JVM_OPTIONS[1:], "-Djava.awt.headless=true")

_TOOLS: Final = {
    "AclCommand": "org.apache.kafka.tools.AclCommand",
    "BrokerApiVersionsCommand": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "ConfigCommand": "kafka.admin.ConfigCommand",
    "DelegationTokenCommand": "org.apache.kafka.tools.DelegationTokenCommand",
    "ConsoleConsumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "ConsoleProducer": "org.apache.kafka.tools.ConsoleProducer",
    "ConsoleShareConsumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "ConsumerPerformance": "org.apache.kafka.tools.ConsumerPerformance",
    "DeleteRecordsCommand": "org.apache.kafka.tools.DeleteRecordsCommand",
    "DumpLogSegments": "org.apache.kafka.tools.DumpLogSegments",
    "EndToEndLatency": "org.apache.kafka.tools.EndToEndLatency",
    "GetOffsetShell": "org.apache.kafka.tools.GetOffsetShell",
    "GroupsCommand": "org.apache.kafka.tools.GroupsCommand",
    "LeaderElectionCommand": "org.apache.kafka.tools.LeaderElectionCommand",
    "LogDirsCommand": "org.apache.kafka.tools.LogDirsCommand",
    "MetadataQuorumCommand": "org.apache.kafka.tools.MetadataQuorumCommand",
    "ProducerPerformance": "org.apache.kafka.tools.ProducerPerformance",
    "ReassignPartitionsCommand": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "ShareGroupCommand": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "StorageTool": "kafka.tools.StorageTool",
    "StreamsGroupCommand": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "TopicCommand": "org.apache.kafka.tools.TopicCommand",
    "TransactionsCommand": "org.apache.kafka.tools.TransactionsCommand",
    "VerifiableConsumer": "org.apache.kafka.tools.VerifiableConsumer",
    "VerifiableProducer": "org.apache.kafka.tools.VerifiableProducer",
    "VerifiableShareConsumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}


class ToolFailedError(RuntimeError):
    """A Kafka tool ended with an error; the message carries its output."""


def cache_of(name: str, version: str = KAFKA_VERSION) -> Path:
    """Directory below `.cache/` for what `name` fetches or makes of Kafka `version`."""
    return _REPOSITORY / ".cache" / "genuine" / f"{name}-{version}"


def kafka_libs(version: str = KAFKA_VERSION) -> Path:
    """Directory of the jars of Kafka `version`, fetched by Maven on first use; several processes may call this at once.

    Raises:
        MissingProgramError: Java or Maven is missing.
        ToolFailedError: Maven could not fetch the jars.
    """
    return maven_libs(_RECIPE / "pom.xml", cache_of("kafka", version), version)


def maven_libs(recipe: Path, cache: Path, version: str | None = None) -> Path:
    """Directory of the jars that the POM `recipe` names, kept under `cache` until the recipe changes.

    Args:
        recipe: a POM.
        cache: where the jars are kept; one directory per recipe and version.
        version: replaces the recipe's property `kafka.version`.

    Raises:
        MissingProgramError: Java or Maven is missing.
        ToolFailedError: Maven could not fetch the jars.
    """
    java_program()
    wanted = hashlib.sha256(recipe.read_bytes()).hexdigest()
    stamp = cache / "fetched"
    with locked(cache.with_name(f"{cache.name}.lock")):
        if stamp.exists() and stamp.read_text() == wanted:
            return cache / "libs"
        maven = require("mvn")
        shutil.rmtree(cache, ignore_errors=True)
        fetched = subprocess.run(
            [
                maven,
                "-q",
                "-B",
                "-f",
                str(recipe),
                "dependency:copy-dependencies",
                *((f"-Dkafka.version={version}",) if version else ()),
                f"-DoutputDirectory={cache / 'libs'}",
                "-DincludeScope=runtime",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if fetched.returncode != 0:
            raise ToolFailedError(f"Maven could not fetch what {recipe.name} names:\n{fetched.stdout[-3000:]}")
        stamp.write_text(wanted)
    return cache / "libs"


def kafka_tool_command(
    class_name: str,
    *args: str,
    jvm_options: Sequence[str] | None = None,
    version: str = KAFKA_VERSION,
    classes: Path | None = None,
) -> list[str]:
    """The command line of a genuine tool, for those who run it themselves.

    Args:
        class_name: short (`TopicCommand`) or full Java name.
        args: the tool's own arguments.
        jvm_options: options of the virtual machine; by default those with which a tool starts soon.
        version: Kafka's.
        classes: a directory of other classes, found behind Kafka's.
    """
    return [
        java_program(),
        *((*TOOL_JVM_OPTIONS, *_shared_classes(version)) if jvm_options is None else jvm_options),
        f"-Dlog4j2.configurationFile={_RECIPE / 'log4j2.properties'}",
        "-cp",
        f"{kafka_libs(version)}/*{'' if classes is None else f':{classes}'}",
        tool_class(class_name),
        *args,
    ]


def tool_class(class_name: str) -> str:
    """The full Java name of a tool, from its short one."""
    return _TOOLS.get(class_name, class_name)


def kafka_tool(
    class_name: str,
    *args: str,
    stdin: str | None = None,
    timeout_s: float = 60.0,
    check: bool = True,
    jvm_options: Sequence[str] | None = None,
    version: str = KAFKA_VERSION,
    classes: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a genuine Kafka tool to its end and return what it wrote.

    Raises:
        ToolFailedError: it ended with an error (unless `check` is off) or did not end within `timeout_s`.
    """
    command = kafka_tool_command(class_name, *args, jvm_options=jvm_options, version=version, classes=classes)
    try:
        done = subprocess.run(
            command, input=stdin or "", capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as expired:
        raise ToolFailedError(
            f"{class_name} {' '.join(args)} did not end within {timeout_s:.0f} s\n"
            f"{_text(expired.stdout)}\n{_text(expired.stderr)}"
        ) from None
    if check and done.returncode != 0:
        raise ToolFailedError(
            f"{class_name} {' '.join(args)} ended with exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done


@cache
def _shared_classes(version: str) -> tuple[str, ...]:
    """Options with which a virtual machine maps Kafka's classes instead of parsing them again (class data sharing)."""
    kafka_libs(version)
    java = Path(java_program()).resolve()
    machine = hashlib.sha256(f"{java} {java.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    cache = cache_of("kafka", version)
    archive = cache / f"classes-{machine}.jsa"
    with locked(cache.with_name(f"{cache.name}-{archive.name}.lock")):
        if not archive.exists():
            _archive_classes(archive, version)
    # Without a word on stdout, should an archive not fit: it is then left out.
    return f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"


def _archive_classes(archive: Path, version: str) -> None:
    """Make the archive, of the classes that a broker has loaded from its start to its end."""
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with _ArchivedKafka(unfinished, version):
        pass
    if unfinished.exists():
        unfinished.rename(archive)
    else:  # this virtual machine makes none: all goes without
        archive.touch()


class GenuineKafka(BrokerProcess):
    """A genuine Kafka broker, one node in KRaft's combined mode; see `BrokerProcess` for its use."""

    name = "kafka"
    ready_timeout_s = 90.0
    tool_jvm_options: ClassVar[Sequence[str] | None] = None
    defaults: ClassVar[dict[str, str]] = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
        "group.share.assignment.interval.ms": "0",
    }

    def __init__(
        self,
        directory: Path | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        cpus: Sequence[int] | None = None,
        environment: Mapping[str, str] | None = None,
        heap: str = "512m",
        as_it_comes: bool = False,
        version: str = KAFKA_VERSION,
        classes: Path | None = None,
        format_options: Sequence[str] = (),
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """As `BrokerProcess`; `heap` is both -Xms and -Xmx, `version` is Kafka's, `classes` holds plug-ins,
        `format_options` are more of the tool that formats the log directory.

        `as_it_comes`: with the options of Kafka's own start script, for measurements, instead of those that start soon.
        """
        super().__init__(
            directory,
            properties=properties,
            port=port,
            cpus=cpus,
            environment=environment,
            host=host,
            prefix=prefix,
        )
        self._heap = heap
        self._as_it_comes = as_it_comes
        self._version = version
        self._classes = classes
        self._format_options = tuple(format_options)
        self._controller_port = free_port()

    @property
    def properties_file(self) -> Path:
        """The server.properties it runs with."""
        return self.directory / "server.properties"

    def prepare(self) -> None:
        """Write server.properties and format the log directory if it is new."""
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.log_dir),
            **self.defaults,
            **self.properties,
        }
        self.properties_file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (Path(settings["log.dirs"].split(",")[0]) / "meta.properties").exists():
            self._format("format", "-t", CLUSTER_ID, "-c", str(self.properties_file), *self._format_options)

    def _format(self, *arguments: str) -> None:
        """Run the tool in the virtual machine that the tests of this process share, where that has the same classes."""
        shares = self.tool_jvm_options is None and not self._as_it_comes
        shares = shares and "config.providers" not in self.properties  # which read the environment of a new process
        if shares and self._classes is None and self._version == KAFKA_VERSION:
            from tests.support import tool_server  # which imports this module

            tool_server.kafka_tool("StorageTool", *arguments)
            return
        kafka_tool(
            "StorageTool",
            *arguments,
            jvm_options=self.tool_jvm_options,
            version=self._version,
            classes=self._classes,
        )

    def command(self) -> list[str]:
        """`kafka.Kafka server.properties` with the options of the virtual machine."""
        others = (
            BROKER_JVM_OPTIONS if self._as_it_comes else (*_TEST_BROKER_JVM_OPTIONS, *_shared_classes(self._version))
        )
        options = (f"-Xms{self._heap}", f"-Xmx{self._heap}", *others, "-Dkafka.log.level=INFO")
        return self._java(options)

    def _java(self, options: Sequence[str]) -> list[str]:
        """The command line of the broker with `options` of the virtual machine."""
        return kafka_tool_command(
            "kafka.Kafka",
            str(self.properties_file),
            jvm_options=options,
            version=self._version,
            classes=self._classes,
        )


class KafkaFormattedByOttla(GenuineKafka):
    """Begins with directories that `ottla storage format` has formatted, which takes the options of Kafka's tool."""

    def _format(self, *arguments: str) -> None:
        from ottla.cli.app import run  # most tests need no command line

        assert run(["storage", *arguments]) == 0


class _ArchivedKafka(GenuineKafka):
    """Writes its classes down when it ends."""

    tool_jvm_options = TOOL_JVM_OPTIONS

    def __init__(self, archive: Path, version: str) -> None:
        super().__init__(version=version)
        self._archive = archive

    def command(self) -> list[str]:
        options = (*_TEST_BROKER_JVM_OPTIONS, f"-XX:ArchiveClassesAtExit={self._archive}", "-Dkafka.log.level=INFO")
        return self._java(options)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, so that what is kept in `.cache/` is made by one process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
