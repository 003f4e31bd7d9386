"""The one thing of the consumers' own format that the coordinator looks at: which topics they read. PURE.

    version    int16     later versions only add fields behind these
    topics     [string]  int32 count; each int16 length and UTF-8
    ...

Source: ConsumerProtocolSubscription, v0.
"""

import struct
from collections.abc import Iterable
from typing import Final

from ottla.ids import TopicName

CONSUMER_PROTOCOL: Final = "consumer"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[TopicName] | None:
    """All topics in these subscriptions; None if one of them cannot be read."""
    topics: set[TopicName] = set()
    for subscription in subscriptions:
        try:
            topics.update(_topics(subscription))
        except (struct.error, UnicodeDecodeError, ValueError):
            return None
    return frozenset(topics)


def _topics(subscription: bytes) -> Iterable[TopicName]:
    (count,) = _INT32.unpack_from(subscription, _INT16.size)
    at = _INT16.size + _INT32.size
    for _ in range(count):
        (size,) = _INT16.unpack_from(subscription, at)
        at += _INT16.size
        name = subscription[at : at + size]
        if size < 0 or len(name) < size:
            raise ValueError(f"a topic's name ends after {len(name)} of {size} bytes")
        yield TopicName(name.decode())
        at += size
