"""The login of a command at a worker, and hashes of passwords for workers.

Passwords and tokens come from files, the environment or the terminal: options of a process are shown to every user of
its machine.
"""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

import click

from ottla.cli.terminal.exits import CommandFailed
from ottla.connect.rest.client import Access, basic, bearer, trusting

PASSWORD: Final = "OTTLA_CONNECT_PASSWORD"
TOKEN: Final = "OTTLA_CONNECT_TOKEN"

P = ParamSpec("P")
R = TypeVar("R")

_OPTIONS: Final = ("user", "password_file", "token_file", "cacert", "cert", "key")
_FILE: Final = click.Path(exists=True, dir_okay=False)


def access_options(command: Callable[Concatenate[Access, P], R]) -> Callable[P, R]:
    """Add --user and the others; the command gets the `Access` as its first argument."""

    @click.option("--user", metavar="NAME", envvar="OTTLA_CONNECT_USER",
                  help=f"User at the worker; the password is in {PASSWORD}, in --password-file, or typed. "
                       "[env: OTTLA_CONNECT_USER]")  # fmt: skip
    @click.option("--password-file", metavar="FILE", type=_FILE, envvar="OTTLA_CONNECT_PASSWORD_FILE",
                  help="File with the user's password alone. [env: OTTLA_CONNECT_PASSWORD_FILE]")  # fmt: skip
    @click.option("--token-file", metavar="FILE", type=_FILE, envvar="OTTLA_CONNECT_TOKEN_FILE",
                  help=f"File with a bearer token, in place of a user; or {TOKEN} has it. "
                       "[env: OTTLA_CONNECT_TOKEN_FILE]")  # fmt: skip
    @click.option("--cacert", metavar="FILE", type=_FILE, envvar="OTTLA_CONNECT_CACERT",
                  help="Certificates (PEM) that vouch for the worker; without it, the system's. "
                       "[env: OTTLA_CONNECT_CACERT]")  # fmt: skip
    @click.option("--cert", metavar="FILE", type=_FILE, envvar="OTTLA_CONNECT_CERT",
                  help="Own certificate (PEM), for workers that ask for one. [env: OTTLA_CONNECT_CERT]")  # fmt: skip
    @click.option("--key", metavar="FILE", type=_FILE, envvar="OTTLA_CONNECT_KEY",
                  help="Its private key, unless that is in the same file. [env: OTTLA_CONNECT_KEY]")  # fmt: skip
    @functools.wraps(command)
    def with_access(*args: Any, **given: Any) -> R:
        user, password_file, token_file, authority, certificate, key = (given.pop(name) for name in _OPTIONS)
        authorization = _authorization(user, password_file, token_file)
        try:
            context = None if authority is None and certificate is None else trusting(authority, certificate, key)
        except OSError as problem:
            raise click.UsageError(f"--cacert, --cert or --key cannot be used: {problem}") from None
        return command(Access(authorization, context), *args, **given)

    return cast("Callable[P, R]", with_access)  # click gives it the options


def _authorization(user: str | None, password_file: str | None, token_file: str | None) -> str | None:
    if user is None:
        token = os.environ.get(TOKEN) if token_file is None else _secret(token_file)
        return bearer(token) if token else None
    if token_file is not None:
        raise click.UsageError("--user and --token-file exclude each other")
    if ":" in user:
        raise click.UsageError(f"--user is a name alone: the password is in {PASSWORD} or --password-file")
    password = os.environ.get(PASSWORD) if password_file is None else _secret(password_file)
    if password is None and sys.stdin.isatty():
        password = click.prompt(f"Password of {user}", hide_input=True, err=True)
    if not password:
        raise CommandFailed(f"there is no password of {user}: set {PASSWORD}, or name a file with --password-file")
    return basic(user, password)


def _secret(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise CommandFailed(f"{file} cannot be read: {problem}") from None


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
