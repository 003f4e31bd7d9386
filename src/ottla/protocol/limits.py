"""How much a request may hold, so that decoding it takes the broker some 50 ms at most, whatever it is; it does so in
slices of a few milliseconds.

Elements of arrays and tagged fields cost time and memory whatever their size, and most of them an element of the
answer, so a request has a limited number of them; sixteen bytes in an array count as one. Kafka's clients stay far
below: ten thousand partitions in a request, each in a topic of its own, are twenty thousand elements.
"""

from __future__ import annotations

from typing import Final

from ottla.protocol.api import ApiKey
from ottla.protocol.schema import Message

MAX_ELEMENTS: Final = 25_000
"""The most elements in a client's request."""
MAX_ELEMENTS_WITH_REPLICAS: Final = 50_000
"""The most elements in requests that may name the replicas of each partition."""
MAX_ELEMENTS_BETWEEN_BROKERS: Final = 1_000_000
"""The most elements in a request between brokers, which may name every partition of a broker with its replicas."""
BYTES_PER_ELEMENT_SHIFT: Final = 4
"""Bytes in an array, as a power of two, that count as one element."""
STEP_MASK: Final = 15
"""Codecs that work in steps take one after so many elements of an array, and one more."""
MAX_HEADER_TAGS: Final = 16
"""Tagged fields in a request's header; Kafka has none so far."""

BETWEEN_BROKERS: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.ALTER_PARTITION,
        ApiKey.WRITE_TXN_MARKERS,
    }
)
_WITH_REPLICAS: Final = frozenset(
    {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ALTER_PARTITION_REASSIGNMENTS}
)
_WITH_CONTENTS: Final = frozenset(
    {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.PUSH_TELEMETRY}
)
"""Subscriptions, assignments of whole groups, metadata of offsets: bytes that are not looked into."""
MAX_BYTES: Final = 4 << 20
MAX_BYTES_WITH_CONTENTS: Final = 32 << 20


def max_elements(cls: type[Message]) -> int | None:
    """How many elements a message may have in all; None for responses, which only their requester decodes."""
    if cls.API_KEY is None or not cls.__name__.endswith("Request"):
        return None
    if cls.API_KEY in BETWEEN_BROKERS:
        return MAX_ELEMENTS_BETWEEN_BROKERS
    return MAX_ELEMENTS_WITH_REPLICAS if cls.API_KEY in _WITH_REPLICAS else MAX_ELEMENTS


def max_request_bytes(api_key: int) -> int | None:
    """The largest request of an API; None for `socket.request.max.bytes`."""
    if api_key == ApiKey.PRODUCE or api_key in BETWEEN_BROKERS:
        return None
    return MAX_BYTES_WITH_CONTENTS if api_key in _WITH_CONTENTS else MAX_BYTES
