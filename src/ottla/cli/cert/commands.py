"""`ottla cert dev`: a certificate authority, a broker's and a client's certificate for development."""

from pathlib import Path
from typing import Final

import click

from ottla.cli.app import Verbs
from ottla.cli.terminal.exits import CommandFailed

_LINES: Final = """\
# server.properties
listeners=PLAINTEXT://127.0.0.1:9092,SSL://:9093
ssl.keystore.type=PEM
ssl.keystore.location={broker}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
ssl.client.auth=required

# clients with librdkafka, and ottla --command-config
security.protocol=SSL
ssl.ca.location={authority}
ssl.certificate.location={client}
ssl.key.location={client}

# clients in Java
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location={authority}
ssl.keystore.type=PEM
ssl.keystore.location={client}
"""


@click.group(cls=Verbs)
def command() -> None:
    """Make certificates for development."""


@command.command()
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Another name or address of the broker.")
@click.option("--client", default="client", show_default=True, metavar="NAME", help="The name of the client.")
@click.option(
    "--days", metavar="N", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long they are valid."
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("certs"),
    show_default=True,
    help="Where they are written.",
)
@click.option("--force", is_flag=True, help="Replace those that are there.")
def dev(hosts: tuple[str, ...], client: str, days: int, directory: Path, force: bool) -> None:
    """Make an authority, a broker's and a client's certificate, and print the settings that use them.

    The broker's certificate is valid for localhost and each --host. The authority's key stays in the directory: trust
    it on machines for development only.
    """
    try:
        from ottla.security.issuing import files_in, issue
    except ImportError as error:
        raise CommandFailed("certificates need another package: install Ottla with its extra `security`") from error
    files = files_in(directory.absolute())
    there = [path for path in files if path.exists()]
    if there and not force:
        raise CommandFailed(f"{there[0]} is there already; give another --dir, or --force to replace it")
    try:
        issue(files, hosts, client, days)
    except ValueError as error:
        raise CommandFailed(f"a name cannot stand in a certificate: {error}") from error
    click.echo(_LINES.format(**files._asdict()), nl=False)
