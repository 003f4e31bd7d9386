"""Talking to a worker of connectors: where it is, and what its answers mean to a person."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast
from urllib.parse import quote

import click

from ottla.cli.terminal import suggest
from ottla.cli.terminal.exits import CommandFailed
from ottla.connect.rest.client import RestError, ask

DEFAULT_URL: Final = "http://127.0.0.1:8083"
_ANSWER_S: Final = 100.0

P = ParamSpec("P")
R = TypeVar("R")


class RestRefused(CommandFailed):
    """A worker's answer that is an error: its HTTP status, and its sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Rest:
    """One worker's REST API. All methods raise CommandFailed with a sentence."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") if "://" in url else f"http://{url}".rstrip("/")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request; its answer from JSON, None if it has none."""
        try:
            return ask(self.url, method, path, body, within_s=_ANSWER_S)
        except RestError as refused:
            raise RestRefused(refused.status, refused.message) from None
        except (OSError, ValueError) as failure:
            cause = getattr(failure, "reason", failure)
            reason = (getattr(cause, "strerror", None) or str(cause)).lower()
            raise CommandFailed(
                f"no worker answers at {self.url} ({reason}); start one with `ottla connect serve`, or name another "
                "with --url"
            ) from None

    def connector(self, name: str, rest: str = "", *, method: str = "GET", body: Any = None) -> Any:
        """A request about one connector; names the nearest one if it does not exist."""
        try:
            return self.ask(method, f"/connectors/{quote(name, safe='')}{rest}", body)
        except RestRefused as refused:
            if refused.status != 404 or name in (known := self.ask("GET", "/connectors")):
                raise
            hint = suggest.did_you_mean(name, known) or "; `ottla connect list` shows those that do"
            raise CommandFailed(f"connector {name!r} does not exist{hint}") from None


def rest_option(command: Callable[Concatenate[Rest, P], R]) -> Callable[P, R]:
    """Add --url; the command gets the `Rest` as its first argument."""

    @click.option(
        "--url",
        metavar="URL",
        envvar="OTTLA_CONNECT",
        default=DEFAULT_URL,
        help=f"Where a worker is. [env: OTTLA_CONNECT; default: {DEFAULT_URL}]",
    )
    @functools.wraps(command)
    def with_rest(url: str, *args: P.args, **kwargs: P.kwargs) -> R:
        return command(Rest(url), *args, **kwargs)

    return cast("Callable[P, R]", with_rest)  # click gives it the url
