"""Keeps metadata in a tree of nodes (`MetadataStore`): a standalone broker's in a file, a cluster's in ZooKeeper.

The keeper remembers the version of each node, so that a commit fails if another broker has changed one of them. In
a cluster each commit also checks the controller epoch.
"""

from collections.abc import Mapping, Sequence

from ottla.clock import Clock
from ottla.cluster.commands import Command, apply
from ottla.cluster.commit_parts import Piece, in_parts, whole_in_parts
from ottla.cluster.features import ONLY_LEVELS
from ottla.cluster.image import MetadataImage
from ottla.ids import BrokerId
from ottla.metadata.config_changes import FoundSettings
from ottla.metadata.keeper import NO_LEVELS, Found
from ottla.metadata.producer_ids import allocate_producer_ids
from ottla.metadata.store import layout
from ottla.metadata.store.base import Check, Delete, MetadataStore, Node, Operation
from ottla.metadata.store.layout import ProducerIdBlock
from ottla.slices import Slices


class TreeKeeper:
    """The nodes' versions, and the conditions of every commit. On the loop's thread."""

    def __init__(self, store: MetadataStore, clock: Clock, slices: Slices) -> None:
        self._store = store
        self._clock = clock
        self._slices = slices
        self._versions: dict[str, int] = {}
        self._guard: list[Operation] = []
        """Conditions of every commit."""
        self.controller_epoch = 0

    def begin_term(self, controller_epoch: int, epoch_version: int) -> None:
        """Let commits fail from now on once the node with the controller's epoch has another version than this."""
        self.controller_epoch = controller_epoch
        self._guard = [Check(layout.CONTROLLER_EPOCH_PATH, epoch_version)]

    @property
    def is_shared(self) -> bool:
        """Whether a term has begun: a broker alone has none."""
        return bool(self._guard)

    @property
    def only_levels(self) -> Mapping[str, int]:
        """Those of a standalone broker."""
        return NO_LEVELS if self._guard else ONLY_LEVELS

    @property
    def has_controller(self) -> bool:
        """Whether a broker is registered as controller."""
        return layout.CONTROLLER_PATH in self._versions

    async def read(self) -> Found:
        """What the nodes hold. Raises `StoreUnavailable`, `MalformedNode`."""
        return (await self.read_nodes())[0]

    async def read_nodes(self) -> tuple[Found, Mapping[str, Node]]:
        """What is kept, and the nodes that it was read from. Raises as `read`."""
        nodes = await self._store.read("/")
        self._versions = {path: node.version for path, node in nodes.items()}
        image = layout.read_image(nodes)
        if not self._guard:
            epoch = nodes.get(layout.CONTROLLER_EPOCH_PATH)
            self.controller_epoch = int(epoch.data) if epoch is not None else 0
        return Found(image, [name for name in layout.deletions_begun(nodes) if name in image.topics]), nodes

    def take_versions(self, found: Sequence[FoundSettings]) -> None:
        """Note the versions of nodes that others have changed."""
        for path, version, _ in found:
            if version is None:
                self._versions.pop(path, None)
            else:
                self._versions[path] = version

    def in_parts(self, commands: Sequence[Command], image: MetadataImage) -> list[list[Piece]]:
        """A standalone broker never splits a command: after a crash no broker would finish it."""
        return (in_parts if self._guard else whole_in_parts)(commands, image)

    async def commit(
        self, commands: Sequence[Command], image: MetadataImage, *, first: Sequence[Operation] = ()
    ) -> MetadataImage:
        """Commit as `MetadataKeeper.commit`; `first` are operations that are no commands."""
        operations = [*self._guard, *first]
        for operation in layout.each_operation(
            commands,
            image,
            self._versions,
            controller_epoch=self.controller_epoch,
            now_ms=self._clock.now_ms(),
        ):
            operations.append(operation)
            await self._slices.pause()
        await self._store.commit(operations)
        for operation in operations:
            if isinstance(operation, Delete):
                del self._versions[operation.path]
            elif not isinstance(operation, Check):
                self._versions[operation.path] = self._versions.get(operation.path, -1) + 1
        return apply(image, commands)

    async def allocate_producer_ids(self, broker_id: BrokerId) -> ProducerIdBlock:
        """The next block, for a broker. Raises as `ottla.metadata.producer_ids.allocate_producer_ids`."""
        block = await allocate_producer_ids(self._store, broker_id)
        self._versions.pop(layout.PRODUCER_IDS_PATH, None)
        return block
