"""`ottla user`: list users that log in by SCRAM, set and remove their passwords."""

import sys
from typing import Any, Final

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.brokers.failures import explain
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import Row, columns_of, json_option, note, print_rows

_MECHANISMS: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_ITERATIONS: Final = 4096
_mechanism_option = click.option(
    "--mechanism",
    type=click.Choice(tuple(_MECHANISMS)),
    default="SCRAM-SHA-512",
    show_default=True,
    help="The mechanism that the password is for.",
)


@click.group(cls=Verbs)
def command() -> None:
    """List users that log in by SCRAM, set and remove their passwords."""


@command.command(name="list")
@json_option
@connection_options
def list_users(connection: Connection, *, as_json: bool) -> None:
    """List the users that have passwords, and their mechanisms."""
    described: Any = connection.admin().describe_user_scram_credentials(request_timeout=connection.timeout_s)
    found: dict[str, Any] = connection.wait(described, "users cannot be listed")
    rows: list[Row] = [
        {"user": name, "mechanism": info.mechanism.name.replace("_", "-")}
        for name, each in sorted(found.items())
        for info in each.scram_credential_infos
    ]
    print_rows(rows, columns_of("user mechanism"), as_json=as_json, empty="no user has a password for SCRAM")


@command.command(name="set")
@click.argument("user")
@_mechanism_option
@connection_options
def set_password(connection: Connection, user: str, mechanism: str) -> None:
    """Give USER a password: typed twice on a terminal, else the first line of standard input.

    A user that does not exist yet is created. The password holds from the next login on.
    """
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("the password is empty: give it on the first line of standard input")
    info = ScramCredentialInfo(_MECHANISMS[mechanism], _ITERATIONS)
    _alter(connection, user, UserScramCredentialUpsertion(user, info, password.encode()), "was not given a password")
    note(f"{user} logs in by {mechanism} from now on")


@command.command(name="delete")
@click.argument("user")
@_mechanism_option
@connection_options
def delete_user(connection: Connection, user: str, mechanism: str) -> None:
    """Take the password of USER for a mechanism away. Open connections go on; access rules stay."""
    _alter(connection, user, UserScramCredentialDeletion(user, _MECHANISMS[mechanism]), "keeps its password")
    note(f"{user} no longer logs in by {mechanism}")


def _alter(connection: Connection, user: str, change: Any, failure: str) -> None:
    (future,) = connection.admin().alter_user_scram_credentials([change], request_timeout=connection.timeout_s).values()
    try:
        connection.wait(future)
    except KafkaException as error:
        raise CommandFailed(f"{user} {failure}: {explain(error.args[0])}") from None
