"""The broker of `ottla serve`, inside this process: own thread, free port, temporary or given directory."""

import asyncio
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from ottla.broker import Broker as Engine
from ottla.broker_process import new_event_loop
from ottla.clock import Clock, SystemClock
from ottla.platform import Platform
from ottla.testing.loop_watch import LoopBlocked, watched
from ottla.testing.protection import ADMIN, Protection, Tls

START_S: Final = 30.0
STOP_S: Final = 30.0

TEST_SETTINGS: Final[Mapping[str, str]] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}
"""Settings that differ from `ottla serve` unless `config` names them: a free port, and groups that settle at once."""


class Broker:
    """One broker, for `with` and `async with`, or started and stopped by hand; it can be started again.

    directory: where its files are. None: a temporary directory, removed when the broker stops.
    config: settings by Kafka's names, over `TEST_SETTINGS`.
    allow_insecure: serve although settings ask for protection that Ottla does not have, and let clients send what only
        brokers send, as `ottla serve --allow-insecure`.
    tls: encrypt, with certificates made on the fly; "required": ask clients for certificates, too. Needs the extra
        `security`.
    users: names and passwords, for PLAIN and SCRAM; the user `admin` is always there.
    acls: for each user what it may do, such as `read topic orders`, `write topic sales-*`, `read group readers`. Given,
        everything else is refused to all but `admin`. `client_config` has the settings of each user's clients.
    clock: the clock the broker uses.
    loop_limit_seconds: `stop` raises `LoopBlocked` if the broker's event loop was held up for longer while it served.
        None: the value of `Broker.loop_limit_seconds`, which is None (no check) unless the pytest option
        `ottla_loop_limit_ms` sets it.

    Raises the error that `ottla serve` reports for a bad setting or an unusable directory.
    """

    loop_limit_seconds: ClassVar[float | None] = None
    """For brokers that are not given a limit of their own."""

    def __init__(
        self,
        *,
        directory: str | Path | None = None,
        config: Mapping[str, str] | None = None,
        allow_insecure: bool = False,
        tls: Tls = False,
        users: Mapping[str, str] | None = None,
        acls: Mapping[str, Sequence[str]] | None = None,
        clock: Clock | None = None,
        loop_limit_seconds: float | None = None,
    ) -> None:
        self._loop_limit_seconds = self.loop_limit_seconds if loop_limit_seconds is None else loop_limit_seconds
        self._given_directory = None if directory is None else Path(directory)
        self._protection = Protection(tls, users, acls)
        self._config = {**TEST_SETTINGS, **(config or {})}
        self._allow_insecure = allow_insecure
        self._clock = clock or SystemClock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._directory: Path | None = None
        self._port = 0

    @property
    def bootstrap(self) -> str:
        """`host:port`, for a client's `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """The port of the first listener; stays the same when the broker is started again."""
        if not self._port:
            raise RuntimeError("the broker has not been started")
        return self._port

    def client_config(self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Settings for a client of confluent-kafka that connects as a user; `user` None for a broker without users.

        Raises ValueError for a user that there is not.
        """
        return {"bootstrap.servers": self.bootstrap, **self._protection.client_config(user, mechanism)}

    @property
    def directory(self) -> Path:
        """Where the broker keeps its files."""
        if self._directory is None:
            raise RuntimeError("the broker has not been started")
        return self._directory

    def start(self) -> Self:
        """Start and return once clients are answered."""
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        self._directory = self._given_directory or Path(tempfile.mkdtemp(prefix="ottla-"))
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="ottla broker", daemon=True)
        self._thread.start()
        if not ready.wait(START_S):
            raise TimeoutError(f"the broker was not ready within {START_S:.0f} s")
        failure = self._take_failure()
        if failure is not None:
            self._thread.join()
            self._thread = None
            self._remove_temporary_directory()
            raise failure
        try:
            self._add_rules()
        except BaseException:
            self.stop()
            raise
        return self

    def _add_rules(self) -> None:
        if self._protection.rules:
            from ottla.admin import Admin

            with Admin(self.bootstrap, properties=self.client_config(ADMIN)) as admin:
                admin.create_acls(self._protection.rules)

    def stop(self) -> None:
        """Stop cleanly, wait for it, and remove a temporary directory. Does nothing when not running."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        assert self._stopping is not None
        if thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(STOP_S)
        if thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {STOP_S:.0f} s")
        self._loop = self._stopping = None
        self._remove_temporary_directory()
        failure = self._take_failure()
        if failure is not None:
            raise failure

    def _take_failure(self) -> BaseException | None:
        failure, self._failure = self._failure, None
        return failure

    def _remove_temporary_directory(self) -> None:
        if self._given_directory is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
            self._port = 0

    def _run(self, ready: threading.Event) -> None:
        try:
            loop = new_event_loop()
            try:
                loop.run_until_complete(self._serve(ready))
            finally:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
                loop.close()
        except BaseException as failure:
            self._failure = failure
        finally:
            ready.set()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        settings = {**self._config, "log.dirs": self._config.get("log.dirs", str(self._directory))}
        if self._protection.is_on:
            settings = {**self._protection.settings(), **settings}
            if settings["listeners"] == TEST_SETTINGS["listeners"]:
                settings["listeners"] = f"{self._protection.protocol}://127.0.0.1:0"
        if self._port:
            settings["listeners"] = re.sub(r":0(?=,|$)", f":{self._port}", settings["listeners"], count=1)
        engine = Engine.configured(
            None, settings, allow_insecure=self._allow_insecure, platform=Platform(clock=self._clock)
        )
        async with engine:
            self._port = engine.port
            ready.set()
            with watched(self._loop, self._loop_limit_seconds):
                await self._stopping.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
            return
        try:
            self.stop()
        except LoopBlocked as blocked:  # the test's own failure comes first
            error.add_note(str(blocked))

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)
