"""`zookeeper.connect`: servers and a path."""

import pytest

from ottla.errors import InvalidConfig
from ottla.metadata.store.zookeeper_address import parse_address


@pytest.mark.parametrize(
    ("text", "hosts", "root"),
    [
        ("one", "one:2181", ""),
        ("one:2182", "one:2182", ""),
        ("one:1, two ,three:3", "one:1,two:2181,three:3", ""),
        ("one/kafka", "one:2181", "/kafka"),
        ("one:1,two:2/a/b/", "one:1,two:2", "/a/b"),
        ("one/", "one:2181", ""),
        ("[::1]:2182,[fe80::1]/a", "[::1]:2182,[fe80::1]:2181", "/a"),
    ],
)
def test_reads_servers_and_a_path(text: str, hosts: str, root: str) -> None:
    address = parse_address(text)
    assert (address.hosts, address.root) == (hosts, root)
    assert str(address) == hosts + root


@pytest.mark.parametrize("text", ["", "/a", ",", "one:0", "one:65536", "one:x", "::1:2181", "one//a", "one/a/../b"])
def test_refuses_what_is_none(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"for configuration zookeeper\.connect: "):
        parse_address(text)
