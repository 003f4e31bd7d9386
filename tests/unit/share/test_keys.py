"""The queues of key order."""

from ottla.share.keys import KeyOrder


def ready(keys: KeyOrder) -> list[int]:
    found = []
    while (offset := keys.take_ready()) is not None:
        found.append(offset)
    return found


def order(*keys: bytes | None) -> KeyOrder:
    queues = KeyOrder(0)
    for offset, key in enumerate(keys):
        queues.add(offset, key)
    return queues


def test_the_first_of_each_key_and_all_without_one() -> None:
    keys = order(b"a", b"a", None, b"b", None)
    assert ready(keys) == [0, 2, 3, 4]
    assert [keys.is_first(offset) for offset in range(6)] == [True, False, True, True, True, False]
    assert len(keys) == 5


def test_the_next_comes_when_the_first_is_finished() -> None:
    keys = order(b"a", b"b", b"a", b"a")
    ready(keys)
    keys.finish(0, 0)
    assert ready(keys) == [2]
    keys.finish(3, 3)
    assert ready(keys) == [], "it was not its turn"
    keys.finish(0, 3)
    assert len(keys) == 0


def test_what_is_offered_again_is_ready_only_in_its_turn() -> None:
    keys = order(b"a", b"a")
    ready(keys)
    keys.offer(1)
    keys.offer(0)
    keys.offer(9)
    assert ready(keys) == [0]


def test_what_the_log_loses_frees_what_follows() -> None:
    keys = order(b"a", b"b", b"a", b"b")
    ready(keys)
    keys.finish_before(2)
    assert ready(keys) == [2, 3]
    keys.finish_before(10)
    assert (len(keys), keys.known_until) == (0, 10)


def test_a_record_without_a_key_holds_nothing_up() -> None:
    keys = order(None, b"a", b"a")
    ready(keys)
    keys.finish(0, 0)
    assert (len(keys), ready(keys)) == (2, [])
