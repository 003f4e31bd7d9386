"""Where the broker is and how to talk to it: the connection options, the clients, and waiting without hanging.

The client library logs every failed connection attempt on standard error, many times a second. Here its log is
collected instead, and the last reason goes into the one sentence that reports the failure.
"""

import functools
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import click
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec, TopicMetadata

from ottla.cli.brokers.failures import explain
from ottla.cli.brokers.properties import read_properties
from ottla.cli.terminal import suggest
from ottla.cli.terminal.exits import CommandFailed
from ottla.client.addresses import Address, parse_addresses
from ottla.client.errors import AuthenticationFailed, BrokerRefused, ClientError
from ottla.client.partition import Partition
from ottla.client.probing import protocol_of
from ottla.client.properties import PropertiesProblem, library_settings, overridden, translated
from ottla.errors import InvalidConfig
from ottla.waiting import tries

if TYPE_CHECKING:
    from ottla.admin import Admin

CLIENT_ID: Final = "ottla-cli"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # the library leaves it untyped
LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the same
REACH_TIMEOUT_S: Final = 4.0
"""How long the bootstrap servers together may take to accept a connection."""
PROBE_TIMEOUT_S: Final = 1.0
"""How long a listener may take to show which protocol it speaks; a broker answers in a millisecond."""
STARTING_S: Final = 1.5
"""How long a refused connection may be that of a broker that is just starting, as in `ottla serve & ottla ...`."""
_RETRY_S: Final = 0.1
_PROVIDERS: Final = "config.providers"

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class ClientLog(logging.Handler):
    """Collects what the client library logs, for the reason of a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=50)
        self.logger = logging.Logger("ottla.client")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        self.lines.append(record.getMessage())

    def last_reason(self) -> str | None:
        """The latest failure in the log, without the client's internal names, or None."""
        for line in reversed(self.lines):
            kind, _, rest = line.partition(" ")
            if kind in ("FAIL", "ERROR", "SSL", "SASL"):
                return rest.rsplit("]: ", 1)[-1].split(" (after ")[0].replace("/bootstrap", "")
        return None


client_log: Final = ClientLog()


