"""What a broker finds on its machine: its settings, log directories, limits, and the way to its port."""

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.cli.doctor.remarks import Remark, fine, warning, wrong
from ottla.config.broker import BrokerConfig
from ottla.config.loading import load
from ottla.errors import InvalidConfig, sentence
from ottla.local_names import is_loopback

LEAST_FREE: Final = 0.1
LEAST_FILES: Final = 10_000
EVERYWHERE: Final = ("", "0.0.0.0", "::")


def check_server(properties_file: Path) -> Iterator[Remark]:
    """Look at what `ottla serve` would do with this properties file, on this machine."""
    try:
        config, warnings = load(properties_file, {})
    except InvalidConfig as problem:
        yield wrong("settings", str(problem), f"correct it in {properties_file}")
        return
    for text in warnings:
        yield warning("settings", text, f"remove it from {properties_file}, or correct its name")
    if not warnings:
        yield fine("settings", f"{properties_file} has nothing that is unknown or without effect")
    yield from _check_listeners(config)
    for path in config.log_dirs:
        yield from _check_directory(Path(path))
    yield from _check_limits()


def _check_listeners(config: BrokerConfig) -> Iterator[Remark]:
    advertised = {each.name: each for each in config.advertised_listeners}
    for listener in config.listeners:
        subject = f"listener {listener.name}"
        shown = advertised.get(listener.name, listener)
        if shown.host in EVERYWHERE and config.zookeeper_connect is None:
            yield warning(
                subject,
                "clients get the address that they dialled",
                f"name one that all of them reach: advertised.listeners={listener.name}://HOST:{listener.port}",
            )
        is_open = not is_loopback(listener.host)
        if is_open and listener.security_protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
            yield warning(subject, "does not encrypt, and can be reached from elsewhere", "use SSL or SASL_SSL")
        if is_open and listener.security_protocol == "PLAINTEXT":
            yield warning(
                subject, "lets every client do everything, unless an authorizer limits anonymous ones", "use SASL_SSL"
            )
        if not is_open:
            yield fine(subject, f"{listener.host}:{listener.port} is reached from this machine only")


def _check_directory(path: Path) -> Iterator[Remark]:
    subject = f"log directory {path}"
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield wrong(
            subject,
            f"{there} is no directory that this user can write",
            "correct log.dirs, or chown it to the user of the broker",
        )
        return
    try:
        room = shutil.disk_usage(there)
    except OSError as error:
        yield wrong(subject, sentence(error), "see whether the disk is mounted")
        return
    if room.free < LEAST_FREE * room.total:
        share = room.free / room.total
        yield warning(subject, f"only {share:.0%} of its filesystem is free", "make room, or shorten retention")
    elif str(there).startswith("/tmp"):
        yield warning(subject, "is in /tmp, which is emptied at a restart", "choose another place: log.dirs")
    else:
        yield fine(subject, f"{room.free / 1e9:,.1f} GB are free")


def _check_limits() -> Iterator[Remark]:
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files not in (-1, resource.RLIM_INFINITY) and files < LEAST_FILES:
        yield warning(
            "open files",
            f"a process may have {files:,} of them: each partition takes one, and each client",
            "raise LimitNOFILE of the service, or ulimit -n",
        )
    else:
        yield fine("open files", "the limit is high enough")
