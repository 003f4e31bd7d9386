"""Converters and transforms of a task: what any of them stumbles over is one bad record."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect import chain as chains
from ottla.connect.api import ConnectError, Retriable, SourceRecord, TopicPartition
from ottla.connect.chain import Chain
from ottla.connect.connector_config import SourceRuntimeSettings
from ottla.connect.handling import Tolerance

JSON = "org.apache.kafka.connect.json.JsonConverter"
WORKER = {"key.converter": JSON, "value.converter": JSON, "header.converter": "SimpleHeaderConverter"}


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
