"""What means this machine."""

import pytest

from ottla.local_names import is_local_or_address, is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "::1%lo", "ip6-localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "10.0.0.1", "::", "0.0.0.0", "localhost.example", "127.0.0.1.example", "%"])
def test_elsewhere(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("header", ["", "localhost", "localhost:80", "127.0.0.1:9644", "[::1]:80", "192.168.0.7:80"])
def test_requests_for_this_machine(header: str) -> None:
    assert is_local_or_address(header)


@pytest.mark.parametrize("header", ["rebound.example", "127.0.0.1.example:80", "[::1", "a b", "localhost.evil"])
def test_requests_by_a_name_that_somebody_made(header: str) -> None:
    assert not is_local_or_address(header)
