"""`ottla connect hash-password`."""

import sys

import click

from ottla.cli.terminal.exits import CommandFailed


@click.command()
def hash_password() -> None:
    """Print the hash of a password, for the file of a worker's users (rest.users.file).

    The password is typed, or comes in a pipe.
    """
    from ottla.connect.rest.passwords import hashed

    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandFailed("there is no password to hash")
    click.echo(hashed(password))
