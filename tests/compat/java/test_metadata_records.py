"""Every metadata record in every version, byte for byte and field by field as Kafka's own classes have it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.support.java_sources import compiled, java_command
from tests.support.metadata_records import normal, without_secrets
from tests.unit.protocol.message_values import narrowed, values_of

from ottla.cli.log.metadata_log import spelled_out
from ottla.errors import CorruptMessage
from ottla.protocol.metadata_records import RECORD_TYPES, encode_record
from ottla.protocol.schema import Message
from ottla.records.record import Record

OF_EACH_TYPE = 25
HOSTILE = (
    b"",
    b"\1",
    b"\1\2",
    b"\0\2\0",
    b"\2\2\0",
    b"\1\x1d\0\0",
    b"\1\6\0\0",
    b"\1\2\7\0",
    b"\1\2\0\xff\xff\xff\xff\7",
    b"\1\x0e\0\xff\xff\xff\xff\7",
    b"\1\x14\0\0\0",
)


def samples(cls: type[Message]) -> list[Message]:
    found: list[Message] = []

    @settings(
        max_examples=OF_EACH_TYPE,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(values_of(cls))
    def collect(message: Message) -> None:
        found.append(message)

    collect()
    return found


def kafkas(values: list[bytes]) -> list[str]:
    """What Kafka makes of each: see MetadataRecords.java."""
    classes = compiled(Path(__file__).with_name("MetadataRecords.java"))
    lines = "".join(f"{value.hex()}\n" for value in values)
    done = subprocess.run(
        java_command(classes, "MetadataRecords"), input=lines.encode(), capture_output=True, check=True, timeout=60
    )
    return done.stdout.decode().split("\n")[:-1]


def test_kafka_reads_and_writes_the_same() -> None:
    written = [
        (cls, version, encode_record(narrowed(message, version), version))
        for cls in RECORD_TYPES.values()
        for message in samples(cls)
        for version in cls.VERSIONS
    ]
    answers = kafkas([value for _, _, value in written])
    assert len(answers) == len(written)
    for (cls, version, value), answer in zip(written, answers, strict=True):
        theirs, name, as_json = answer.split(" ", 2)
        assert (bytes.fromhex(theirs), name) == (value, cls.__name__)
        row = spelled_out(Record(0, 0, None, value), is_control=False)
        assert (row["kind"], row["version"]) == (name, version)
        ours: Any = row["fields"]
        fields = without_secrets(json.loads(as_json), ours)
        assert normal(ours) == normal(fields), f"{name} version {version}"


def test_kafka_refuses_the_same() -> None:
    assert kafkas(list(HOSTILE)) == ["!"] * len(HOSTILE)
    for value in HOSTILE:
        with pytest.raises(CorruptMessage):
            spelled_out(Record(0, 0, None, value), is_control=False)
