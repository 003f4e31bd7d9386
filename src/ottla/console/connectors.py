"""Connectors of any Connect REST API, Ottla's or Kafka's: what workers answer, without secrets, and orders to them.

A worker is asked in a thread, for a few seconds and a few megabytes; one that does not answer is a sentence.
"""

import asyncio
import contextlib
import functools
import json
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from ottla.client.errors import ClientError
from ottla.connect.rest.client import Access, RestError, ask
from ottla.connect.runtime.threads import in_thread
from ottla.console.connector_views import Connector, Infos, Kept, Names, connector_rows, masked, validated
from ottla.console.sharing import Shared

T = TypeVar("T")

ANSWER_S: Final = 8.0
VALIDATION_S: Final = 30.0
"""Workers ask the other system."""
LARGEST_ANSWER_BYTES: Final = 16 << 20
MOST_QUESTIONS: Final = 8
"""To one cluster at a time. A worker that answers a byte a second holds threads for long, and no other cluster's."""
_PLUGINS_S: Final = 300.0
_NO_LOGIN: Final = 401


NO_LOGIN: Final = Access()


class WorkerAddress(NamedTuple):
    """Where a Connect cluster is, and the console's login there."""

    url: str
    access: Access = NO_LOGIN


class WorkerProblem(ClientError):
    """A worker does not answer, or refuses; the message is a sentence about it."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Listed(NamedTuple):
    """The connectors of one Connect cluster, or why they are not known."""

    number: int
    url: str
    connectors: list[Connector]
    problem: str = ""


class Offset(NamedTuple):
    """Where a connector is in one partition of what it reads, both as JSON."""

    partition: str
    offset: str


def written_offsets(offsets: Iterable[Offset]) -> str:
    """Offsets as they are edited: JSON of the shape that workers take, one part a line. PURE."""
    lines = [f'{{"partition": {each.partition}, "offset": {each.offset}}}' for each in offsets]
    return "[\n" + ",\n".join(lines) + "\n]"


class Described(NamedTuple):
    """A connector; what could not be asked is None. `config` is without secrets."""

    connector: Connector
    config: dict[str, str]
    hidden: Collection[str]
    """Settings whose value is not shown."""
    offsets: list[Offset] | None
    topics: list[str] | None


class ConnectCluster:
    """One Connect cluster, by the URL of one of its workers. On one event loop."""

    def __init__(self, number: int, url: str, access: Access | None = None) -> None:
        """`access`: the login of the console, which all its viewers use."""
        self.number = number
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._access = access or NO_LOGIN
        self._asked = 0
        self.shared = Shared()

    # -- questions ---------------------------------------------------------------------------------------------------

    async def listed(self) -> Listed:
        """All connectors with their tasks, those that have failed first."""
        try:
            return Listed(self.number, self.url, await self.shared.get("list", self._list))
        except WorkerProblem as problem:
            return Listed(self.number, self.url, [], str(problem))

    async def _list(self) -> list[Connector]:
        answer = await self._ask("GET", "/connectors?expand=status&expand=info")
        with self._shaped():
            return connector_rows(answer)

    async def described(self, name: str) -> Described:
        """A connector. Raises WorkerProblem."""
        return await self.shared.get(("connector", name), lambda: self._describe(name))

    async def _describe(self, name: str) -> Described:
        status, info = await asyncio.gather(self._of(name, "/status"), self._of(name, ""))
        with self._shaped():
            (connector,) = connector_rows({name: {"status": status, "info": info}})
            config = _config(info)
        shown, hidden = masked(config, await self.secret_names(config.get("connector.class", "")))
        offsets = await self._perhaps(lambda: self._of(name, "/offsets"))
        topics = await self._perhaps(lambda: self._of(name, "/topics"))
        with self._shaped():
            return Described(
                connector,
                shown,
                hidden,
                None if offsets is None else [_offset(each) for each in offsets["offsets"]],
                None if topics is None else sorted(map(str, topics[name]["topics"])),
            )

    async def secret_names(self, plugin: str) -> Names:
        """The settings of a plugin that are passwords; None: the worker does not list them."""

        async def asked() -> Names:
            if not plugin:
                return None
            defined = await self._ask("GET", f"/connector-plugins/{quote(plugin, safe='')}/config")
            with self._shaped():
                return frozenset(str(each["name"]) for each in defined if each["type"] == "PASSWORD")

        return await self._perhaps(lambda: self.shared.get(("secrets", plugin), asked, _PLUGINS_S))

    async def plugins(self) -> list[str]:
        """The classes of connectors that the workers can run. Raises WorkerProblem."""

        async def asked() -> list[str]:
            found = await self._ask("GET", "/connector-plugins")
            with self._shaped():
                return sorted(str(each["class"]) for each in found if each.get("type") in ("source", "sink"))

        return await self.shared.get("plugins", asked, _PLUGINS_S)

    async def validated(self, config: Mapping[str, str]) -> Infos:
        """The worker's verdict on a configuration, setting by setting. Raises WorkerProblem."""
        plugin = config.get("connector.class", "")
        if not plugin:
            raise WorkerProblem("connector.class is missing: it names the connector.")
        path = f"/connector-plugins/{quote(plugin, safe='')}/config/validate"
        answer = await self._ask("PUT", path, dict(config), VALIDATION_S)
        with self._shaped():
            return validated(answer, config)

    # -- orders ------------------------------------------------------------------------------------------------------

    async def restart(self, name: str, task: int | None = None) -> None:
        """Restart a task, or what has failed of a connector. Raises WorkerProblem."""
        if task is None:
            await self._of(name, "/restart?includeTasks=true&onlyFailed=true", "POST")
        else:
            await self._of(name, f"/tasks/{task}/restart", "POST")

    async def turn(self, name: str, order: str) -> None:
        """Pause, resume or stop a connector. Raises WorkerProblem."""
        await self._of(name, f"/{order}", "PUT")

    async def set_config(self, name: str, config: Mapping[str, str], *, only_new: bool = False) -> None:
        """Make a connector, or give it another configuration. Raises WorkerProblem."""
        if only_new:
            await self._ask("POST", "/connectors", {"name": name, "config": dict(config)}, VALIDATION_S)
        else:
            await self._of(name, "/config", "PUT", dict(config), VALIDATION_S)

    async def kept(self, name: str) -> Kept:
        """The configuration of a connector as it is, with its secrets, for `restored`. Raises WorkerProblem."""
        info = await self._of(name, "")
        with self._shaped():
            config = _config(info)
        return Kept(config, await self.secret_names(config.get("connector.class", "")))

    async def set_offsets(self, name: str, offsets: Sequence[Mapping[str, Any]] | None) -> None:
        """Give a stopped connector other offsets, None: forget them all. Raises WorkerProblem."""
        if offsets is None:
            await self._of(name, "/offsets", "DELETE")
        else:
            await self._of(name, "/offsets", "PATCH", {"offsets": list(offsets)})

    async def delete(self, name: str) -> None:
        """Delete a connector. Raises WorkerProblem."""
        await self._of(name, "", "DELETE")

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _of(self, name: str, rest: str, method: str = "GET", body: Any = None, within_s: float = ANSWER_S) -> Any:
        return await self._ask(method, f"/connectors/{quote(name, safe='')}{rest}", body, within_s)

    async def _ask(self, method: str, path: str, body: Any = None, within_s: float = ANSWER_S) -> Any:
        question = functools.partial(
            ask, self.url, method, path, body, within_s=within_s, access=self._access, most_bytes=LARGEST_ANSWER_BYTES
        )
        if self._asked >= MOST_QUESTIONS:
            raise WorkerProblem(f"{self.url} has {self._asked} questions to answer already.")
        self._asked += 1
        asked = in_thread(f"console asks {self.url}", question)
        loop = asyncio.get_running_loop()
        asked.add_done_callback(lambda _: loop.call_soon_threadsafe(self._answered))
        try:
            async with asyncio.timeout(within_s + 2):
                return await asyncio.wrap_future(asked)
        except RestError as refused:
            raise WorkerProblem(self._refusal(refused), refused.status) from None
        except TimeoutError:
            raise WorkerProblem(f"No worker at {self.url} answers within {within_s:.0f} s.") from None
        except (OSError, ValueError) as failure:
            raise WorkerProblem(f"No worker answers at {self.url}: {_reason(failure)}.") from None

    def _answered(self) -> None:
        self._asked -= 1

    @contextlib.contextmanager
    def _shaped(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, AttributeError, ValueError):
            raise WorkerProblem(f"{self.url} does not answer as Kafka Connect's REST API does.") from None

    def _refusal(self, refused: RestError) -> str:
        if refused.status == _NO_LOGIN:
            return f"{self.url} refuses the console's login: see --connect-user and --connect-token-file."
        return str(masked({"": refused.message}, ())[0][""])

    async def _perhaps(self, question: Callable[[], Awaitable[T]]) -> T | None:
        """None where older workers have no such resource, or do not answer to it."""
        try:
            return await question()
        except WorkerProblem:
            return None


def _offset(each: Mapping[str, Any]) -> Offset:
    return Offset(*(json.dumps(each[part], ensure_ascii=False) for part in ("partition", "offset")))


def _config(info: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in info["config"].items() if value is not None}


def _reason(failure: Exception) -> str:
    cause = getattr(failure, "reason", failure)
    if isinstance(cause, ssl.SSLError):
        return f"TLS fails ({cause.reason or cause}); see --connect-cacert"
    return (getattr(cause, "strerror", None) or str(cause)).lower()
