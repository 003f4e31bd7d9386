"""Clients that are left over."""

import weakref

import pytest
from confluent_kafka import Producer
from tests.support import client_ends


class _Kept:
    """A client in a cycle."""

    def __init__(self) -> None:
        self.client = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        self.itself = self


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_client_in_a_cycle_is_ended(everywhere: bool) -> None:
    kept = _Kept()
    assert client_ends.clients()
    left = weakref.ref(kept)
    client_ends.end_unused(everywhere=everywhere)
    assert left() is kept
    del kept
    client_ends.end_unused(everywhere=True)
    assert left() is None
