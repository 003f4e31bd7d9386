"""A broker that was alone becomes the first node of a quorum, in place: its metadata file begins the metadata log.

    metadata.db           of a broker that is alone (`EmbeddedStore`)
    metadata.db.moving    read at each start, until the log has its content
    metadata.db.moved     the log has it; the file is not read any longer

The records are those of a new cluster, in one transaction: after a crash the log has all of it, or the file is read
again. The way back is the one from genuine Kafka: a broker that is alone takes the metadata log over (`adoption`).
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.errors import InvalidConfig
from ottla.metadata.quorum.formatting import holds_metadata, only_voter, write_voters
from ottla.metadata.quorum.metadata_log import DIRECTORY
from ottla.metadata.store.base import Node
from ottla.metadata.store.embedded import FILE_NAME, EmbeddedStore
from ottla.metadata.tree_records import records_of

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.log.fs import FileSystem

log = logging.getLogger(__name__)

MOVING: Final = f"{FILE_NAME}.moving"
MOVED: Final = f"{FILE_NAME}.moved"


class LoneMetadata(NamedTuple):
    """The metadata of a broker that was alone."""

    directory: Path
    records: list[bytes]
    """Framed, at the newest `metadata.version`."""

    def moved(self, fs: "FileSystem") -> None:
        """The log has it: read the file never again. Raises OSError."""
        fs.rename(str(self.directory / MOVING), str(self.directory / MOVED))
        fs.sync_directory(str(self.directory))
        log.info("the metadata of this broker, which was alone, is in the metadata log of the quorum now")


async def lone_metadata(
    directory: Path, directory_id: UUID, config: "BrokerConfig", fs: "FileSystem", *, now_ms: int
) -> LoneMetadata | None:
    """The metadata of the broker that was alone in a directory; None if there was none, or the log has it already.

    Its log begins with this node as the only voter: another one could be elected first, and begin the cluster anew.
    Raises `InvalidConfig` where the settings name voters, or the log is of something else; `StoreUnavailable`,
    `MalformedNode`, OSError.
    """
    own, moving = directory / FILE_NAME, directory / MOVING
    if fs.exists(str(own)):
        if fs.exists(str(directory / DIRECTORY)):
            raise InvalidConfig(
                f"{directory} has the metadata of a broker that was alone ({FILE_NAME}) and the metadata log of a "
                f"quorum ({DIRECTORY}), from which it may have come: to begin a quorum with the former, move "
                f"{DIRECTORY} away; to go on with the latter, move {FILE_NAME} away"
            )
        if config.quorum is not None and config.quorum.voters:
            raise InvalidConfig(
                f"{directory} has the metadata of a broker that was alone, which has to vote alone at first: name the "
                "controllers in controller.quorum.bootstrap.servers instead of controller.quorum.voters, start this "
                "node, and then add the others (`ottla quorum add`)"
            )
        await _read(own)  # which also ends what a crash has left undone in it
        fs.rename(str(own), str(moving))
        fs.sync_directory(str(directory))
    if not fs.exists(str(moving)):
        return None
    if not holds_metadata(fs, str(directory)):
        write_voters(fs, str(directory), only_voter(config, directory_id), now_ms=now_ms)
    return LoneMetadata(directory, records_of(await _read(moving)))


async def _read(file: Path) -> Mapping[str, Node]:
    store = EmbeddedStore(file)
    await store.open()
    try:
        return await store.read("/")
    finally:
        await store.close()
