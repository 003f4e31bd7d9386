"""Runs the brokers of a machine as one unit: started together, started again one by one, stopped together, one log.

The unit's addresses are sockets of this process, at which every broker that serves accepts: what one of them does not
take, because it restarts or hangs, the next one does, and connections wait while none serves.

A process that ends after it has served is started again, after a pause that doubles while it does not last. One that
ends before it has ever served ends the unit, since its settings or its data need attention.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final, TextIO

from ottla.cli.cores import plan
from ottla.cli.cores.child import READY, Given
from ottla.cli.terminal.exits import FAILED, OK
from ottla.clock import SystemClock
from ottla.config.broker import BrokerConfig
from ottla.config.loading import given_settings
from ottla.errors import InvalidConfig, sentence
from ottla.log import meta_properties
from ottla.log.fs import RealFileSystem
from ottla.metadata.quorum import formatting
from ottla.server.listener import BACKLOG, open_sockets
from ottla.tasks import supervised

log = logging.getLogger(__name__)
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 60.0
_STEADY_S: Final = 60.0
"""A process that has served for so long is started again without a longer pause."""
_STOPPED: Final = (OK, -signal.SIGTERM)
"""How a process ends that was asked to: by itself, or, before it could listen to signals, by the system's hand."""
_LINE_BYTES: Final = 1 << 20
Shared = Mapping[str, Sequence[socket.socket]]
"""Listening sockets of a unit, by the listener's name."""


class Supervisor:
    """The processes of a unit; runs on one event loop."""

    def __init__(
        self,
        unit: plan.Unit,
        shared: Shared = MappingProxyType({}),
        *,
        log_level: str,
        log_format: str,
        flags: Sequence[str],
        out: TextIO,
    ) -> None:
        """`shared` are the sockets at the unit's addresses, which it closes."""

        def process(what: str, settings: Mapping[str, str], shared: Shared) -> "_Process":
            return _Process(f"{what} {settings['node.id']}", settings, shared, log_level, log_format, flags, out)

        self._brokers = [process("broker", settings, shared) for settings in unit.brokers]
        self._controllers = [] if unit.controller is None else [process("controller", unit.controller, {})]
        self._shared = shared
        self._rack = unit.brokers[0]["broker.rack"]
        self._addresses = unit.shared
        self._is_stopping = False
        self._failed = False

    async def run(self) -> int:
        """Run until a signal, or until a process does not start; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as it is under nohup
            loop.add_signal_handler(signal.SIGHUP, self._stop)
        reporting = supervised(loop, self._report(), "report that the unit serves")
        keeping = asyncio.gather(*(self._keep(process) for process in self._controllers))
        await asyncio.gather(*(self._keep(process) for process in self._brokers))
        for process in self._controllers:  # brokers hand over their partitions by it
            process.stop(signal.SIGTERM)
        await keeping
        reporting.cancel()
        log.info("all processes have stopped")
        return FAILED if self._failed else OK

    def _stop(self) -> None:
        """The first signal asks the brokers to stop, and then the controller; another one kills all."""
        again, self._is_stopping = self._is_stopping, True
        for sock in chain.from_iterable(self._shared.values()):
            sock.close()
        for process in [*self._controllers, *self._brokers] if again else self._brokers:
            process.stop(signal.SIGKILL if again else signal.SIGTERM)

    async def _report(self) -> None:
        processes = [*self._controllers, *self._brokers]
        for process in processes:
            await process.serves.wait()
        names = ", ".join(process.name for process in processes)
        log.info("ready: rack %s with %s", self._rack, names)
        for address in self._addresses:
            log.info("clients begin at %s: any broker that serves answers there", address)

    async def _keep(self, process: "_Process") -> None:
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        while not process.stop_wanted.is_set():
            began = loop.time()
            try:
                code = await process.run()
            except OSError as problem:
                log.error("%s cannot be started: %s", process.name, problem)
                code = FAILED
            if process.stop_wanted.is_set():
                self._failed |= code not in _STOPPED
                return
            if not process.serves.is_set():
                log.error("%s ended with code %d before it served: all stop", process.name, code)
                self._failed = True
                self._stop()
                return
            pause_s = FIRST_PAUSE_S if loop.time() - began > _STEADY_S else min(2 * pause_s, LONGEST_PAUSE_S)
            log.error("%s ended with code %d; it is started again in %.0f s", process.name, code, pause_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await process.stop_wanted.wait()


class _Process:
    """One of them, start after start."""

    def __init__(
        self,
        name: str,
        settings: Mapping[str, str],
        shared: Shared,
        log_level: str,
        log_format: str,
        flags: Sequence[str],
        out: TextIO,
    ) -> None:
        self.name = name
        self.serves = asyncio.Event()
        """Set once it has served for the first time."""
        self.stop_wanted = asyncio.Event()
        """Set once it is to stop, and not to be started again."""
        numbers = {name: [sock.fileno() for sock in sockets] for name, sockets in shared.items()}
        given: Given = {"settings": dict(settings), "shared": numbers}
        self._given = json.dumps(given).encode()
        self._shared = list(chain.from_iterable(numbers.values()))
        self._log_level, self._log_format, self._flags, self._out = log_level, log_format, flags, out
        self._process: asyncio.subprocess.Process | None = None

    def stop(self, number: int) -> None:
        """Have it stop by a signal, and not be started again."""
        self.stop_wanted.set()
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def run(self) -> int:
        """Start it, and wait for its end; the exit code, minus the signal if one ended it."""
        loop = asyncio.get_running_loop()
        ours, theirs = os.pipe()
        own = [str(theirs), str(os.getpid()), self._log_level, self._log_format, *self._flags]
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "ottla.cli.cores.child", *own),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(theirs, *self._shared),
                start_new_session=True,  # Ctrl-C on the terminal is handled by the supervisor
                limit=_LINE_BYTES,
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        if self.stop_wanted.is_set():  # since it was asked for
            process.terminate()
        loop.add_reader(ours, self._read_ready, ours)
        try:
            assert process.stdin is not None
            process.stdin.write(self._given)
            process.stdin.close()
            await self._copy(process.stdout)
            return await process.wait()
        finally:
            loop.remove_reader(ours)
            os.close(ours)

    def _read_ready(self, descriptor: int) -> None:
        if os.read(descriptor, 1) == READY:
            self.serves.set()
        asyncio.get_running_loop().remove_reader(descriptor)

    async def _copy(self, lines: asyncio.StreamReader | None) -> None:
        """Its log, line by line, as part of the unit's."""
        assert lines is not None
        while True:
            try:
                line = await lines.readline()
            except ValueError:  # longer than any line of ours: passed over
                continue
            if not line:
                return
            with suppress(OSError):  # a full disk under the log is no reason to stop serving
                self._out.write(self._labelled(line.decode(errors="replace")))
                self._out.flush()

    def _labelled(self, line: str) -> str:
        if self._log_format == "json" and line.startswith("{"):
            return f'{{"process": {json.dumps(self.name)}, {line[1:]}'
        return f"{self.name}: {line}"


