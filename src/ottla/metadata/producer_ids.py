"""Blocks of producer ids: each is given out once in the life of a cluster."""

from typing import Final

from ottla.errors import ApiError, ErrorCode
from ottla.ids import BrokerId, ProducerId
from ottla.metadata.store import layout
from ottla.metadata.store.base import MetadataStore, StoreConflict
from ottla.metadata.store.layout import ProducerIdBlock

MAX_PRODUCER_ID: Final = 2**63 - 1
ATTEMPTS: Final = 20
"""At a node that other brokers write at the same moment."""


async def allocate_producer_ids(store: MetadataStore, broker_id: BrokerId) -> ProducerIdBlock:
    """The next block, for a broker. Raises `ApiError` UNKNOWN_SERVER_ERROR when there is none left,
    `StoreUnavailable`, `StoreConflict` if others are always quicker."""
    path = layout.PRODUCER_IDS_PATH
    for attempt in range(1, ATTEMPTS + 1):
        node = (await store.read(path)).get(path)
        first = 0 if node is None else layout.read_producer_id_block(node).last + 1
        last = first + layout.PRODUCER_ID_BLOCK_SIZE - 1
        if last > MAX_PRODUCER_ID:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "Every producer id has been given out.")
        block = ProducerIdBlock(broker_id, ProducerId(first), ProducerId(last))
        versions = {} if node is None else {path: node.version}
        try:
            await store.commit([layout.put(versions, path, layout.producer_id_block_node(block))])
        except StoreConflict:
            if attempt == ATTEMPTS:
                raise
        else:
            return block
    raise AssertionError("the last attempt returns or raises")
