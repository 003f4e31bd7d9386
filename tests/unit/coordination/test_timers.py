"""Timers against a plain list of deadlines."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.state_machine import TimerKey
from ottla.coordination.timers import Timers


def test_what_is_due_comes_out_once_and_in_order() -> None:
    timers = Timers()
    timers.set(("b",), 2.0)
    timers.set(("a",), 1.0)
    timers.set(("c",), 3.0)
    assert list(timers.due(2.5)) == [("a",), ("b",)]
    assert list(timers.due(2.5)) == []
    assert len(timers) == 1


def test_a_moved_timer_fires_at_its_new_time_only() -> None:
    timers = Timers()
    timers.set(("late",), 1.0)
    timers.set(("late",), 5.0)
    timers.set(("early",), 9.0)
    timers.set(("early",), 2.0)
    assert list(timers.due(4.0)) == [("early",)]
    assert list(timers.due(9.0)) == [("late",)]
    assert timers.next_look() is None


def test_a_cancelled_timer_never_fires_unless_set_again() -> None:
    timers = Timers()
    timers.set(("a",), 1.0)
    timers.cancel(("a",))
    timers.cancel(("never set",))
    timers.set(("b",), 1.0)
    timers.cancel(("b",))
    timers.set(("b",), 3.0)
    assert list(timers.due(2.0)) == []
    assert list(timers.due(3.0)) == [("b",)]


def test_a_timer_moved_often_has_one_entry() -> None:
    timers = Timers()
    for beat in range(1_000):
        timers.set(("session",), 10.0 + beat)
    assert len(timers._heap) == 1


KEYS = st.sampled_from([("a",), ("b",), ("c",)])
STEPS = st.lists(st.tuples(st.sampled_from(["set", "cancel", "pass"]), KEYS, st.integers(0, 9)), max_size=60)


@given(STEPS)
def test_as_a_list_of_deadlines(steps: list[tuple[str, TimerKey, int]]) -> None:
    timers = Timers()
    model: dict[TimerKey, float] = {}
    now = 0.0
    for step, key, number in steps:
        if step == "set":
            timers.set(key, now + number)
            model[key] = now + number
        elif step == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            now += number
            due = [key for key, at in model.items() if at <= now]
            assert sorted(timers.due(now)) == sorted(due)
            for fired in due:
                del model[fired]
        next_look = timers.next_look()
        assert not model or (next_look is not None and next_look <= min(model.values()))
