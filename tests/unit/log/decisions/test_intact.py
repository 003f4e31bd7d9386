"""Which batches are taken for intact, and where the first doubtful one begins."""

from ottla.log.decisions.intact import follows, intact_prefix
from ottla.records.record import Record, encode_batch


def batch(base_offset: int, values: int = 1) -> bytes:
    return bytes(encode_batch(Record(base_offset + at, 0, None, b"v") for at in range(values)))


def test_batches_in_a_row_are_intact() -> None:
    data = batch(3) + batch(4, 2) + batch(6)
    assert intact_prefix(data) == (len(data), "")
    assert intact_prefix(b"") == (0, "")


def test_a_damaged_batch_ends_what_is_intact() -> None:
    first, second = batch(3), bytearray(batch(4))
    second[-1] ^= 1
    size, problem = intact_prefix(first + second)
    assert size == len(first)
    assert "its CRC is" in problem
    assert intact_prefix(bytes(second))[0] == 0


def test_a_batch_that_goes_back_ends_what_is_intact() -> None:
    assert intact_prefix(batch(3) + batch(2)) == (len(batch(3)), "it begins at offset 2, after 3")


def test_the_last_batch_behind_a_gap_is_read_on_its_own() -> None:
    assert intact_prefix(batch(3) + batch(9)) == (len(batch(3)), "")
    assert intact_prefix(batch(3) + batch(9) + batch(10))[0] == 3 * len(batch(3)), "the one behind vouches for it"


def test_what_follows_across_two_reads() -> None:
    assert follows(batch(4), batch(3))
    assert not follows(batch(9), batch(3))
    assert follows(batch(9) + batch(10), batch(3))
    assert not follows(batch(2) + batch(3), batch(3))


def test_a_cut_header_and_another_format_end_what_is_intact() -> None:
    whole = batch(3)
    assert intact_prefix(whole + batch(4)[:20]) == (len(whole), "the file ends within a batch header")
    old = bytearray(batch(4))
    old[16] = 1
    assert intact_prefix(whole + bytes(old)) == (len(whole), f"it claims magic 1 and {len(old) - 12} bytes")
    short = batch(4)[:-1]
    assert intact_prefix(whole + short)[0] == len(whole)
