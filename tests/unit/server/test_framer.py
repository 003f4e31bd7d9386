"""From bytes to requests without a socket: however they are cut, whatever is announced, whoever else is served."""

import ctypes
import random
import re
import struct
from mmap import mmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.api import ApiKey
from ottla.protocol.limits import MAX_BYTES
from ottla.server.framer import FIRST_FRAME_BUFFER_BYTES, GROWTH_BYTES, NO_HUGE_PAGES, SHORT_BYTES, BadFrame, Framer

MAX_FRAME_BYTES = 8 << 20


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def produce_request(size: int, rng: random.Random) -> bytes:
    """A body that takes any size; other APIs have smaller limits."""
    return (struct.pack(">h", ApiKey.PRODUCE) + rng.randbytes(size))[:size]


class Receiver:
    """A framer, and bytes for it; between two pieces, another connection writes over the scratch buffer."""

    def __init__(self, *, may_grow: bool = True, scratch_bytes: int = 64 * 1024) -> None:
        self.scratch = memoryview(bytearray(scratch_bytes))
        self.may_grow = may_grow
        self.asked: list[int] = []
        self.framer = Framer(self.scratch, max_frame_bytes=MAX_FRAME_BYTES, may_grow=self._may_grow)

    def _may_grow(self, size: int) -> bool:
        self.asked.append(size)
        return self.may_grow

    def receive(self, data: bytes) -> int:
        """Have the framer receive the beginning of `data`; how much of it there was room for."""
        received = 0
        for buffer in self.framer.buffers():
            piece = data[received : received + len(buffer)]
            buffer[: len(piece)] = piece
            received += len(piece)
        del buffer  # a frame that others look at cannot grow
        self.framer.received(received)
        return received

    def frames(self, most: int = 1 << 30) -> list[bytes]:
        taken: list[bytes] = []
        while len(taken) < most and (frame := self.framer.next_frame()) is not None:
            taken.append(bytes(frame))
        return taken

    def others_are_served(self) -> None:
        self.scratch[:] = b"\xff" * len(self.scratch)


@pytest.mark.parametrize("seed", range(12))
def test_frames_come_whole_however_they_are_cut_and_taken(seed: int) -> None:
    """With memory that is refused at times, and frames that are left for later."""
    rng = random.Random(seed)
    sizes = [rng.choice([1, 3, 100, 4096, 70_000, FIRST_FRAME_BUFFER_BYTES + 5, 3 << 20]) for _ in range(12)]
    bodies = [produce_request(size, rng) for size in sizes]
    stream = b"".join(map(framed, bodies))
    receiver = Receiver()
    came: list[bytes] = []
    position = 0
    while position < len(stream):
        receiver.may_grow = rng.random() < 0.5
        cut = position + rng.choice([1, 2, 3, 5, 1000, 65_536, 65_540, 1 << 20])
        position += receiver.receive(stream[position:cut])
        came += receiver.frames(most=rng.choice([1, 2, 1 << 30]))
        while receiver.framer.has_rest or receiver.framer.is_complete:
            receiver.framer.set_rest_aside()
            receiver.others_are_served()
            came += receiver.frames(most=1)
        receiver.others_are_served()
    assert came == bodies


@given(st.lists(st.binary(max_size=40), max_size=8), st.booleans())
def test_garbage_gives_frames_or_is_refused(pieces: list[bytes], may_grow: bool) -> None:
    """Nothing else is raised, and no more memory is taken than a first buffer holds."""
    receiver = Receiver(may_grow=may_grow)
    try:
        for piece in pieces:
            receiver.receive(piece)
            receiver.frames()
            assert receiver.framer.room <= FIRST_FRAME_BUFFER_BYTES
    except BadFrame:
        pass


@pytest.mark.parametrize("size", [0, -1, MAX_FRAME_BYTES + 1, 2**31 - 1])
@pytest.mark.parametrize("cut", [0, 2])
def test_an_impossible_size_is_refused(size: int, cut: int) -> None:
    receiver = Receiver()
    prefix = struct.pack(">i", size)
    if cut:
        receiver.receive(prefix[:cut])
        assert receiver.frames() == []
    receiver.receive(prefix[cut:] + b"rest")
    with pytest.raises(BadFrame, match=r"a request of -?\d+ bytes announced, of at most 8388608"):
        receiver.frames()


