"""`ottla cert dev`: a certificate authority, a broker's and a client's certificate for development."""

import secrets
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
_SERVER: Final = """\
# a broker for development, made by `ottla cert dev --logins`
listeners=SASL_SSL:{listens}
{advertised}security.inter.broker.protocol=SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={broker}
sasl.enabled.mechanisms=SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
# the first user, with all rights; a password that is changed later stays changed
initial.scram.users=SCRAM-SHA-512=[name=admin,password={password}]
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
"""
_ADMIN: Final = """\
# for --command-config, and clients with librdkafka
security.protocol=SASL_SSL
ssl.ca.location={authority}
sasl.mechanism=SCRAM-SHA-512
sasl.username=admin
sasl.password={password}
"""
_NEXT: Final = """\
ottla serve {server}
ottla topic list --bootstrap {bootstrap} --command-config {admin}
"""
_PORT: Final = 9093
_PASSWORD_BYTES: Final = 18


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
@click.option(
    "--logins",
    is_flag=True,
    help="Write server.properties, a broker with logins and access rules, and admin.properties for --command-config.",
)
@click.option("--force", is_flag=True, help="Replace those that are there.")
def dev(hosts: tuple[str, ...], client: str, days: int, directory: Path, logins: bool, force: bool) -> None:
    """Make an authority, a broker's and a client's certificate, and print the settings that use them.

    The broker's certificate is valid for localhost and each --host. The authority's key stays in the directory: trust
    it on machines for development only.
    """
    try:
        from ottla.security.issuing import files_in, issue, write_secret
    except ImportError as error:
        raise CommandFailed("certificates need another package: install Ottla with its extra `security`") from error
    files = files_in(directory.absolute())
    directory = files.authority.parent
    server, admin = (directory / name for name in ("server.properties", "admin.properties"))
    there = [path for path in (*files, *((server, admin) if logins else ())) if path.exists()]
    if there and not force:
        raise CommandFailed(f"{there[0]} is there already; give another --dir, or --force to replace it")
    try:
        issue(files, hosts, client, days)
    except ValueError as error:
        raise CommandFailed(f"a name cannot stand in a certificate: {error}") from error
    if not logins:
        click.echo(_LINES.format(**files._asdict()), nl=False)
        return
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    listens = f"//:{_PORT}" if hosts else f"//127.0.0.1:{_PORT}"
    advertised = f"advertised.listeners=SASL_SSL://{hosts[0]}:{_PORT}\n" if hosts else ""
    names = {**files._asdict(), "password": password, "listens": listens, "advertised": advertised}
    write_secret(server, _SERVER.format(**names).encode())
    write_secret(admin, _ADMIN.format(**names).encode())
    bootstrap = f"{hosts[0] if hosts else '127.0.0.1'}:{_PORT}"
    click.echo(_NEXT.format(server=server, admin=admin, bootstrap=bootstrap), nl=False)
