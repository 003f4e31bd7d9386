"""A hash by which a group notices changes of its topics (KIP-1101). PURE.

    topic    XXH3-64 of: 0 (int8) | id (uuid, each half little-endian) | name | partitions (int32)
             | for each partition: its index (int32) | each of its racks, sorted: length (int32), rack
    group    XXH3-64 of the hashes of its topics (int64), in the order of their names; 0 without topics

Numbers are little-endian; a string is its UTF-16 code units, little-endian, and then how many there are (int32). So
Kafka 4.1 computes it, and a log that it wrote is taken over without a rebalance.
"""

from collections.abc import Iterable
from typing import Final

import xxhash

from ottla.groups.topics import Topic, TopicsView
from ottla.ids import TopicName

NO_TOPICS: Final = 0
_MAGIC: Final = b"\0"


class TopicHashes:
    """Hashes of topics, each computed once as long as the topic stays as it is."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[TopicName, tuple[Topic, int]] = {}

    def of(self, names: Iterable[TopicName], topics: TopicsView) -> int:
        """The hash of these topics together, those that do not exist left out: an int64."""
        pieces: list[bytes] = []
        for name in sorted(names):
            topic = topics.by_name(name)
            if topic is None:
                self._known.pop(name, None)
            else:
                pieces.append(self._of_topic(topic).to_bytes(8, "little", signed=True))
        return _int64(b"".join(pieces)) if pieces else NO_TOPICS

    def _of_topic(self, topic: Topic) -> int:
        known = self._known.get(topic.name)
        if known is None or known[0] != topic:
            known = self._known[topic.name] = (topic, hash_of_topic(topic))
        return known[1]


def hash_of_topic(topic: Topic) -> int:
    """The hash of one topic: an int64."""
    pieces = [_MAGIC, topic.topic_id.bytes[7::-1], topic.topic_id.bytes[:7:-1], _string(topic.name)]
    pieces.append(_int32(topic.partition_count))
    for index, racks in enumerate(topic.racks):
        pieces.append(_int32(index))
        for rack in sorted(racks):
            text = _string(rack)
            pieces += [text[-4:], text]
    return _int64(b"".join(pieces))


def _string(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _int32(len(units) // 2)


def _int32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _int64(raw: bytes) -> int:
    return int.from_bytes(xxhash.xxh3_64_digest(raw), "big", signed=True)
