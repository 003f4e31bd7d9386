"""The thread that writes late rows."""

import threading
from typing import Any

from tests.support.eventually import eventually

from ottla.pipeline.late_rows import LateRowsThread


class Follower:
    """Fails as Java does, which is no error of Spark's Python, until `is_well`."""

    def __init__(self) -> None:
        self.is_well = False
        self.calls: list[bool] = []

    figure = "corrected"
    total = 7

    def on_batch(self, event: object) -> None:
        pass

    def catch_up(self, *, unheard: bool) -> int:
        self.calls.append(unheard)
        if not self.is_well:
            raise ArithmeticError("java.lang.NullPointerException")
        return 0


def thread_of(follower: Follower) -> LateRowsThread:
    followers: dict[str, Any] = {"delays": follower}
    return LateRowsThread(followers)


def test_no_error_ends_it() -> None:
    follower = Follower()
    thread = thread_of(follower)
    thread.start()
    eventually(lambda: "NullPointerException" in thread.errors.get("delays", ""))

    follower.is_well = True
    thread.on_batch("delays", {})

    eventually(lambda: not thread.errors)
    assert thread.finish(lambda: False)
    assert follower.calls[-1] is True
    assert (thread.figures("delays"), thread.figures("others")) == ({"corrected": 7}, {})


def test_it_ends_at_once_if_asked_to() -> None:
    follower = Follower()
    follower.is_well = True
    thread = thread_of(follower)
    thread.start()
    eventually(lambda: follower.calls == [True])

    thread.finish(lambda: True)

    assert follower.calls == [True]


def test_a_run_that_ends_by_itself_waits_for_a_follower_that_is_far_behind() -> None:
    follower, may_go_on, asked = Follower(), threading.Event(), 0
    follower.is_well = True

    def catch_up(*, unheard: bool) -> int:
        follower.calls.append(unheard)
        may_go_on.wait()
        return 0

    follower.catch_up = catch_up  # type: ignore[method-assign]
    thread = thread_of(follower)
    thread.start()
    eventually(lambda: follower.calls == [True])

    def is_enough() -> bool:
        nonlocal asked
        asked += 1
        if asked == 5:
            may_go_on.set()
        return False

    assert thread.finish(is_enough)
    assert follower.calls == [True, True], "what came meanwhile is written, too"


def test_it_says_so_if_not_all_is_written_when_that_is_enough() -> None:
    follower, may_go_on, asked = Follower(), threading.Event(), [False, False, True]
    follower.catch_up = lambda *, unheard: int(may_go_on.wait())  # type: ignore[method-assign]
    thread = thread_of(follower)
    thread.start()

    assert not thread.finish(lambda: asked.pop(0))
    may_go_on.set()
