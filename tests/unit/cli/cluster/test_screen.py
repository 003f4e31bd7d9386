"""The picture of a cluster, as a terminal shows it."""

import io

from rich.console import Console
from tests.unit.cli.cluster.test_state import part, state, unit_state

from ottla.cli.cluster.screen import Screen
from ottla.cli.cluster.state import PartitionState
from ottla.client.partition import Partition


def seen(screen_height: int, *parts: PartitionState, said: tuple[str, ...] = (), down: tuple[int, ...] = ()) -> str:
    text = io.StringIO()
    console = Console(file=text, width=120, height=screen_height, force_terminal=True, color_system=None)
    with Screen(console) as screen:
        for what in said:
            screen.say("12:00:00", what)
        screen.draw(state(*parts, down=down))
    return text.getvalue()


def test_it_shows_brokers_partitions_and_what_has_happened() -> None:
    found = seen(40, part("t-0", 1, (1, 2), {2: 0, 3: 1234}), said=("broker 3 is down",), down=(3,))
    for expected in ("2 brokers up (1, 2); 1 down (3)", "h:9093", "r2", "controller", "2: 0  3: 1,234"):
        assert expected in found
    assert "12:00:00  broker 3 is down" in found


def test_a_partition_in_trouble_comes_first_and_the_rest_is_counted() -> None:
    many = [part(f"t-{number}", 1) for number in range(100)]
    found = seen(20, *many, part("z-0", None, (1,)), part("__consumer_offsets-0", 1))
    shown = [line.split()[0] for line in found.splitlines() if "1 2 3" in line]
    assert shown == 2 * ["z", *["t"] * 5]  # drawn again when it ends
    assert "none" in found
    assert "and 96 more partitions, all in sync" in found
    assert "__consumer_offsets" not in found
    ill = seen(20, *(PartitionState(Partition("t", number), 1, (1, 2), (1,), {}) for number in range(50)))
    assert "44 of them under-replicated" in ill


def test_a_cluster_that_cannot_be_reached_is_shown_as_it_was() -> None:
    text = io.StringIO()
    console = Console(file=text, width=120, height=40, force_terminal=True, color_system=None)
    with Screen(console) as screen:
        screen.draw(state(part("orders-0", 1)))
        text.truncate(0)
        screen.trouble("no broker answers")
    assert "no broker answers" in text.getvalue()
    assert "orders" in text.getvalue()


def test_machines_with_several_processes_are_shown() -> None:
    text = io.StringIO()
    with Screen(Console(file=text, width=120, height=40, force_terminal=True, color_system=None)) as screen:
        screen.draw(unit_state())
    found = " ".join(text.getvalue().split())
    assert "a up a 11 12 10 2 b in part b 21 22 0" in found
    assert "12 11 21 12+11 on one machine" in found
    assert "MACHINE" not in seen(40, part("t-0", 1)), "one broker on each: the brokers say it all"
