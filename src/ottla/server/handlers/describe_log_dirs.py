"""DescribeLogDirs (v1-v5): what lies in each log directory, and the room on its volume (KIP-827)."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    import asyncio

    from ottla.config.broker import BrokerConfig
    from ottla.replication.alter_log_dirs import AlterLogDirs
    from ottla.replication.manager import ReplicaManager

UNKNOWN_SIZE: Final = -1


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that this handler uses."""

    config: "BrokerConfig"
    loop: "asyncio.AbstractEventLoop"
    replicas: "ReplicaManager"
    alter_log_dirs: "AlterLogDirs"


async def handle(parts: Parts, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Null asks for all partitions. A directory that has failed is answered with KAFKA_STORAGE_ERROR."""
    wanted = (
        None
        if request.topics is None
        else {(topic.topic, number) for topic in request.topics for number in topic.partitions}
    )
    held: dict[Path, dict[str, list[DescribeLogDirsPartition]]] = {}
    for partition in parts.replicas.partitions():
        name, number = partition.topic_partition
        if wanted is None or (name, number) in wanted:
            topics = held.setdefault(Path(partition.log.directory).parent.absolute(), {})
            topics.setdefault(name, []).append(
                DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=partition.log.size_bytes,
                    offset_lag=0,
                    is_future_key=False,
                )
            )
    for (name, number), future in parts.alter_log_dirs.futures().items():
        if wanted is None or (name, number) in wanted:
            topics = held.setdefault(future.directory.path.absolute(), {})
            topics.setdefault(name, []).append(
                DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=future.size_bytes,
                    offset_lag=future.lag,
                    is_future_key=True,
                )
            )
    directories = [path.absolute() for path in parts.config.log_dirs]
    online = {directory.path.absolute() for directory in parts.replicas.directories.online}
    sizes = await parts.loop.run_in_executor(
        None, lambda: [_volume(path) if path in online else None for path in directories]
    )
    cordoned = {path.absolute() for path in parts.replicas.directories.cordoned}
    results: list[DescribeLogDirsResult] = []
    for path, size in zip(directories, sizes, strict=True):
        result = DescribeLogDirsResult(log_dir=str(path), topics=[], is_cordoned=path in cordoned)
        if size is None:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            result.total_bytes, result.usable_bytes = size
            result.topics = [
                DescribeLogDirsTopic(name=name, partitions=partitions)
                for name, partitions in held.get(path, {}).items()
            ]
        results.append(result)
    return DescribeLogDirsResponse(results=results)


def _volume(path: Path) -> tuple[int, int] | None:
    """Size of the volume and its free space for this user, in bytes; None if unknown."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
