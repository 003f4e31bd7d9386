"""The addresses that HTTP connectors may reach."""

import pytest

from ottla.connect.errors import ConfigError
from ottla.connect.permissions import Permissions
from ottla.connect.targets import Targets


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.1.2.3", "loopback"),
        ("::1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00:ec2::254", "private"),
        ("0.0.0.0", "special"),
        ("::", "special"),
        ("224.0.0.1", "special"),
        ("ff02::1", "special"),
        ("240.0.0.1", "special"),
        ("255.255.255.255", "special"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "link-local"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("2002:7f00:1::", "loopback"),
        ("not an address", "no address"),
    ],
)
def test_only_public_addresses_are_reached(address: str, kind: str) -> None:
    problem = Targets("").refusal("innocent.example", address)
    assert problem is not None
    assert kind in problem
    assert Targets("*").refusal("innocent.example", address) is None


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f::1", "::ffff:93.184.215.14", "64:ff9b::5db8:d70e"])
def test_public_addresses_are_reached(address: str) -> None:
    assert Targets("").refusal("example.com", address) is None


def test_a_worker_allows_more() -> None:
    targets = Targets("10.1.0.0/16, 127.0.0.1,fd00::/8 , Billing.Internal., [::1]")
    assert targets.refusal("x", "10.1.2.3") is None
    assert targets.refusal("x", "::ffff:10.1.2.3") is None
    assert targets.refusal("x", "10.2.0.1") is not None
    assert targets.refusal("x", "127.0.0.1") is None
    assert targets.refusal("x", "127.0.0.2") is not None
    assert targets.refusal("x", "fd12::1") is None
    assert targets.refusal("[::1]", "::1") is None
    assert targets.refusal("billing.internal", "10.9.9.9") is None
    assert targets.refusal("other.internal", "10.9.9.9") is not None
    assert targets.refusal("billing.internal", "169.254.169.254") is not None, "a name has no right to these"
    assert targets.refusal("billing.internal", "127.0.0.2") is not None


def test_a_connector_cannot_allow_itself_anything() -> None:
    assert Permissions({"http.allowed.targets": "10.0.0.0/8"}).targets.refusal("x", "10.0.0.1") is None
    assert Permissions({}).targets.refusal("x", "10.0.0.1") is not None


@pytest.mark.parametrize("allowed", ["10.0.0.0/99", "1.2.3", "a/b", "::g"])
def test_a_list_that_cannot_be_is_refused(allowed: str) -> None:
    with pytest.raises(ConfigError, match=r"http.allowed.targets: "):
        Targets(allowed)
