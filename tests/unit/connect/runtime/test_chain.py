"""Converters and transforms of a task: what any of them stumbles over is one bad record."""

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.api import ConnectError, Retriable, SourceRecord, TopicPartition
from ottla.connect.connectors.relational.mapping.rows import Rows, unread
from ottla.connect.connectors.relational.settings import SinkSettings
from ottla.connect.runtime import chain as chains
from ottla.connect.runtime.chain import Chain
from ottla.connect.runtime.connector_config import SourceRuntimeSettings
from ottla.connect.runtime.handling import Tolerance

JSON = "org.apache.kafka.connect.json.JsonConverter"
WORKER = {
    "key.converter": JSON,
    "value.converter": JSON,
    "header.converter": "SimpleHeaderConverter",
    "plugin.modules": "*",
}


def chain(tolerance: str, **config: str) -> tuple[Chain, Tolerance]:
    given = {"name": "n", "connector.class": "c", "errors.tolerance": tolerance}
    handling = Tolerance(SourceRuntimeSettings.model_validate(given), logging.getLogger("tested"))
    return Chain({name.replace("_", "."): text for name, text in config.items()}, WORKER, handling), handling


HOSTILE = [
    b'{"schema": {"type": "bytes", "name": "org.apache.kafka.connect.data.Date"}, "payload": {}}',
    b'{"schema": {"type": "map", "keys": {"type": "struct", "fields": []}, "values": {"type": "boolean"}}, '
    b'"payload": [1, {}]}',
    b'{"schema": {"type": "map", "keys": {"type": "int8"}, "values": {"type": "bytes"}}, "payload": [[""]]}',
    b'{"schema": null, "payload": ' + b"[" * 100_000,
]


@pytest.mark.parametrize("payload", HOSTILE)
def test_hostile_bytes_are_a_bad_record(payload: bytes) -> None:
    strict, _ = chain("none")
    consumed: Any = (TopicPartition("t", 0), 5, None, payload, (), None)
    with pytest.raises(ConnectError, match=r"a record of t-0 at offset 5 was refused \(value converter\)"):
        strict.decode(*consumed)
    tolerant, handling = chain("all")
    assert tolerant.decode(*consumed) is None
    assert handling.skipped == 1


def test_what_is_about_more_than_one_record_is_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise Retriable("the registry is away")

    monkeypatch.setattr(chains, "converter", lambda *_, **__: SimpleNamespace(to_value=away, to_bytes=away))
    tolerant, _ = chain("all")
    with pytest.raises(Retriable, match="the registry is away"):
        tolerant.decode(TopicPartition("t", 0), 5, None, b"v", (), None)
    with pytest.raises(Retriable, match="the registry is away"):
        tolerant.encode(SourceRecord(topic="t", value=1))


def rubbish(_record: Any) -> Any:
    return "changed"


def unsure(_record: Any) -> bool:
    raise KeyError("colour")


def test_a_function_that_returns_no_record_is_named() -> None:
    strict, _ = chain("none", transforms="mine", transforms_mine_type=f"{__name__}:rubbish")
    with pytest.raises(ConnectError, match=r"rubbish returned a str, which is neither a record nor None"):
        strict.encode(SourceRecord(topic="t", value=1))


def test_a_predicate_that_fails_is_about_one_record() -> None:
    config = {
        "transforms": "drop",
        "transforms_drop_type": "org.apache.kafka.connect.transforms.Filter",
        "transforms_drop_predicate": "unsure",
        "predicates": "unsure",
        "predicates_unsure_type": f"{__name__}:unsure",
    }
    tolerant, handling = chain("all", **config)
    assert tolerant.encode(SourceRecord(topic="t", value=1)) is None
    assert handling.skipped == 1


EVENT = json.dumps(
    {
        "schema": {
            "type": "struct",
            "fields": [
                {"type": "string", "field": "op"},
                {"type": "struct", "fields": [{"type": "int32", "field": "n"}], "optional": True, "field": "after"},
                {"type": "struct", "fields": [{"type": "string", "field": "connector"}], "field": "source"},
            ],
        },
        "payload": {"op": "c", "after": {"n": 1}, "source": {"connector": "postgresql"}},
    },
    separators=(",", ":"),
).encode()
WHOLE = {"op": "c", "after": {"n": 1}, "source": {"connector": "postgresql"}}


@pytest.mark.parametrize("transform", [None, "InsertField$Value"])
def test_fields_that_a_sink_never_reads_are_left_out_unless_a_transform_may_read_them(transform: str | None) -> None:
    more = {}
    if transform is not None:
        kind = f"org.apache.kafka.connect.transforms.{transform}"
        more = {"transforms": "t", "transforms_t_type": kind, "transforms_t_topic_field": "after2"}
    decoding, _ = chain("none", **more)
    decoding.leave_out(unread)
    values = []
    for offset in range(3):
        record = decoding.decode(TopicPartition("t", 0), offset, None, EVENT, (), None)
        assert record is not None
        assert record.value_schema is not None
        assert {"op", "after", "source"} <= record.value_schema.by_name.keys(), "the schema is the record's own"
        values.append(record.value)
    if transform is None:
        assert values[1:] == [{"op": "c", "after": {"n": 1}}] * 2
    else:
        assert values == [WHOLE | {"after2": "t"}] * 3
    rows = Rows(SinkSettings.model_validate({"connection.url": "sqlite://"}))
    assert record is not None
    if transform is None:
        ((_, step),) = rows.work([record], lambda _, reason: pytest.fail(str(reason)))
        assert step.put == [(1,)]


def test_all_fields_of_other_records_are_read() -> None:
    decoding, _ = chain("none")
    decoding.leave_out(unread)
    payload = EVENT.replace(b'"connector"', b'"shop"')
    for offset in range(3):
        record = decoding.decode(TopicPartition("t", 0), offset, None, payload, (), None)
        assert record is not None
        assert record.value == {"op": "c", "after": {"n": 1}, "source": {"shop": "postgresql"}}
