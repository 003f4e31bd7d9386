"""When chunks of tables are read."""

from typing import Any

from tests.support.connect_tasks import TaskContext

from ottla.connect.connectors.capture.incremental import Incremental
from ottla.connect.connectors.capture.signals import TableSignals


class Reader:
    """One that can read from its third try on."""

    def __init__(self) -> None:
        self.tries = 0

    def read_next(self) -> bool:
        self.tries += 1
        return self.tries > 2


def test_what_cannot_be_read_now_is_tried_again_once_in_a_second_also_by_a_clock_that_is_set_back() -> None:
    reader: Any = Reader()
    context: Any = TaskContext()
    incremental = Incremental(lambda: "1", {"tables": ["public.a"]})
    tries = []
    clock = iter([5.0, 5.5, 5.9, 3.0, 3.9, 4.0, 4.1])
    signals = TableSignals(context, incremental, reader, list, lambda: int(next(clock) * 1e9))
    for _ in range(7):
        signals.go_on()
        tries.append(reader.tries)
    assert tries == [1, 1, 1, 2, 2, 3, 4]
