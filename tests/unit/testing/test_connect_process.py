"""Workers in processes of their own, for tests."""

import gc
import socket
from urllib.parse import urlsplit

import pytest

from ottla.testing import ConnectProcess


def test_a_worker_keeps_its_port_while_it_is_down() -> None:
    worker = ConnectProcess("127.0.0.1:1")
    port = urlsplit(worker.url).port
    assert port is not None
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    with socket.socket() as own:  # as the worker listens
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind(("127.0.0.1", port))
        own.listen()
    del worker
    gc.collect()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
