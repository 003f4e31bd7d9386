"""Which processes of a broker have had a log directory, under a quorum of controllers.

    ottla.incarnations   7f0c9a...\\n1be44d...\\n   ids of processes, the newest last; synced before a process registers

The metadata log names the process that registered last. A directory that knows it is the one that process had, and no
old copy: what is missing in it was never synced there, since the process, or the machine, ended first. So the replica
has lost only what a power failure may take from any log.
"""

from typing import Final
from uuid import UUID

from ottla.log.fs import FileSystem, replace_atomically

INCARNATIONS: Final = "ottla.incarnations"
KEPT: Final = 8
"""Processes that have registered, or ended before they could."""


def read(fs: FileSystem, path: str) -> list[UUID]:
    """The processes so far; none of a file that is not there, or damaged. Raises OSError."""
    if not fs.exists(path):
        return []
    try:
        return [UUID(line) for line in fs.read_bytes(path).decode().split()]
    except ValueError:
        return []


def note(fs: FileSystem, path: str, known: list[UUID], incarnation: UUID) -> None:
    """Another process has it from now on. Raises OSError."""
    newest = [*known, incarnation][-KEPT:]
    replace_atomically(fs, path, "".join(f"{each.hex}\n" for each in newest).encode())
