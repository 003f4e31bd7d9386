"""What `__consumer_offsets` holds, in Kafka's format: one module per kind of group, one table here. PURE.

    key     int16 what it is | its fields              0, 1     offsets            `offset_records`
    value   int16 version    | its fields, or none     2        classic groups     `classic_records`
                                                       3-8, 16  consumer groups    `consumer_records`
                                                       10-15    share groups       `share_records`
                                                       17-23    streams groups     `streams.records`

No value is a tombstone: what the key names is gone, and compaction may forget both. Keys that are not in the table
are passed over: they belong to kinds of groups that are not served here.
"""

from types import MappingProxyType
from typing import Final, TypeAlias

from ottla.errors import CorruptMessage
from ottla.groups.classic import records as classic_records
from ottla.groups.classic.records import ClassicRecord
from ottla.groups.consumer import records as consumer_records
from ottla.groups.consumer.records import ConsumerRecord
from ottla.groups.offsets import records as offset_records
from ottla.groups.offsets.records import OffsetRecord
from ottla.groups.record_types import Decoders, Encoders
from ottla.groups.share import records as share_records
from ottla.groups.share.records import ShareRecord
from ottla.groups.streams import records as streams_records
from ottla.groups.streams.records import StreamsRecord
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.versioned import version_of

GroupRecord: TypeAlias = OffsetRecord | ClassicRecord | ConsumerRecord | ShareRecord | StreamsRecord

_KINDS: Final = (offset_records, classic_records, consumer_records, share_records, streams_records)
_ENCODERS: Final[Encoders] = MappingProxyType({cls: encode for kind in _KINDS for cls, encode in kind.ENCODERS.items()})
_DECODERS: Final[Decoders] = MappingProxyType({key: decode for kind in _KINDS for key, decode in kind.DECODERS.items()})


class GroupRecordFormat:
    """A `ottla.coordination.state_machine.RecordFormat` for `GroupRecord`."""

    __slots__ = ()

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        return _ENCODERS[type(record)](record)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        """A record of the log; None for a type that this version does not know. Raises CorruptMessage."""
        try:
            decoder = _DECODERS.get(version_of(key))
            if decoder is None:
                return None
            record: GroupRecord = decoder(key, value)
        except (MalformedMessage, UnsupportedVersion) as error:
            raise CorruptMessage(f"a record in the log of the group coordinator: {error}") from error
        return record
