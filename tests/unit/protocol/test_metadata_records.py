"""Records of the metadata log: their bytes, and bytes that are no records. Kafka's own are in tests/compat/genuine."""

from contextlib import suppress
from typing import Final
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.protocol.message_values import empty, narrowed, values_of

from ottla.protocol import codec
from ottla.protocol.errors import MalformedMessage, ProtocolError, UnsupportedVersion
from ottla.protocol.messages.control_records import LeaderChangeMessage
from ottla.protocol.messages.quorum_records import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord
from ottla.protocol.metadata_records import (
    RECORD_TYPES,
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    decode_control,
    decode_record,
    encode_record,
)
from ottla.protocol.schema import Message, fields_of

ID: Final = UUID(int=5)
few = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
every_type = pytest.mark.parametrize("cls", RECORD_TYPES.values(), ids=lambda cls: cls.__name__)


def smallest(cls: type[Message]) -> Message:
    """A record without tagged fields, and otherwise of empty values."""
    return cls(**{each.name: each.make_default() if each.has_default else empty(each.type) for each in fields_of(cls)})


def test_a_frame_precedes_the_record() -> None:
    assert encode_record(NoOpRecord(), 0) == bytes([1, 20, 0, 0])
    config = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None)
    assert encode_record(config, 0) == b"\1\4\0" + b"\2" + b"\2t" + b"\x0dretention.ms" + b"\0" + b"\0"


def test_fields_that_have_not_changed_are_left_out() -> None:
    change = PartitionChangeRecord(partition_id=3, topic_id=ID, leader=-1, directories=[ID])
    expected = b"\1\5\1" + b"\0\0\0\3" + ID.bytes + b"\2" + b"\1\4\xff\xff\xff\xff" + b"\x08\x11\2" + ID.bytes
    assert encode_record(change, 1) == expected
    assert decode_record(expected) == (change, 1)


def test_older_versions_lack_the_newer_fields() -> None:
    broker = RegisterBrokerRecord(
        broker_id=1, incarnation_id=ID, broker_epoch=7, end_points=[], features=[], rack=None, log_dirs=[ID]
    )
    found, version = decode_record(encode_record(broker, 3))
    assert (found, version) == (broker, 3)
    with pytest.raises(ProtocolError, match="log_dirs is set, which version 2 cannot carry"):
        encode_record(broker, 2)


@every_type
@few
@given(data=st.data())
def test_both_codecs_agree_in_every_version(cls: type[Message], data: st.DataObject) -> None:
    full = data.draw(values_of(cls))
    for version in cls.VERSIONS:
        record = narrowed(full, version)
        encoded = encode_record(record, version)
        assert decode_record(encoded) == (record, version)
        slow = b"".join(codec.encode(record, version))  # type: ignore[arg-type]  # no opaque pieces here
        assert encoded.endswith(slow)


@every_type
def test_tags_of_a_newer_version_are_passed_over(cls: type[Message]) -> None:
    newest = cls.VERSIONS[-1]
    record = smallest(cls)
    encoded = encode_record(record, newest)
    assert encoded[-1] == 0, "no tags"
    assert decode_record(encoded[:-1] + b"\1\x63\3xyz") == (record, newest)


@every_type
def test_a_record_cut_off_anywhere_is_refused_by_name(cls: type[Message]) -> None:
    newest = cls.VERSIONS[-1]
    encoded = encode_record(smallest(cls), newest)
    for length in range(3):
        with pytest.raises(MalformedMessage, match=f"a metadata record of {length} bytes ends within its frame"):
            decode_record(encoded[:length])
    for length in range(3, len(encoded)):
        with pytest.raises(MalformedMessage, match=f"{cls.__name__} version {newest}"):
            decode_record(encoded[:length])
    with pytest.raises(MalformedMessage, match=f"2 bytes follow the end of a {cls.__name__}"):
        decode_record(encoded + b"\0\0")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"\0\2\0", "a metadata record has frame version 0, and only 1 is known"),
        (b"\1\x1d\0\0", r"metadata record type 29 \(version 0\) is not known"),
        (b"\1\6\0\0", r"metadata record type 6 \(version 0\) is not known"),
        (b"\1\2\7\0", "TopicRecord has versions 0 to 0, not 7"),
        (b"\1\xff\xff\xff\xff\xff\xff", "longer than five bytes"),
        (b"\1\2\0\xff\xff\xff\xff\7", "TopicRecord version 0: a string of 2147483646 bytes is too long"),
        (b"\1\x0e\0\xff\xff\xff\xff\7", "ClientQuotaRecord version 0: an array claims 2147483646 elements"),
        (b"\1\x14\0\xff\xff\xff\xff\7", "NoOpRecord version 0"),
        (b"\1\x17\0\1\0\5\2xabcd", "BeginTransactionRecord version 0: tagged field 0 does not have the 5 bytes"),
        (b"\1\2\0\3\xff\xfe" + bytes(17), "TopicRecord version 0: 'utf-8' codec"),
    ],
)
def test_what_is_wrong_is_named(value: bytes, problem: str) -> None:
    with pytest.raises((MalformedMessage, UnsupportedVersion), match=problem):
        decode_record(value)


@few
@given(st.binary(max_size=60), st.sampled_from(sorted(RECORD_TYPES)))
def test_no_bytes_fail_otherwise(content: bytes, kind: int) -> None:
    for version in RECORD_TYPES[kind].VERSIONS:
        with suppress(ProtocolError):
            decode_record(bytes([1, kind, version]) + content)


def test_control_records_begin_with_their_version() -> None:
    assert decode_control(b"\0\0\0\3", b"\0\0" + bytes(7) + b"\x09\0") == (
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=9),
        0,
    )
    assert decode_control(b"\0\0\0\4", b"\0\0\0") == (SnapshotFooterRecord(version=0), 0)
    assert decode_control(b"\0\0\0\5", b"\0\0\0\1\0") == (KRaftVersionRecord(version=0, k_raft_version=1), 0)
    leader, version = decode_control(b"\0\0\0\2", b"\0\1" + b"\0\0\0\3" + b"\2\0\0\0\3" + ID.bytes + b"\0" + b"\1\0")
    assert version == 1
    assert isinstance(leader, LeaderChangeMessage)
    assert [(voter.voter_id, voter.voter_directory_id) for voter in leader.voters] == [(3, ID)]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (b"\0\0\0", b"", "the key of a control record has 3 bytes, not 4"),
        (b"\0\0\0\x07", b"\0\0\0", "control record type 7 is not known"),
        (b"\0\0\0\1", b"\0\0\0\0\0\0", "control record type 1 is not known"),
        (b"\0\0\0\4", b"\0", "no room for a version"),
        (b"\0\0\0\4", b"\0\5\0", "SnapshotFooterRecord has versions 0 to 0, not 5"),
        (b"\0\0\0\3", b"\0\0\0", "SnapshotHeaderRecord version 0"),
        (b"\0\0\0\4", b"\0\0\0\0", "1 bytes follow the end of a SnapshotFooterRecord"),
    ],
)
def test_what_is_wrong_with_a_control_record_is_named(key: bytes, value: bytes, problem: str) -> None:
    with pytest.raises((MalformedMessage, UnsupportedVersion), match=problem):
        decode_control(key, value)
