"""Batches of records, whole and mutilated, from a seed; needs nothing but the standard library and `ottla.records`."""

from random import Random
from typing import NamedTuple

from ottla.records.record import Record, append_record, append_varint

INT64_MAX = (1 << 63) - 1


class Input(NamedTuple):
    records: bytes
    count: int  # type: ignore[assignment] # shadows tuple.count, which nothing here calls
    base_timestamp: int
    earliest: int
    latest: int
    needs_key: bool

    @property
    def expected(self) -> tuple[int, int, int, int, bool]:
        """The arguments of `scan` after the records."""
        return self[1:]


def sound(random: Random) -> Input:
    count = random.choice([0, 1, 1, 2, 3, 10, 70])
    base = random.choice([0, 1, 1_700_000_000_000, -1, INT64_MAX, -INT64_MAX])
    out = bytearray()
    for number in range(count):
        key = None if random.random() < 0.2 else random.randbytes(random.choice([0, 1, 5, 63, 64, 200]))
        value = None if random.random() < 0.2 else random.randbytes(random.choice([0, 1, 30, 63, 64, 130, 9000]))
        headers = tuple(
            ("h" * random.choice([0, 1, 70]), random.choice([None, b"", b"x" * 65]))
            for _ in range(random.choice([0, 0, 0, 1, 3]))
        )
        delta = random.choice([0, 1, -1, 64, 1 << 20, 1 << 40, INT64_MAX, -INT64_MAX - 1])
        append_record(out, number, delta, Record(0, 0, key, value, headers))
    bounds = random.choice([(-INT64_MAX - 1, INT64_MAX), (0, 1_700_000_000_064), (5, 4)])
    return Input(bytes(out), count, base, *bounds, random.random() < 0.5)


def mutilated(random: Random) -> Input:
    given = sound(random)
    data = bytearray(given.records)
    count = given.count
    for _ in range(random.choice([1, 1, 1, 2, 5])):
        place = random.randrange(len(data)) if data else 0
        match random.randrange(8):
            case 0 if data:
                data[place] = random.randrange(256)
            case 1 if data:
                data[place] ^= 1 << random.randrange(8)
            case 2:
                del data[place : place + random.choice([1, 1, 2, 100])]
            case 3:
                data[place:place] = random.randbytes(random.choice([1, 1, 2, 20]))
            case 4:
                count = random.choice([min(count + 1, 0x7FFF_FFFF), max(count - 1, 0), 0, 0x7FFF_FFFF])
            case 5:
                del data[place:]
            case 6:
                value = random.choice([-1, -2, 0x7FFF_FFFF, -0x8000_0000, INT64_MAX, -INT64_MAX - 1, 1 << 33])
                varint = bytearray()
                append_varint(varint, value)
                data[place : place + random.choice([0, 1])] = varint
            case _:
                data[place:place] = b"\xff" * random.choice([4, 5, 9, 10, 11])
    return given._replace(records=bytes(data), count=count)


def chunks(random: Random, data: bytes) -> list[bytes]:
    """`data` in pieces, some of them empty."""
    pieces = []
    position = 0
    longest = max(random.choice([1, 2, 7, 100, 5000]), len(data) // 300)
    while position < len(data):
        size = random.randint(0, longest)
        pieces.append(data[position : position + size])
        position += size
    return pieces
