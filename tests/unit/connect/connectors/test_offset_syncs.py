"""Pairs of offsets of two clusters: as MirrorMaker 2 writes them, and as many as are of use."""

from ottla.connect.connectors.offset_syncs import OffsetSync, Translation, parsed, slot_of


def test_records_are_mirror_makers() -> None:
    """As `OffsetSync.serialize` of connect-mirror writes the pair (1 -> 2) of t-3."""
    key, value = b"\x00\x01t\x00\x00\x00\x03", b"\x00" * 7 + b"\x01" + b"\x00" * 7 + b"\x02"
    plain = OffsetSync("t", 3, 1, 2)
    assert (plain.key, plain.value) == (key, value)
    assert parsed(key, value) == plain
    numbered = OffsetSync("t", 3, 1, 2, 77)
    assert numbered.key.startswith(key), "what MirrorMaker does not know comes last"
    assert numbered.value.startswith(value)
    assert parsed(numbered.key, numbered.value) == numbered
    for broken in ((None, value), (key, None), (key[:4], value), (b"\x00\x09t", value), (b"\x00\x01\xff", value)):
        assert parsed(*broken) is None


def test_compaction_leaves_pairs_of_every_age() -> None:
    left: dict[bytes, OffsetSync] = {}
    written = 100_000
    for number in range(1, written + 1):
        sync = OffsetSync("t", 0, number, number, number)
        left.pop(sync.key, None)
        left[sync.key] = sync
    assert len(left) <= 16 * 17
    assert {slot_of(each) for each in range(1, 1000)} == set(range(16)) | {slot_of(each) for each in range(1, 1000)}
    translation = Translation()
    for sync in left.values():
        translation.add(sync.there, sync.here)
    for behind in (0, 10, 100, 1_000, 10_000, 50_000):
        found = translation.here(written - behind)
        assert found is not None
        assert 0 <= written - behind - found <= max(16, behind / 8)


def test_pairs_that_go_back_are_of_another_topic() -> None:
    translation = Translation()
    translation.begin(7)
    translation.begin(0)
    translation.add(100, 110)
    assert [translation.here(each) for each in (0, 99, 100)] == [7, 7, 110]
    translation.add(50, 200)
    assert [translation.here(each) for each in (0, 50, 100)] == [None, 200, 200]
