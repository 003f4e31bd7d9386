"""The login of a command at workers of connectors.

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

_HELP: Final = {
    "user": f"User at the worker; the password is in {PASSWORD}, in a password file, or typed.",
    "password_file": "File with the user's password alone.",
    "token_file": f"File with a bearer token, in place of a user; or {TOKEN} has it.",
    "cacert": "Certificates (PEM) that vouch for the worker; without it, the system's.",
    "cert": "Own certificate (PEM), for workers that ask for one.",
    "key": "Its private key, unless that is in the same file.",
}
_FILE: Final = click.Path(exists=True, dir_okay=False)


def access_options(command: Callable[Concatenate[Access, P], R], prefix: str = "") -> Callable[P, R]:
    """Add --user and the others, or --PREFIX-user and so on; the command gets the `Access` as its first argument."""

    @functools.wraps(command)
    def with_access(*args: Any, **given: Any) -> R:
        user, password_file, token_file, authority, certificate, key = (
            given.pop(_parameter(prefix, name)) for name in _HELP
        )
        authorization = _authorization(user, password_file, token_file)
        try:
            context = None if authority is None and certificate is None else trusting(authority, certificate, key)
        except OSError as problem:
            *some, last = (_option(prefix, name) for name in ("cacert", "cert", "key"))
            raise click.UsageError(f"{', '.join(some)} or {last} cannot be used: {problem}") from None
        return command(Access(authorization, context), *args, **given)

    decorated: Callable[..., Any] = with_access
    for name, help_text in reversed(_HELP.items()):
        decorated = click.option(
            _option(prefix, name),
            metavar="NAME" if name == "user" else "FILE",
            type=None if name == "user" else _FILE,
            envvar=f"OTTLA_CONNECT_{name.upper()}",
            help=f"{help_text} [env: OTTLA_CONNECT_{name.upper()}]",
        )(decorated)
    return cast("Callable[P, R]", decorated)  # click gives it the options


def _option(prefix: str, name: str) -> str:
    return "--" + "-".join(part for part in (prefix, name.replace("_", "-")) if part)


def _parameter(prefix: str, name: str) -> str:
    return _option(prefix, name).removeprefix("--").replace("-", "_")


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
