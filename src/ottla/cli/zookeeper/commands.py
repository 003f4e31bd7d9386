"""`ottla zookeeper`: a ZooKeeper server for development, in the foreground."""

from pathlib import Path

import click

from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note
from ottla.cli.zookeeper.jars import class_path
from ottla.cli.zookeeper.server import ZooKeeperProcess, java_program


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(1, 65535),
    default=2181,
    show_default=True,
    help="The port to listen at.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("zookeeper-data"),
    show_default=True,
    help="Where its data is kept.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="An installation of ZooKeeper (also ZOOKEEPER_HOME). Else the system's is run, or that of Maven Central.",
)
def command(host: str, port: int, directory: Path, home: Path | None) -> None:
    """Run a ZooKeeper server for development until Ctrl-C.

    Brokers of one cluster share it: ottla serve --override zookeeper.connect=127.0.0.1:2181 --override node.id=1 ...

    It is one server without a copy of its data. For more than development, run an ensemble of ZooKeeper's own.
    """
    java_program()  # checked first: the error comes before any download
    server = ZooKeeperProcess(class_path(home, note), directory, host, port)
    try:
        server.start()
        note(f"ready: ZooKeeper at {server.address}, data in {directory}")
        code = server.wait()
    finally:
        server.stop()
    raise CommandFailed(f"ZooKeeper ended with exit code {code}")
