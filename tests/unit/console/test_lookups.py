"""Records by key, header and value, and the partitions that partitioners give keys."""

import pytest
from tests.unit.console.messages import Sent

from ottla.console.access.masks import parse_masks
from ottla.console.lookups import LookupProblem, lookup, murmur2, partition_of
from ottla.console.sight import Sight


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected % 2**32


def test_keys_are_placed_as_clients_place_them() -> None:
    assert partition_of(b"foobar", 7, "murmur2") == (-790332482 & 0x7FFFFFFF) % 7
    assert partition_of(b"123456789", 1000, "crc32") == 0xCBF43926 % 1000


SENT = Sent(b"alice", b'{"note":"hello"}', (("source", b"web"), ("empty", None)))


@pytest.mark.parametrize(
    ("part", "text", "header", "passes"),
    [
        ("key", "alice", "", True),
        ("key", "bob", "", False),
        ("key", "0x616c696365", "", True),
        ("key", "0x00", "", False),
        ("header", "web", "source", True),
        ("header", "", "source", True),
        ("header", "x", "source", False),
        ("header", "", "none", False),
        ("value", "ello", "", True),
        ("value", '"note":"h', "", True),
        ("value", "bye", "", False),
    ],
)
def test_what_is_found(part: str, text: str, header: str, passes: bool) -> None:
    found = lookup(part, text, header)
    assert bool(found.test(Sight().record(SENT))) is passes
    assert found.possible(SENT.key(), SENT.value()) or not passes


def test_keys_of_json_are_found_by_their_meaning_and_in_any_partition() -> None:
    found = lookup("key", '{"id": 1}')
    assert found.key is None
    assert found.possible(b'{"id":1}', None)
    assert found.test(Sight().record(Sent(b'{"id":1}')))


def test_what_is_masked_cannot_be_found_out() -> None:
    sight = Sight(masks=parse_masks(["key", "value.note", "headers.source"]))
    for found in (lookup("key", "alice"), lookup("key", "0x616c696365"), lookup("value", "hello")):
        assert not found.test(sight.record(SENT))
    assert not lookup("header", "web", "source").test(sight.record(SENT))


@pytest.mark.parametrize(("part", "text"), [("key", "0xyz"), ("header", "a"), ("offset", "1")])
def test_what_cannot_be_looked_up(part: str, text: str) -> None:
    with pytest.raises(LookupProblem):
        lookup(part, text)
