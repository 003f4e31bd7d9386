"""Controllers of a cluster on this machine: its first brokers are its controllers, too, so it needs nothing else.

ottla-cluster/node-1 node-2 node-3    brokers that are controllers; which ones they are stays as it was at first
ottla-cluster/broker-4 ...            brokers
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ottla.cli.terminal.exits import CommandFailed
from ottla.clock import SystemClock
from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig
from ottla.log.fs import RealFileSystem
from ottla.metadata.quorum import formatting

MOST: Final = 3
"""Controllers of a cluster that begins with so many brokers; a smaller one has one."""
LISTENER: Final = "CONTROLLER"
_NODE: Final = "node-"


def voters_of(directory: Path, brokers: int) -> list[int]:
    """The ids of the controllers of the cluster in `directory`, or of a new one. Raises `CommandFailed`."""
    begun = sorted(int(found.name.removeprefix(_NODE)) for found in directory.glob(f"{_NODE}[0-9]"))
    if begun and begun[-1] > brokers:
        raise CommandFailed(f"the cluster in {directory} began with {len(begun)} controllers: --brokers {begun[-1]}")
    return begun or list(range(1, (MOST if brokers >= MOST else 1) + 1))


def directory_of(directory: Path, number: int, ports: Mapping[int, int]) -> Path:
    """Where a node keeps its data and its log."""
    return directory / (f"{_NODE}{number}" if number in ports else f"broker-{number}")


def quorum_settings(number: int, host: str, ports: Mapping[int, int]) -> dict[str, str]:
    """Settings of a node; `ports` are those of the controllers, by id. Listeners are left to the caller."""
    return {
        "process.roles": "broker,controller" if number in ports else "broker",
        "controller.listener.names": LISTENER,
        "controller.quorum.voters": ",".join(f"{voter}@{host}:{port}" for voter, port in ports.items()),
    }


def format_new(nodes: Iterable[Mapping[str, str]]) -> None:
    """Format the directories of the nodes with these settings that are not formatted yet, for one cluster.

    Raises `CommandFailed`.
    """
    try:
        configs = [BrokerConfig(settings) for settings in nodes]
        formatting.format_missing(RealFileSystem(), SystemClock(), configs)
    except (InvalidConfig, OSError) as problem:
        raise CommandFailed(f"the directories of the cluster cannot be formatted: {problem}") from problem
