"""Which broker epoch a log directory was last used in, where nothing was lost since (KIP-966).

    .kafka_cleanshutdown   {"version":0,"brokerEpoch":7}     Kafka's own: the process has synced everything, and ended
    ottla.boot             {"boot":"0f5c...","brokerEpoch":7}   if the machine still runs: the process may have been
                                                             killed, but the kernel has all that it wrote

The second one is not synced: after a power failure it is void anyway. A broker that registers with this epoch keeps its
place among the eligible replicas; one that may have lost something does not.
"""

import json
from typing import Final

from ottla.log.fs import FileSystem

BOOT: Final = "ottla.boot"
UNKNOWN_EPOCH: Final = -1


def clean_marker(epoch: int) -> bytes:
    """The content of Kafka's file after a clean shutdown."""
    return json.dumps({"version": 0, "brokerEpoch": epoch}, separators=(",", ":")).encode()


def clean_epoch(fs: FileSystem, path: str) -> int:
    """The epoch of the process that shut down cleanly. Raises OSError."""
    return _epoch(_read(fs, path))  # earlier Kafkas and Ottlas leave the file empty


def note(fs: FileSystem, path: str, epoch: int) -> None:
    """A broker works in this epoch from now on. Raises OSError."""
    data = json.dumps({"boot": fs.boot_id(), "brokerEpoch": epoch}, separators=(",", ":"))
    fs.write_bytes(path, data.encode(), sync=False)


def killed_epoch(fs: FileSystem, path: str) -> int:
    """The epoch of the last process, if the machine has not started anew since. Raises OSError."""
    if not fs.exists(path):
        return UNKNOWN_EPOCH
    found = _read(fs, path)
    boot = fs.boot_id()
    return _epoch(found) if boot and found.get("boot") == boot else UNKNOWN_EPOCH


def _read(fs: FileSystem, path: str) -> dict[str, object]:
    try:
        found = json.loads(fs.read_bytes(path))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _epoch(found: dict[str, object]) -> int:
    epoch = found.get("brokerEpoch")
    return epoch if isinstance(epoch, int) else UNKNOWN_EPOCH
