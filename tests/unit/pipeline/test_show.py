import io

import pytest
from rich.console import Console

from ottla.pipeline.demo.show import Plain, Terminal


def test_piped_output_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Plain()
    screen.say("Hello [1]")
    with screen.progress(("left", 10), ("right", 2000)) as (left, right):
        left.reach(3)
        left.reach(10, "2 batches")
        right.reach(1500)
    screen.table("Sums", ("what", "count"), [("a", "1"), ("bb", "1,000")], numbers=(1,))
    assert capsys.readouterr().out == (
        "Hello [1]\n"
        "  left: 10 of 10 (2 batches)\n"
        "  right: 1,500 of 2,000\n"
        "\nSums\n"
        "  what  count\n"
        "  a         1\n"
        "  bb    1,000\n"
    )


def test_a_terminal_gets_bars_and_a_table() -> None:
    output = io.StringIO()
    screen = Terminal(Console(file=output, force_terminal=True, width=100, highlight=False))
    screen.say("Hello [1]")
    with screen.progress(("flights", 10)) as (bar,):
        bar.reach(10, "2 batches")
    screen.table("Sums", ("what", "count"), [("a", "1")], numbers=(1,))
    shown = output.getvalue()
    assert "Hello [1]" in shown
    assert "10 of 10" in shown
    assert "2 batches" in shown
    assert "│ a    │     1 │" in shown
