"""The thread that writes late rows."""

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
    thread.finish()
    assert follower.calls[-1] is True
    assert (thread.figures("delays"), thread.figures("others")) == ({"corrected": 7}, {})


def test_it_ends_at_once_if_asked_to() -> None:
    follower = Follower()
    follower.is_well = True
    thread = thread_of(follower)
    thread.start()
    eventually(lambda: follower.calls == [True])

    thread.finish(at_once=True)

    assert follower.calls == [True]
