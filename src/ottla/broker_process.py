"""Runs one broker as a process: its event loop, memory, open files and signals, until it is stopped or cannot go on."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from ottla.broker import Broker
from ottla.collector import collect_quickly, end_quickly, look_seldom
from ottla.errors import OttlaError, sentence

log = logging.getLogger("ottla")

FAILED: Final = 1
KEPT_BYTES: Final = 24 << 20
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
SWITCH_INTERVAL_S: Final = 0.0005
"""How long the loop may keep the interpreter from a flusher whose disk has answered (Python's default is 5 ms)."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, or asyncio's own where uvloop is not to be had."""
    try:
        import uvloop
    except ImportError:
        return asyncio.SelectorEventLoop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def keep_freed_memory() -> None:
    """Have glibc keep some megabytes of what is freed, instead of giving it back and faulting it in again.

    Every fetch that cannot be sent from the file takes a fresh buffer of up to a megabyte for each partition.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in ((M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, KEPT_BYTES), (M_ARENA_MAX, 1)):
            mallopt(option, value)


def allow_many_descriptors() -> int | None:
    """Raise the soft limit of open files to the hard one: each active segment and each client is one.

    Returns the limit that holds then, None where it is unknown.
    """
    try:
        import resource
    except ImportError:  # not on this system
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
            return soft
    return None if hard == resource.RLIM_INFINITY else hard


def main(
    properties_file: Path | None,
    overrides: Mapping[str, str],
    *,
    strict: bool = False,
    allow_insecure: bool = False,
    ready: Callable[[Broker], Callable[[], None]] | None = None,
) -> int:
    """Run one broker until SIGTERM, SIGINT or SIGHUP; returns the exit code. Logging is set up by the caller.

    The arguments are those of `load`; `ready` is called once the broker serves, and what it returns before it stops.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    descriptors = allow_many_descriptors()
    keep_freed_memory()
    look_seldom()
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_serve(properties_file, overrides, strict, allow_insecure, descriptors, ready))
    finally:
        loop.close()
        end_quickly()


async def _serve(
    properties_file: Path | None,
    overrides: Mapping[str, str],
    strict: bool,
    allow_insecure: bool,
    descriptors: int | None,
    ready: Callable[[Broker], Callable[[], None]] | None,
) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as it is under nohup
        loop.add_signal_handler(signal.SIGHUP, stopping.set)
    try:
        broker = Broker.configured(properties_file, overrides, strict=strict, allow_insecure=allow_insecure)
        broker.on_failure = stopping.set
        broker.descriptors = descriptors
        if not await _has_started(broker, stopping):
            log.info("stopped before it was ready")
            return 0
        async with AsyncExitStack() as stack:
            stack.push_async_exit(broker)
            collect_quickly()
            log.info("ready: node %d at %s", broker.config.node_id, ", ".join(broker.addresses()))
            if broker.metrics_ports:
                log.info("metrics and health are at %s", ", ".join(broker.config.metrics_listeners))
            if ready is not None:
                stack.callback(ready(broker))
            await stopping.wait()
            log.info("stopping")
        if broker.failure is not None:
            log.error("the broker failed: %s", broker.failure)
            return FAILED
    except (OttlaError, OSError) as error:
        log.error("the broker cannot start or go on: %s", sentence(error))
        return FAILED
    log.info("stopped")
    return 0


async def _has_started(broker: Broker, stopping: asyncio.Event) -> bool:
    """Whether the broker serves; False if it was stopped while it recovered logs or waited for ZooKeeper."""
    starting = asyncio.create_task(broker.__aenter__())
    waiting = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if not starting.done():
        log.info("stopping before it is ready")
        broker.abandon_start()
        starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        return False
    return True
