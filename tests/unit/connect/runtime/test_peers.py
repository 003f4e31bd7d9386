"""Which workers are gone: what a connection says of them, and what it does not."""

import socket

from ottla.connect.runtime.peers import Peers, listens


def test_a_refusal_says_that_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert listens(address) is True
    assert listens(address) is False
    for unknown in ("no.such.host.invalid:1", "", "127.0.0.1:none"):
        assert listens(unknown) is None


def test_a_worker_that_was_reached_is_gone_after_two_refusals() -> None:
    answers: dict[str, bool | None] = {"a:1": True, "b:1": True, "never:1": False}
    changes: list[frozenset[str]] = []
    peers = Peers(lambda: changes.append(peers.gone), answers.__getitem__)
    peers.watch(answers)
    peers.look()
    answers |= {"a:1": False, "b:1": None}
    peers.look()
    assert peers.gone == frozenset(), "one refusal may be a restart of its socket"
    peers.look()
    assert peers.gone == {"a:1"}, "one that does not answer may be busy, one that was never reached behind a firewall"
    peers.watch(())
    peers.look()
    assert peers.gone == {"a:1"}, "it is looked at until it is back"
    answers["a:1"] = True
    peers.look()
    assert peers.gone == frozenset()
    assert changes == [{"a:1"}, frozenset()]
