"""The end of a log directory's logs: all of them on the disk, and closed."""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from ottla.errors import KafkaStorageError
from ottla.log.flush import FlushTicket
from ottla.log.fs import LACKING, FileSystem
from ottla.log.partition_log import PartitionLog

logger: Final = logging.getLogger(__name__)

_SYNC_TOGETHER_FROM: Final = 16
"""With more logs than this to be synced at a shutdown, the filesystem is asked once instead of file by file."""


def close_logs(logs: Collection[PartitionLog], fs: FileSystem, directory: str, note_loss: Callable[[], None]) -> bool:
    """Sync and release the logs of a directory; whether all of them are on the disk. `note_loss` is called where the
    disk may have lost something."""
    clean = True
    tickets: list[tuple[PartitionLog, FlushTicket]] = []
    for log in logs:
        try:
            ticket = log.prepare_close()
        except KafkaStorageError as problem:
            clean = False
            logger.error("%s; it will be recovered at the next start", problem)
        else:
            if ticket is not None:
                tickets.append((log, ticket))
    together = len(tickets) > _SYNC_TOGETHER_FROM and sync_together([ticket for _, ticket in tickets], fs, directory)
    for log, ticket in tickets:
        try:
            if not together:
                ticket.sync()
            log.flushed(ticket)
        except OSError as problem:
            clean = False
            if problem.errno not in LACKING:  # else the disk is full, not damaged: see `full_directories`
                note_loss()
            logger.error("cannot sync %s: %s; it will be recovered at the next start", log, problem)
    for log in logs:
        log.release()
    return clean


def sync_together(tickets: Sequence[FlushTicket], fs: FileSystem, directory: str) -> bool:
    """Whether one sync of the whole filesystem has brought them to the disk."""
    try:
        for ticket in tickets:
            ticket.write_checkpoints()
        return fs.sync_all(directory)
    except OSError as problem:
        logger.warning("cannot sync %s at once: %s; syncing file by file", directory, problem)
        return False