@dataclass(slots=True)
class Connection:
    """How to reach the cluster: bootstrap servers, further client properties, and timeout in seconds."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    properties: dict[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    _reached: bool = False
    _admin: AdminClient | None = None

    def client_configuration(self, **settings: object) -> dict[str, Any]:
        """The client library's configuration: ours, then `settings` (underscores for dots), then the user's.

        Raises CommandFailed for a key store that cannot be read.
        """
        configuration: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": CLIENT_ID,
            "socket.connection.setup.timeout.ms": 5000,
        }
        for name, value in settings.items():
            configuration[name if name.endswith("_cb") else name.replace("_", ".")] = value
        configuration.update(self.properties)
        try:
            return library_settings(configuration)
        except PropertiesProblem as problem:
            raise CommandFailed(str(problem)) from None

    def add_properties(self, file: Path) -> None:
        """Take from a file the client properties that are not there yet. Raises click.BadParameter, OSError."""
        try:
            read = translated(_with_values(read_properties(file.read_text(encoding="utf-8"))))
        except (PropertiesProblem, InvalidConfig) as problem:
            raise click.BadParameter(f"{file}: {problem}") from None
        self.properties = overridden(read, self.properties)

    def reach(self, *, logs_in: bool = True) -> None:
        """Connect once to a bootstrap server, and log in there, so that a wrong address or password is reported soon.

        Raises CommandFailed.
        """
        if self._reached:
            return
        log_in = self._log_in() if logs_in else None
        servers = str(self.properties.get("bootstrap.servers", self.bootstrap))
        try:
            addresses = parse_addresses(servers)
        except ValueError as problem:
            raise click.UsageError(str(problem)) from None
        deadline = time.monotonic() + REACH_TIMEOUT_S
        reason, refused = "", False
        for _ in tries(STARTING_S, every_s=_RETRY_S):
            refused = False
            for address in addresses:
                timeout_s = max(0.2, deadline - time.monotonic())
                try:
                    if log_in is None:
                        socket.create_connection(address, timeout=timeout_s).close()
                        self._check_protocol(address)
                    else:
                        log_in(address)
                except OSError as failure:
                    reason = failure.strerror or str(failure)
                    refused = refused or isinstance(failure, ConnectionRefusedError)
                except BrokerRefused as failure:
                    reason, refused = str(failure), True
                except ClientError as failure:
                    self._check_protocol(address)
                    if isinstance(failure, AuthenticationFailed):
                        raise CommandFailed(_refusal(failure)) from None
                    reason = str(failure)
                else:
                    self._reached = True
                    return
            if not refused:
                break
        raise CommandFailed(
            f"no broker answers at {servers} ({reason.lower()}); start one with `ottla serve`, "
            "or name another with --bootstrap HOST:PORT"
        )

    def _check_protocol(self, address: Address) -> None:
        """Raises CommandFailed if the listener speaks another security protocol than the one that is set."""
        mine = self.properties.get("security.protocol", "PLAINTEXT").upper()
        found = protocol_of(address, PROBE_TIMEOUT_S)
        if found is not None and found != mine:
            needs = [f"security.protocol={found}"]
            needs += ["ssl.ca.location"] if "SSL" in found.replace("SASL", "") else []
            needs += ["sasl.mechanism, sasl.username and sasl.password"] if "SASL" in found else []
            raise CommandFailed(
                f"the listener at {address} speaks {found}, and security.protocol is {mine}: set {', '.join(needs)} "
                "in a file for --command-config"
            )

    def _log_in(self) -> Callable[[Address], None] | None:
        """Connects with TLS or SASL, and hangs up; None where there is neither, or the library alone speaks it."""
        if self.properties.get("security.protocol", "plaintext").lower() == "plaintext":
            return None
        from ottla.client.blocking import Connection as Protected
        from ottla.client.security import NotSpoken, UnsupportedSecurity, security_of

        try:
            security = security_of(self.properties)
        except NotSpoken:
            return None
        except UnsupportedSecurity as problem:
            raise CommandFailed(str(problem)) from None

        def log_in(address: Address) -> None:
            Protected(address, client_id=CLIENT_ID, timeout_s=self.timeout_s, security=security).close()

        return log_in

    def admin(self) -> AdminClient:
        """The client for administration, made when first asked for, after making sure that a broker listens."""
        self.reach()
        if self._admin is None:
            self._admin = AdminClient(self.client_configuration(), logger=client_log.logger)
        return self._admin

    def broker_admin(self) -> "Admin":
        """The administration that the client library lacks; a context manager. Raises CommandFailed."""
        from ottla.admin import Admin  # most commands do without it

        self.reach()
        servers = str(self.properties.get("bootstrap.servers", self.bootstrap))
        return Admin(servers, client_id=CLIENT_ID, timeout_s=self.timeout_s, properties=self.properties)

    def producer(self, **settings: object) -> Producer:
        """A producer, after making sure that a broker listens."""
        self.reach()
        return Producer(self.client_configuration(**settings), logger=client_log.logger)

    def consumer(self, **settings: object) -> Consumer:
        """A consumer, after making sure that a broker listens."""
        self.reach()
        return Consumer(self.client_configuration(**settings), logger=client_log.logger)

    def wait(self, future: "Future[T]", failure: str | None = None) -> T:
        """The result of an administrative request. Raises CommandFailed.

        `failure` begins the sentence about an error of Kafka's; without it, that is raised as KafkaException.
        """
        try:
            # The client's own time limit (request_timeout) fires first, and knows why.
            return future.result(self.timeout_s + 5)
        except FutureTimeoutError:
            raise CommandFailed(f"{self.bootstrap} did not answer within {self.timeout_s:g} s") from None
        except KafkaException as error:
            if failure is None:
                raise
            raise CommandFailed(f"{failure}: {explain(error.args[0], client_log.last_reason())}") from None

    def metadata(self, admin: AdminClient) -> ClusterMetadata:
        """All brokers, topics and partitions. Raises CommandFailed."""
        try:
            return admin.list_topics(timeout=self.timeout_s)
        except KafkaException as failure:
            # A silent or foreign server shows as a time-out; the log may say more.
            admin.poll(0)
            raise CommandFailed(
                f"{self.bootstrap} does not answer as a Kafka broker: "
                + explain(failure.args[0], client_log.last_reason())
            ) from None


def _with_values(properties: dict[str, str]) -> dict[str, str]:
    """The properties with the placeholders of their `config.providers` replaced (KIP-297). Raises InvalidConfig."""
    if _PROVIDERS not in properties:
        return properties
    from ottla.config.providers import resolved

    return {name: value for name, value in resolved(properties).items() if not name.startswith(_PROVIDERS)}


def _refusal(failure: ClientError) -> str:
    """The sentence about a login that failed, with what to do."""
    text = str(failure)
    if "does not authenticate" in text:
        return f"{text.rstrip('.')}; are user name and password (or token) in --command-config the right ones?"
    return text


def known_topics(metadata: ClusterMetadata, names: Iterable[str]) -> list[TopicMetadata]:
    """The metadata of the named topics. Raises CommandFailed naming the nearest topic for one that is not there."""
    found = []
    for name in names:
        topic = metadata.topics.get(name)
        if topic is None:
            raise CommandFailed(unknown_topic(name, metadata.topics))
        found.append(topic)
    return found


def unknown_topic(name: str, topics: Iterable[str]) -> str:
    """The sentence about a topic that does not exist."""
    hint = suggest.did_you_mean(name, topics)
    return f"topic {name!r} does not exist{hint or '; `ottla topic list` shows those that do'}"


def partitions_of(topics: Iterable[TopicMetadata]) -> list[Partition]:
    """All partitions of the topics, in order."""
    return [Partition(str(topic.topic), partition) for topic in topics for partition in sorted(topic.partitions)]


def list_offsets(
    connection: Connection,
    admin: AdminClient,
    wanted: Mapping[Partition, OffsetSpec],
    *,
    read_committed: bool = False,
) -> dict[Partition, int]:
    """One offset per partition (ListOffsets); -1 where a time lies after the last record.

    Raises CommandFailed naming the partition that cannot be asked.
    """
    if not wanted:
        return {}
    isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    request = {TopicPartition(topic, partition): spec for (topic, partition), spec in wanted.items()}
    futures = admin.list_offsets(request, isolation_level=isolation, request_timeout=connection.timeout_s)
    offsets: dict[Partition, int] = {}
    for asked, future in futures.items():
        partition = Partition(asked.topic, asked.partition)
        offsets[partition] = connection.wait(future, f"the offsets of partition {partition} cannot be read").offset
    return offsets


def offset_ranges(
    connection: Connection, admin: AdminClient, partitions: Iterable[Partition], *, read_committed: bool = False
) -> dict[Partition, tuple[int, int]]:
    """Per partition the first offset and the one after the last. Raises CommandFailed."""
    asked = list(partitions)
    starts = list_offsets(connection, admin, dict.fromkeys(asked, EARLIEST))
    ends = list_offsets(connection, admin, dict.fromkeys(asked, LATEST), read_committed=read_committed)
    return {partition: (starts[partition], ends[partition]) for partition in asked}


def present_ranges(
    connection: Connection, admin: AdminClient, wanted: Iterable[Partition]
) -> dict[Partition, tuple[int, int]]:
    """`offset_ranges`, sorted, without the partitions that no longer exist. Raises CommandFailed."""
    topics = connection.metadata(admin).topics
    present = [each for each in wanted if each.topic in topics and each.partition in topics[each.topic].partitions]
    return offset_ranges(connection, admin, sorted(present))


def offsets_at(
    connection: Connection,
    admin: AdminClient,
    ranges: Mapping[Partition, tuple[int, int]],
    timestamp_ms: int,
) -> dict[Partition, int]:
    """Per partition the first offset at or after a time; the end where nothing is as late. Raises CommandFailed."""
    found = list_offsets(connection, admin, dict.fromkeys(ranges, OffsetSpec.for_timestamp(timestamp_ms)))
    return {partition: offset if offset >= 0 else ranges[partition][1] for partition, offset in found.items()}


# The options below may stand after any command, or after `ottla` itself; they collect here, per invocation.
_META_KEY: Final = "ottla.connection"


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value is None or value == ():
        return
    connection: Connection = context.meta.setdefault(_META_KEY, Connection())
    if parameter.name == "bootstrap":
        connection.bootstrap = str(value)
    elif parameter.name == "request_timeout" and isinstance(value, float):
        connection.timeout_s = value
    elif parameter.name == "command_config":
        connection.add_properties(Path(str(value)))
    elif isinstance(value, tuple):
        try:
            given = translated(read_properties("\n".join(value)))
            connection.properties = overridden(connection.properties, given)
        except PropertiesProblem as problem:
            raise click.BadParameter(str(problem)) from None


_OPTIONS: Final = (
    click.option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        envvar="OTTLA_BOOTSTRAP",
        expose_value=False,
        callback=_keep,
        help=f"Where the brokers are. [env: OTTLA_BOOTSTRAP; default: {DEFAULT_BOOTSTRAP}]",
    ),
    click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        expose_value=False,
        callback=_keep,
        help="A file of client properties (security, time-outs, ...).",
    ),
    click.option(
        "-X",
        "client_property",
        metavar="KEY=VALUE",
        multiple=True,
        expose_value=False,
        callback=_keep,
        help="One client property, as librdkafka names it; wins over the file. May be repeated.",
    ),
    click.option(
        "--request-timeout",
        metavar="SECONDS",
        type=click.FloatRange(min=0.1, max=3600),
        expose_value=False,
        callback=_keep,
        help="How long to wait for an answer. [default: 10]",
    ),
)


def connection_options(command: Callable[Concatenate[Connection, P], R]) -> Callable[P, R]:
    """Add the options that say how to reach the cluster; the command gets the `Connection` as its first argument."""

    @functools.wraps(command)
    def with_connection(*args: P.args, **kwargs: P.kwargs) -> R:
        meta = click.get_current_context().meta
        return command(meta.setdefault(_META_KEY, Connection()), *args, **kwargs)

    decorated: Callable[P, R] = with_connection
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
