"""`ottla cluster start`: ZooKeeper and several brokers on this machine, in the foreground."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import click

from ottla.cli.exits import CommandFailed
from ottla.cli.output import note, plural
from ottla.cli.serve import LOG_LEVELS
from ottla.cli.zookeeper_jars import class_path
from ottla.cli.zookeeper_server import ZooKeeperProcess, java_program

HOST: Final = "127.0.0.1"
READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.2
DEFAULTS: Final = {"zookeeper.session.timeout.ms": "6000"}
"""Shorter than a broker's own: on one machine nothing but a kill takes long, and others should take over soon."""


class BrokerProcess:
    """One `ottla serve`, with its data and its log in a directory of its own."""

    def __init__(self, number: int, port: int, directory: Path, settings: dict[str, str], log_level: str) -> None:
        self.number = number
        self.port = port
        self.log_file = directory / "broker.log"
        self._log_level = log_level
        self._settings = {
            **settings,
            "node.id": str(number),
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(directory / "data"),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; it is not ready yet."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        overrides = [part for name, value in self._settings.items() for part in ("--override", f"{name}={value}")]
        with self.log_file.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ottla.cli.main", "serve", "--log-level", self._log_level, *overrides],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C on the terminal is handled here
            )

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return None if self._process is None else self._process.poll()

    def stop(self) -> None:
        """Have it hand over and end; kill it if that takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            note(f"broker {self.number} does not stop, it is killed")
            self._process.kill()
            self._process.wait()

    def last_lines(self) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-3:])
        except OSError:
            return ""


def _settings(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"KEY=VALUE is expected, not {text!r}")
        settings[name.strip()] = value
    return settings


@click.command()
@click.option("--brokers", type=click.IntRange(1, 20), default=3, show_default=True, help="How many brokers.")
@click.option(
    "--port",
    type=click.IntRange(1, 65_000),
    default=9092,
    show_default=True,
    help="The first one's; the others follow.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("ottla-cluster"),
    show_default=True,
    help="Where everything is kept.",
)
@click.option("--zookeeper", metavar="HOST:PORT[/PATH]", help="A ZooKeeper that is there; none is started then.")
@click.option(
    "--zookeeper-port", type=click.IntRange(1, 65_535), default=2181, show_default=True, help="Of the one started."
)
@click.option(
    "--home",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="An installation of ZooKeeper, as for `ottla zookeeper`.",
)
@click.option(
    "--override", "settings", metavar="KEY=VALUE", multiple=True, callback=_settings, help="A setting of every broker."
)
@click.option("--log-level", type=click.Choice(LOG_LEVELS), default="info", show_default=True, help="Of the brokers.")
def start(
    brokers: int,
    port: int,
    directory: Path,
    zookeeper: str | None,
    zookeeper_port: int,
    home: Path | None,
    settings: dict[str, str],
    log_level: str,
) -> None:
    """Run a cluster on this machine until Ctrl-C: ZooKeeper, and brokers 1, 2, 3, ...

    Started again with the same --dir, it goes on with what it held. A broker that ends or is killed is named, and the
    others go on. Topics have three replicas, two of which have to have a record (fewer brokers, fewer replicas).
    """
    server: ZooKeeperProcess | None = None
    if zookeeper is None:
        java_program()  # said before anything is fetched for it
        server = ZooKeeperProcess(class_path(home, note), directory / "zookeeper", HOST, zookeeper_port)
    common = {
        **DEFAULTS,
        "default.replication.factor": str(min(3, brokers)),
        "min.insync.replicas": str(min(2, brokers)),
        "offsets.topic.replication.factor": str(min(3, brokers)),
        "transaction.state.log.replication.factor": str(min(3, brokers)),
        "share.coordinator.state.topic.replication.factor": str(min(3, brokers)),
        **settings,
        "zookeeper.connect": zookeeper or f"{HOST}:{zookeeper_port}",
    }
    members = [
        BrokerProcess(number, port + number - 1, directory / f"broker-{number}", common, log_level)
        for number in range(1, brokers + 1)
    ]
    for member in members:
        _check_free(member.port)
    try:
        if server is not None:
            server.start()
        for member in members:
            member.start()
        _wait_until_ready(members)
        bootstrap = ",".join(member.address for member in members)
        for member in members:
            note(f"broker {member.number} is process {member.pid}, its log {member.log_file}")
        note(f"ready: {plural(brokers, 'broker')} at {bootstrap}, ZooKeeper at {common['zookeeper.connect']}")
        _watch(members, server)
    finally:
        for member in members:  # one after the other: each hands over to those that are left
            member.stop()
        if server is not None:
            server.stop()


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise CommandFailed(f"{HOST}:{port} cannot be had for a broker: {reason}; --port takes another") from None


def _wait_until_ready(members: list[BrokerProcess]) -> None:
    """Until every broker is named by the first one. Raises `CommandFailed`."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": members[0].address, "log_level": 0})
    deadline = time.monotonic() + READY_SECONDS
    wanted = {member.number for member in members}
    while True:
        for member in members:
            code = member.ended()
            if code is not None:
                raise CommandFailed(
                    f"broker {member.number} ended with exit code {code} at its start (log: {member.log_file})\n"
                    f"{member.last_lines()}"
                )
        try:
            if wanted <= admin.list_topics(timeout=1).brokers.keys():
                return
        except KafkaException:
            pass
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"the brokers have not found each other within {READY_SECONDS:.0f} s; see {members[0].log_file}"
            )
        time.sleep(LOOK_SECONDS / 4)


def _watch(members: list[BrokerProcess], server: ZooKeeperProcess | None) -> None:
    """Say who ends. Returns when the last one has; raises `CommandFailed` when ZooKeeper has."""
    running = {member.number: member for member in members}
    while running:
        for number, member in list(running.items()):
            code = member.ended()
            if code is not None:
                del running[number]
                how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                note(f"broker {number} {how}; {plural(len(running), 'broker')} left (log: {member.log_file})")
        if server is not None and not server.is_alive():
            raise CommandFailed("ZooKeeper has ended; the brokers are stopped as well")
        time.sleep(LOOK_SECONDS)
    raise CommandFailed("no broker is left")
