"""`MetadataKeeper`: what makes the changes durable that the metadata's decisions ask for.

DecidingMetadata  -- commands -->  keeper      tree_keeper.py    nodes in a file or in ZooKeeper
                  <--- image ----              quorum_keeper.py  records in the log of a quorum
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from ottla.cluster.commands import Command
from ottla.cluster.commit_parts import Piece
from ottla.cluster.image import MetadataImage
from ottla.ids import BrokerId, TopicName
from ottla.metadata.store.layout import ProducerIdBlock

NO_LEVELS: Final[Mapping[str, int]] = MappingProxyType({})


class Found(NamedTuple):
    """What is kept."""

    image: MetadataImage
    deletions_begun: list[TopicName]
    """Topics that are marked as going."""


class MetadataKeeper(Protocol):
    """Keeps metadata. Called on the loop's thread, one commit at a time."""

    @property
    def is_shared(self) -> bool:
        """Whether other brokers hold replicas, too."""
        ...

    @property
    def only_levels(self) -> Mapping[str, int]:
        """Features at the only level that they can have."""
        ...

    async def read(self) -> Found:
        """What is kept now. Raises `StoreUnavailable`, `MalformedNode`."""
        ...

    def in_parts(self, commands: Sequence[Command], image: MetadataImage) -> list[list[Piece]]:
        """The commands in parts that one commit takes, so that a crash may follow any of them."""
        ...

    async def commit(self, commands: Sequence[Command], image: MetadataImage) -> MetadataImage:
        """Make the commands durable, all or none; `image` is the one before. Returns the one after.

        Raises:
            StoreConflict: another node has changed something, or decides by now; nothing was changed.
            TransactionTooLarge: nothing was changed.
            StoreUnavailable: it is not known whether anything was changed.
        """
        ...

    async def allocate_producer_ids(self, broker_id: BrokerId) -> ProducerIdBlock:
        """The next block, for a broker.

        Raises `ApiError` UNKNOWN_SERVER_ERROR when there is none left, and as `commit`.
        """
        ...
