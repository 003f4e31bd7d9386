"""Clients that are left over."""

import weakref
from types import ModuleType

import kafka
import pytest
from confluent_kafka import Producer
from tests.support import client_ends


class _Kept:
    """A client in a cycle."""

    def __init__(self) -> None:
        self.client = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        self.itself = self


@pytest.mark.parametrize("finished", [None, client_ends])
def test_a_client_in_a_cycle_is_ended(finished: ModuleType | None) -> None:
    kept = _Kept()
    assert client_ends.clients()
    left = weakref.ref(kept)
    client_ends.end_unused(finished=finished)
    assert left() is kept
    del kept
    client_ends.end_unused(finished=client_ends)
    assert left() is None


@pytest.mark.parametrize(("imported", "expected"), [(kafka, True), (kafka.KafkaConsumer, True), (weakref, False)])
def test_modules_that_use_clients_in_python_are_known(imported: object, expected: bool) -> None:
    module = ModuleType("tests.some")
    module.imported = imported  # type: ignore[attr-defined]
    assert client_ends.uses_clients_in_python(module) is expected
