"""Talking to a worker of connectors: where it is, and what its answers mean to a person."""

import functools
import ssl
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast
from urllib.parse import quote, urlsplit

import click

from ottla.cli.brokers.worker_access import access_options
from ottla.cli.terminal import suggest
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note
from ottla.connect.rest.client import Access, RestError, ask

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

    def __init__(self, url: str, access: Access | None = None) -> None:
        self.url = url.rstrip("/") if "://" in url else f"http://{url}".rstrip("/")
        self._access = access or Access()

    def at(self, worker: str) -> "Rest":
        """The API of another worker, `host:port`, reached in the same way."""
        return Rest(f"{self.url.partition('://')[0]}://{worker}", self._access)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request; its answer from JSON, None if it has none."""
        try:
            return ask(self.url, method, path, body, within_s=_ANSWER_S, access=self._access)
        except RestError as refused:
            if refused.status == 401:
                raise RestRefused(401, f"{self.url} refuses this login; {self._remedy()}") from None
            raise RestRefused(refused.status, refused.message) from None
        except (OSError, ValueError) as failure:
            cause = getattr(failure, "reason", failure)
            if isinstance(cause, ssl.SSLError):
                why = getattr(cause, "verify_message", None) or cause.reason or str(cause)
                raise CommandFailed(
                    f"{self.url}: TLS fails ({str(why).lower()}); name the worker's authority with --cacert, or its "
                    "URL as its certificate has it with --url"
                ) from None
            reason = (getattr(cause, "strerror", None) or str(cause)).lower()
            raise CommandFailed(
                f"no worker answers at {self.url} ({reason}); start one with `ottla connect serve`, or name another "
                "with --url"
            ) from None

    def _remedy(self) -> str:
        if self._access.authorization is not None:
            return "check the name, and the password or token"
        return "name a user with --user, or a token with --token-file"

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
    """Add --url and the options of `access_options`; the command gets the `Rest` as its first argument."""

    @click.option(
        "--url",
        metavar="URL",
        envvar="OTTLA_CONNECT",
        default=DEFAULT_URL,
        help=f"Where a worker is. [env: OTTLA_CONNECT; default: {DEFAULT_URL}]",
    )
    @access_options
    @functools.wraps(command)
    def with_rest(access: Access, *args: Any, **given: Any) -> R:
        rest = Rest(given.pop("url"), access)
        if access.authorization is not None and not _is_safe(rest.url):
            note(f"{rest.url} is not encrypted: the password or token can be read on the way; use https")
        return command(rest, *args, **given)

    return cast("Callable[P, R]", with_rest)  # click gives it the url


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("127.0.0.1", "localhost", "::1")
