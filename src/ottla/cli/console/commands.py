"""`ottla console`: a web page that shows a cluster."""

import click

from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note
from ottla.errors import sentence


@click.command()
@click.option("--host", default="127.0.0.1", help="The address to listen at, of this machine. [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT", default=8080, help="0 takes a free one. [default: 8080]"
)
@connection_options
def command(connection: Connection, host: str, port: int) -> int:
    """Serve a console for the browser: what is healthy, topics, records and groups, as they change.

    It works with any Kafka cluster, only reads, and listens on this machine only.
    """
    from ottla.console import server

    connection.reach()
    try:
        bound = server.listening(host, port)
    except (server.NotLoopback, OSError) as problem:
        raise CommandFailed(sentence(problem)) from None
    properties = dict(connection.properties)
    bootstrap = properties.pop("bootstrap.servers", connection.bootstrap)
    server.run(bootstrap, properties, bound, lambda url: note(f"The console is at {url} (Ctrl-C ends it)."))
    return 0
