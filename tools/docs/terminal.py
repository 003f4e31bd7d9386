"""Draws docs/terminal.svg, the picture of the README: `python -m tools.docs.terminal`.

The commands are really run, on a terminal, against a broker. Draw it again when the output of a command in `SESSION`
changes; a test compares the texts.
"""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from ottla.testing import Broker
from tools.docs.markdown import ROOT

PICTURE: Final = ROOT / "docs" / "terminal.svg"
COLUMNS: Final = 96
PROMPT: Final = "[bold green]$[/] "
SESSION: Final = (
    "ottla topic create orders --partitions 3",
    "printf 'alice:one pear\\nbob:two plums\\n' | ottla produce orders --key-separator :",
    "ottla consume orders --from-beginning --keys --exit-at-end --group kitchen",
    "ottla topic describe orders",
    "ottla group describe kitchen",
)
FONT: Final = "DejaVu Sans Mono, Menlo, Consolas"
TOPIC_ID: Final = re.compile(r"\b[\w-]{22}\b")
FONT_OF_THE_WEB: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
CLASS_NAME: Final = re.compile(r"terminal-\d+")


def session() -> Iterator[tuple[str, str]]:
    """Each command, and what it prints on a terminal, with its colours; ids of topics, which are random, as dots."""
    with Broker(config={"broker.id": "1"}) as broker:
        for command in SESSION:
            yield command, TOPIC_ID.sub("." * 22, _on_terminal(command, broker.bootstrap))


def draw() -> str:
    """The picture as SVG, without fonts that a browser would have to fetch."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command, printed in session():
        console.print(PROMPT, end="")
        console.print(Text(command, style="bold"), highlight=False)
        console.print(Text.from_ansi(printed.replace("\r\n", "\n").expandtabs()), highlight=False)
    picture = console.export_svg(title="Ottla", theme=MONOKAI)
    return CLASS_NAME.sub("terminal", FONT_OF_THE_WEB.sub("", picture)).replace("Fira Code", FONT)


def _on_terminal(command: str, bootstrap: str) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OTTLA_BOOTSTRAP": bootstrap,
        "TERM": "xterm-256color",
    }
    process = subprocess.Popen(
        ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    printed = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    if process.wait():
        raise RuntimeError(f"{command} failed with exit code {process.returncode}: {printed.decode()}")
    return printed.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # on Linux, the end of a terminal that everyone has closed
        return b""


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
