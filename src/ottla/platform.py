"""What a broker uses of the machine it runs on, as one argument: the real one, or one of a simulation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ottla.client.sockets import Connect, Resolve, connect, resolve
from ottla.clock import Clock, SystemClock
from ottla.log.fs import FileSystem, RealFileSystem
from ottla.metadata.store.base import MetadataStore
from ottla.replication.group_commit import GroupCommit, NewFlusher
from ottla.server.listener import OpenSockets, open_sockets


@dataclass(frozen=True, slots=True)
class Platform:
    """The machine of `ottla serve`, unless an argument replaces a part."""

    clock: Clock = field(default_factory=SystemClock)
    fs: FileSystem = field(default_factory=RealFileSystem)
    open_sockets: OpenSockets = open_sockets
    connect: Connect = connect
    resolve: Resolve = resolve
    new_flusher: NewFlusher = GroupCommit
    open_store: Callable[[Path], MetadataStore] | None = None
    """Opens the store of the cluster's metadata, given the file of the embedded one; None: chosen by the settings."""