def test_memory_grows_with_what_arrives_not_with_what_is_announced() -> None:
    receiver = Receiver()
    receiver.receive(struct.pack(">ih", MAX_FRAME_BYTES, ApiKey.PRODUCE) + b"x" * 1000)
    assert receiver.frames() == []
    assert receiver.framer.room == FIRST_FRAME_BUFFER_BYTES
    arrived = 1002
    while arrived < 4 << 20:
        arrived += receiver.receive(bytes(1 << 20))
        assert receiver.frames() == []
        assert receiver.framer.room <= min(2 * arrived, arrived + GROWTH_BYTES)


def test_without_memory_a_frame_takes_what_has_arrived_and_no_more() -> None:
    receiver = Receiver(may_grow=False)
    receiver.receive(struct.pack(">ih", 500_000, ApiKey.PRODUCE) + bytes(1000))
    assert receiver.frames() == []
    assert receiver.framer.needs_room
    assert receiver.framer.room == 1002
    receiver.receive(bytes(60_000))
    assert receiver.framer.needs_room
    assert receiver.framer.room == 61_002
    receiver.may_grow = True
    receiver.receive(bytes(60_000))
    assert not receiver.framer.needs_room
    assert receiver.asked == [500_000] * 3


def test_a_large_frame_stays_where_it_is_in_memory_while_it_arrives() -> None:
    """To copy dozens of megabytes takes the loop longer than other clients may wait."""
    receiver = Receiver()
    body = produce_request(3 << 20, random.Random(1))
    data = framed(body)
    position = 0
    while position < 3 * FIRST_FRAME_BUFFER_BYTES:
        position += receiver.receive(data[position:])
        assert receiver.frames() == []
    looked_at = receiver.framer.buffers()  # what is looked at cannot be moved
    while position < len(data):
        position += receiver.receive(data[position:])
    assert looked_at[0].obj is not None
    assert receiver.framer.is_complete
    assert receiver.frames() == [body]


@pytest.mark.parametrize("first_bytes", [1, 1000])
def test_a_request_too_large_for_its_api_is_refused(first_bytes: int) -> None:
    """Before it is read, where the API is known by then."""
    receiver = Receiver()
    size = MAX_BYTES + 1
    data = struct.pack(">ih", size, ApiKey.METADATA) + bytes(size - 2)

    def receive_all() -> None:
        position = receiver.receive(data[: 4 + first_bytes])
        receiver.frames()
        assert first_bytes == 1
        while position < len(data):
            position += receiver.receive(data[position:])

    with pytest.raises(BadFrame, match="API 3, which takes"):
        receive_all()


def test_what_is_kept_outlives_the_scratch_buffer() -> None:
    receiver = Receiver()
    receiver.receive(framed(b"small"))
    frame = receiver.framer.next_frame()
    assert frame is not None
    kept = receiver.framer.kept(frame)
    receiver.others_are_served()
    assert bytes(kept) == b"small"
    assert receiver.framer.kept(kept) is kept


def flags_of_memory_at(place: int) -> list[str]:
    """The kernel's, by their two letters (proc_pid_smaps(5))."""
    is_there = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if addresses := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            first, last = (int(address, 16) for address in addresses.groups())
            is_there = first <= place < last
        elif is_there and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError("no memory is there")


def test_the_beginning_of_a_large_frame_takes_no_huge_page() -> None:
    """On a system that uses them wherever it can."""
    assert NO_HUGE_PAGES is not None
    receiver = Receiver()
    beginning = produce_request(3 * FIRST_FRAME_BUFFER_BYTES, random.Random(1))
    stream = struct.pack(">i", MAX_FRAME_BYTES) + beginning
    while stream:
        stream = stream[receiver.receive(stream) :]
        assert not receiver.frames()
    frame = receiver.framer.buffers()[0].obj
    assert isinstance(frame, mmap)
    place = ctypes.addressof(ctypes.c_char.from_buffer(frame))
    assert "nh" in flags_of_memory_at(place)


def test_little_is_received_where_memory_is_used_up() -> None:
    framer = Receiver(may_grow=False).framer
    (whole,), (short,) = framer.buffers(), framer.buffers(short=True)
    assert (len(whole), len(short)) == (64 * 1024, SHORT_BYTES)
    short[:6] = struct.pack(">ih", 1 << 20, ApiKey.PRODUCE)
    framer.received(SHORT_BYTES)
    assert framer.next_frame() is None
    assert framer.needs_room
    assert framer.room == SHORT_BYTES - 4
