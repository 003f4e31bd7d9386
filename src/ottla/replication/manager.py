"""The partitions of this broker: created and dropped as the metadata says, appended to, flushed, kept.

The manager owns the lifecycle of every `Partition`, one flusher per log directory, and the periodic work (checkpoints,
retention, expiry of producers).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.clock import Clock
from ottla.errors import ErrorCode, KafkaStorageError, NotLeader, UnknownTopicOrPartition
from ottla.ids import LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.replication.delayed import DelayedFetch, FutureCommit
from ottla.replication.group_commit import GroupCommit
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage, TopicImage
    from ottla.config.broker import BrokerConfig
    from ottla.log.directory import LogDirectories
    from ottla.log.partition_log import AppendInfo, PartitionLog

log = logging.getLogger(__name__)

LeadershipListener = Callable[[PartitionId, LeaderEpoch | None], None]
