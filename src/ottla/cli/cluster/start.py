"""`ottla cluster start`: several brokers on this machine, in the foreground."""

import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.cluster.local_cluster import HOST, LocalCluster
from ottla.cli.cluster.own_controllers import voters_of
from ottla.cli.serve import LOG_LEVELS
from ottla.cli.terminal.assignments import parse_assignments
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note, plural

if TYPE_CHECKING:
    from ottla.cli.zookeeper.server import ZooKeeperProcess

POLL_INTERVAL_S: Final = 0.2
ZOOKEEPER: Final = "zookeeper"
"""Where the ZooKeeper that is started keeps its data."""


def _settings(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    return parse_assignments(given)


@click.command()
@click.option(
    "--brokers", metavar="N", type=click.IntRange(1, 20), default=3, show_default=True, help="How many brokers."
)
@click.option(
    "--port",
    metavar="PORT",
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
@click.option(
    "--controller-port",
    metavar="PORT",
    type=click.IntRange(1, 65_000),
    default=9192,
    show_default=True,
    help="The first controller's; the others follow.",
)
@click.option("--zookeeper", metavar="HOST:PORT[/PATH]", help="Instead of controllers: a ZooKeeper that is there.")
@click.option("--with-zookeeper", is_flag=True, help="Instead of controllers: a ZooKeeper that is started.")
@click.option(
    "--zookeeper-port",
    metavar="PORT",
    type=click.IntRange(1, 65_535),
    default=2181,
    show_default=True,
    help="Port of the ZooKeeper that is started.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="An installation of ZooKeeper, as for `ottla zookeeper`.",
)
@click.option(
    "--override", "settings", metavar="KEY=VALUE", multiple=True, callback=_settings, help="A setting of every broker."
)
@click.option(
    "--log-level", type=click.Choice(LOG_LEVELS), default="info", show_default=True, help="Log level of the brokers."
)
def start(
    brokers: int,
    port: int,
    directory: Path,
    controller_port: int,
    zookeeper: str | None,
    with_zookeeper: bool,
    zookeeper_port: int,
    home: Path | None,
    settings: dict[str, str],
    log_level: str,
) -> None:
    """Run a cluster on this machine until Ctrl-C: brokers 1, 2, 3, ..., of which the first three are its controllers
    (of one or two brokers, the first).

    Started again with the same --dir, it goes on with what it held, with ZooKeeper if it began with it. A broker that
    ends or is killed is named, and the others go on. Topics have three replicas, two of which have to have a record
    (fewer brokers, fewer replicas).
    """
    server: ZooKeeperProcess | None = None
    controllers: dict[int, int] = {}
    connect = zookeeper
    if zookeeper is None and (with_zookeeper or (directory / ZOOKEEPER).exists()):
        server = _own_zookeeper(home, directory / ZOOKEEPER, zookeeper_port)
        connect = server.address
    elif zookeeper is None:
        controllers = dict(zip(voters_of(directory, brokers), count(controller_port), strict=False))
    cluster = LocalCluster(
        range(port, port + brokers),
        directory,
        settings,
        controllers=controllers,
        server=server,
        connect=connect,
        log_level=log_level,
    )
    with cluster:
        for broker in cluster.brokers.values():
            note(f"broker {broker.number} is process {broker.pid}, its log {broker.log}")
        at = f"ZooKeeper at {connect}" if connect else f"controllers {', '.join(map(str, controllers))}"
        note(f"ready: {plural(brokers, 'broker')} at {cluster.bootstrap}, {at}")
        _watch(cluster)


def _own_zookeeper(home: Path | None, directory: Path, port: int) -> "ZooKeeperProcess":
    from ottla.cli.zookeeper.jars import class_path  # seldom needed, and slow to load
    from ottla.cli.zookeeper.server import ZooKeeperProcess, java_program

    java_program()  # checked first: the error comes before any download
    return ZooKeeperProcess(class_path(home, note), directory, HOST, port)


def _watch(cluster: LocalCluster) -> None:
    """Report each process that ends. Raises `CommandFailed` when the last broker has ended, or ZooKeeper."""
    running = dict(cluster.brokers)
    while running:
        for number, broker in list(running.items()):
            code = broker.exit_code
            if code is not None:
                del running[number]
                how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                note(f"broker {number} {how}; {plural(len(running), 'broker')} left (log: {broker.log})")
        if cluster.server is not None and not cluster.server.is_alive():
            raise CommandFailed("ZooKeeper has ended; the brokers are stopped as well")
        time.sleep(POLL_INTERVAL_S)
    raise CommandFailed("no broker is left")
