"""The order of replies and what is sent of them, over a transport that takes as little as it likes."""

import random
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from ottla.log.file_region import FileRegion
from ottla.server.replies import MAX_BUFFERS_PER_SEND, Piece, ReplyQueue, ReplySlot
from ottla.server.transport import Buffer


class Region:
    """In place of a part of a file."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __len__(self) -> int:
        return len(self.content)


class Reluctant:
    """Takes up to so many bytes a call, and refuses the next one."""

    fd = 0
    principal = "User:ANONYMOUS"

    def __init__(self, rng: random.Random, most: int) -> None:
        self._rng = rng
        self._most = most
        self.taken = b""
        self.calls = 0
        self.more_follows: list[bool] = []

    def _take(self, data: bytes) -> int:
        self.calls += 1
        if self._rng.random() < 0.3:
            raise BlockingIOError
        count = self._rng.randint(1, min(self._most, len(data)))
        self.taken += data[:count]
        return count

    def send(self, buffers: Sequence[Buffer], *, more_follows: bool) -> int:
        assert len(buffers) <= MAX_BUFFERS_PER_SEND
        self.more_follows.append(more_follows)
        return self._take(b"".join(buffers))

    def send_region(self, region: FileRegion, sent: int) -> int:
        return self._take(cast("Region", region).content[sent:])

    def begin(self, ready: Callable[[], None], failed: Callable[[str], None]) -> None:
        raise AssertionError

    def receive_into(self, buffers: Sequence[memoryview]) -> int:
        raise AssertionError

    def has_decrypted(self) -> bool:
        raise AssertionError

    def has_unread(self) -> bool:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


class Queue:
    """A queue whose slots go to it directly."""

    def __init__(self) -> None:
        self.replies = ReplyQueue()
        self.turns: list[bool] = []

    def slot_filled(self, slot: ReplySlot) -> None:
        self.turns.append(self.replies.take(slot))

    def open(self, count: int) -> list[ReplySlot]:
        return [self.replies.open_slot(self) for _ in range(count)]

    def send_all(self, transport: Reluctant) -> None:
        while self.replies.unsent:
            try:
                self.replies.send(transport, lambda region, sent: True)
            except BlockingIOError:
                continue


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.replies.FileRegion", Region)


@pytest.mark.usefixtures("regions")
@pytest.mark.parametrize("seed", range(20))
def test_replies_leave_whole_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    queue, transport = Queue(), Reluctant(rng, most=rng.choice([1, 7, 1000]))
    slots = queue.open(12)
    contents = [
        [rng.randbytes(rng.choice([0, 0, 1, 3, 300])) for _ in range(rng.choice([0, 1, 4, 600]))] for _ in slots
    ]
    for number in rng.sample(range(12), 12):
        pieces = [Region(piece) if piece and rng.random() < 0.2 else piece for piece in contents[number]]
        slots[number].fill(cast("list[Piece]", pieces))
        if rng.random() < 0.5:
            queue.send_all(transport)
    queue.send_all(transport)
    assert transport.taken == b"".join(piece for pieces in contents for piece in pieces)
    assert (queue.replies.unsent_bytes, queue.replies.buffered_bytes, len(queue.replies.slots)) == (0, 0, 0)


@pytest.mark.usefixtures("regions")
def test_bytes_in_files_hold_no_memory_and_wait_until_they_are_loaded() -> None:
    queue, transport = Queue(), Reluctant(random.Random(4), most=1000)
    (slot,) = queue.open(1)
    slot.fill(cast("list[Piece]", [b"head", Region(b"content"), b"tail"]))
    assert (queue.replies.unsent_bytes, queue.replies.buffered_bytes) == (15, 8)
    asked: list[int] = []

    def is_in_memory(region: FileRegion, sent: int) -> bool:
        asked.append(sent)
        return False

    while transport.taken != b"head":
        try:
            queue.replies.send(transport, is_in_memory)
        except BlockingIOError:
            continue
    assert asked
    assert set(asked) == {0}
    assert set(transport.more_follows) == {True}
    assert (queue.replies.unsent_bytes, queue.replies.buffered_bytes) == (11, 4)
    queue.send_all(transport)
    assert transport.taken == b"headcontenttail"


def test_a_reply_behind_one_that_is_not_filled_counts_and_waits() -> None:
    queue, transport = Queue(), Reluctant(random.Random(1), most=1000)
    first, second = queue.open(2)
    second.fill([b"second"])
    assert queue.turns == [False]
    assert queue.replies.unsent_bytes == 6
    assert not queue.replies.unsent
    first.fill(())  # acks=0
    assert queue.turns == [False, True]
    queue.send_all(transport)
    assert transport.taken == b"second"


def test_requests_that_are_parked_are_given_up_and_their_late_replies_are_not_kept() -> None:
    queue = Queue()
    given_up: list[str] = []
    answered, parked = queue.open(2)
    answered.on_abandoned = lambda: given_up.append("answered")
    parked.on_abandoned = lambda: given_up.append("parked")
    answered.fill([b"reply"])
    queue.replies.abandon()
    assert given_up == ["parked"]
    assert not queue.replies.slots
    assert not queue.replies.unsent
