"""A small disk of a broker's own, which can be filled: a file system in memory. Needs root.

The source of each mount carries the id of the process that made it, so that the next run finds what one that was killed
has left behind.
"""

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

_OWN: Final = re.compile(r"^ottla-chaos-(\d+) (\S+) tmpfs ", re.MULTILINE)
_PIECE: Final = bytes(4096)


class SmallDisk:
    """Mounted by `mount` on a directory, gone after `unmount`; what was on it is then in the directory itself."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self.directory = directory
        self._size_bytes = size_bytes

    @property
    def _ballast(self) -> Path:
        return self.directory / "ballast"

    def mount(self) -> None:
        """Make it: empty. Raises CalledProcessError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        _run(
            "mount", "-t", "tmpfs", "-o", f"size={self._size_bytes}", f"ottla-chaos-{os.getpid()}", str(self.directory)
        )

    def fill(self) -> None:
        """Leave no byte free."""
        with self._ballast.open("wb", buffering=0) as file:
            try:
                room = os.statvfs(self.directory)
                os.posix_fallocate(file.fileno(), 0, max(1, room.f_bavail * room.f_frsize))
                file.seek(0, os.SEEK_END)
                while True:
                    file.write(_PIECE)
            except OSError as full:
                if full.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Keep the files for readers of the history, and free the memory."""
        if not os.path.ismount(self.directory):
            return
        self.free()
        kept = self.directory.with_name(f"{self.directory.name}.kept")
        shutil.copytree(self.directory, kept, symlinks=True, dirs_exist_ok=True)
        _run("umount", "--lazy", str(self.directory))
        self.directory.rmdir()
        kept.rename(self.directory)


def remove_leftover_disks() -> list[str]:
    """Unmount what processes that are gone have left; returns where that was."""
    left = [
        where
        for owner, where in _OWN.findall(Path("/proc/self/mounts").read_text())
        if not Path(f"/proc/{owner}").exists()
    ]
    for where in left:
        _run("umount", "--lazy", where)
    return left


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)