def serve_cores(
    properties_file: Path | None,
    overrides: Mapping[str, str],
    cores: int,
    *,
    log_level: str,
    log_format: str,
    flags: Sequence[str],
) -> int:
    """Run a unit until a signal; returns the exit code. Logging is set up by the caller."""
    with ExitStack() as stack:
        try:
            given = given_settings(properties_file, overrides)
            unit = plan.plan(given, cores, socket.gethostname())
            _check_directories(unit)
            _format(unit)
            shared = _open_shared(unit.shared, stack)
        except (InvalidConfig, OSError) as problem:
            log.error("the brokers cannot start: %s", sentence(problem))
            return FAILED
        supervisor = Supervisor(unit, shared, log_level=log_level, log_format=log_format, flags=flags, out=sys.stderr)
        return asyncio.run(supervisor.run())


def _open_shared(addresses: Sequence[plan.SharedAddress], stack: ExitStack) -> Shared:
    """Listen at the unit's addresses; `stack` closes them. OSError names the one that cannot be had."""
    opened: dict[str, list[socket.socket]] = {}
    for name, host, port in addresses:
        try:
            opened[name] = [stack.enter_context(sock) for sock in open_sockets(host, port)]
        except OSError as problem:
            raise OSError(problem.errno, f"listener {name} {problem.strerror}") from problem
        for sock in opened[name]:
            sock.listen(BACKLOG)
    return opened


def _check_directories(unit: plan.Unit) -> None:
    """Name the directories with data that no process of the unit serves. Raises InvalidConfig, OSError."""
    own = {path for broker in unit.brokers for path in broker["log.dirs"].split(",")}
    for above in sorted({os.path.dirname(path) for path in own}):
        if os.path.exists(os.path.join(above, meta_properties.META_PROPERTIES)):
            way = "run it without --cores" if unit.is_whole_cluster else f"move it to {above}/core-0"
            raise InvalidConfig(
                f"log.dirs: {above} holds the data of a broker that ran alone, and no process of the unit would serve "
                f"it: {way}, or name another directory"
            )
        for found in sorted(Path(above).glob(f"core-*/{meta_properties.META_PROPERTIES}")):
            if str(found.parent) not in own:
                log.warning(
                    "%s has the data of a broker that is not started with --cores %d: its replicas are missing until "
                    "it is",
                    found.parent,
                    len(unit.brokers),
                )


def _format(unit: plan.Unit) -> None:
    """Format the controller's directory for a new cluster, if it is alone and that has not been done.

    Raises InvalidConfig, OSError.
    """
    if unit.controller is None or not unit.is_whole_cluster:
        return
    config = BrokerConfig(unit.controller, allow_insecure=True)
    fs = RealFileSystem()
    if formatting.is_formatted(fs, config):
        return
    for path in (path for broker in unit.brokers for path in broker["log.dirs"].split(",")):
        cluster_id = meta_properties.read(fs, path).get("cluster.id")
        if cluster_id:
            raise InvalidConfig(
                f"{config.log_dirs[0]} holds no metadata, and {path} belongs to the cluster {cluster_id}, whose topics "
                "only its controller knows: put the controller's directory back, or move the brokers' directories away "
                "for a new cluster"
            )
    is_dynamic = not unit.controller.get("controller.quorum.voters", "").strip()
    for formatted in formatting.format_missing(fs, SystemClock(), [config], standalone=is_dynamic):
        log.info("formatted %s for the new cluster %s", formatted.directories[0].path, formatted.cluster_id)
