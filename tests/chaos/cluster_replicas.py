"""Whether replicas hold the same, byte by byte. Read from the disk when no broker runs."""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_HEAD: Final = struct.Struct(">qii")
"""Base offset, length of what follows it, leader epoch: how every batch begins."""
_BEFORE_LENGTH: Final = 12
METADATA_LOG: Final = "__cluster_metadata-0"


def batches(partition: Path) -> Iterator[tuple[int, bytes]]:
    """Base offset and bytes of every whole batch in a partition's directory, in order."""
    for segment in sorted(partition.glob("*.log")):
        content = segment.read_bytes()
        position = 0
        while position + _HEAD.size <= len(content):
            offset, length, _ = _HEAD.unpack_from(content, position)
            end = position + _BEFORE_LENGTH + length
            if end > len(content):
                break
            yield offset, content[position:end]
            position = end


def differences(replicas: Mapping[int, Path], *, same_end: bool) -> list[str]:
    """What is not the same in the log directories of these brokers, for each partition the first thing only.

    With `same_end`, none may lack what another has at its end: for replicas that were all in sync when nobody wrote any
    more. Internal topics are left out: each replica compacts them by itself.
    """
    found = []
    names = {path.name for log_dir in replicas.values() for path in log_dir.iterdir() if path.is_dir()}
    for name in sorted(name for name in names if "-" in name and not name.startswith("__") and "." not in name):
        logs = {
            broker: dict(batches(log_dir / name))
            for broker, log_dir in replicas.items()
            if same_end or (log_dir / name).is_dir()
        }
        (first, reference), *others = logs.items()
        for broker, log in others:
            if problem := _difference(reference, log, same_end=same_end):
                found.append(f"{name} is not the same on brokers {first} and {broker}: {problem}")
                break
    return found


def metadata_differences(replicas: Mapping[int, Path], committed: int) -> list[str]:
    """What is not the same below the offset `committed` in the metadata logs that are there, as far as each goes back.

    What is not committed may differ until the next leader has it replaced; old records go with the snapshots.
    """
    logs = {
        node: {offset: batch for offset, batch in batches(path / METADATA_LOG) if offset < committed}
        for node, path in replicas.items()
    }
    begin = max(min(log, default=committed) for log in logs.values())
    (first, reference), *others = (
        (node, {offset: batch for offset, batch in log.items() if offset >= begin}) for node, log in logs.items()
    )
    return [
        f"the metadata log is not the same on nodes {first} and {node}: {problem}"
        for node, log in others
        if (problem := _difference(reference, log, same_end=True))
    ]


def _difference(one: Mapping[int, bytes], other: Mapping[int, bytes], *, same_end: bool) -> str | None:
    end = min(max(one, default=-1), max(other, default=-1))
    for offset in sorted(one.keys() | other.keys()):
        if offset > end and not same_end:
            return None
        left, right = one.get(offset), other.get(offset)
        if left != right:
            return f"at offset {offset} {_said(left)} and {_said(right)}"
    return None


def _said(batch: bytes | None) -> str:
    if batch is None:
        return "no batch begins"
    _, length, epoch = _HEAD.unpack_from(batch)
    return f"a batch of {_BEFORE_LENGTH + length} bytes of epoch {epoch}"
