"""The picture of a cluster on a terminal: brokers, partitions, and what has happened lately."""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ottla.admin.operations.machines import is_shared, together
from ottla.cli.cluster.state import ClusterState, PartitionState
from ottla.cli.terminal.output import cell, plural

HAPPENED: Final = 6
"""How many of the latest changes are shown."""
FEWEST_PARTITIONS: Final = 3
OTHER_LINES: Final = 11
"""What the picture has beside a line per broker, partition and change: titles, headings, gaps."""
MACHINE_LINES: Final = 3
"""What the table of machines has beside a line per machine."""


class Screen:
    """Inside `with`, one picture that changes in place; the last one stays."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._happened: deque[tuple[str, str]] = deque(maxlen=HAPPENED)
        self._trouble = ""
        self._state: ClusterState | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, when: str, what: str) -> None:
        """Something has happened; shown with the next picture."""
        self._happened.append((when, what))

    def trouble(self, what: str) -> None:
        """The cluster cannot be looked at: show that over how it was."""
        self._trouble = what
        self._update()

    def draw(self, state: ClusterState) -> None:
        """Show how it is now."""
        self._trouble = ""
        self._state = state
        self._update()

    def _update(self) -> None:
        self._live.update(self._picture(), refresh=True)

    def _picture(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._trouble:
            parts.append(Text(self._trouble, style="bold red"))
        if self._state is not None:
            machines = _machines(self._state)
            room = self._console.height - OTHER_LINES - len(self._state.brokers) - len(self._happened)
            room -= sum(MACHINE_LINES + table.row_count for table in machines)
            parts += [_headline(self._state), *machines, _brokers(self._state), *_partitions(self._state, room)]
        if self._happened:
            lines = Table.grid(padding=(0, 2))
            for when, what in self._happened:
                lines.add_row(Text(when, style="dim"), Text(what))
            parts.append(lines)
        return Group(*parts)


def _headline(state: ClusterState) -> Text:
    is_well = not (state.under_replicated or state.without_leader)
    return Text(state.summary(), style="bold green" if is_well else "bold yellow")


def _table(*columns: tuple[str, bool]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, figures in columns:
        table.add_column(title, justify="right" if figures else "left", no_wrap=True)
    return table


def _machines(state: ClusterState) -> list[Table]:
    """None where each machine has one broker, since the brokers say it all."""
    if not is_shared(state.machines):
        return []
    table = _table(
        ("MACHINE", False),
        ("STATE", False),
        ("RACK", False),
        ("BROKERS", False),
        ("CONTROLLERS", False),
        ("LEADS", True),
    )
    colours = {"up": "green", "down": "bold red"}
    for row, machine in zip(state.machine_rows(), state.machines, strict=True):
        controllers = Text()
        for number, controller in enumerate(machine.controllers):
            controllers.append(" " if number else "")
            controllers.append(str(controller), style="bold" if controller == state.controller else "")
        table.add_row(
            machine.name,
            Text(str(row["state"]), style=colours.get(str(row["state"]), "yellow")),
            cell(machine.rack),
            _numbers(machine.brokers, set(machine.brokers) - set(machine.down)),
            controllers,
            cell(machine.leads, separate_thousands=True),
        )
    return [table]


def _brokers(state: ClusterState) -> Table:
    table = _table(
        ("BROKER", True),
        ("STATE", False),
        ("ADDRESS", False),
        ("RACK", False),
        ("LEADS", True),
        ("REPLICAS", True),
        ("OUT OF SYNC", True),
        ("", False),
    )
    for row in state.broker_rows():
        is_up = row["state"] == "up"
        table.add_row(
            str(row["broker"]),
            Text("up" if is_up else "down", style="green" if is_up else "bold red"),
            "-" if row["host"] is None else f"{row['host']}:{row['port']}",
            cell(row["rack"]),
            cell(row["leads"], separate_thousands=True),
            cell(row["replicas"], separate_thousands=True),
            Text(cell(row["out_of_sync"], separate_thousands=True), style="yellow" if row["out_of_sync"] else ""),
            Text("controller", style="bold") if row["controller"] else "",
        )
    return table


def _partitions(state: ClusterState, room: int) -> list[RenderableType]:
    """Those in trouble first, coordinators' own topics last, as many as there is room for."""
    shown = sorted(state.partitions.values(), key=_importance)[: max(room, FEWEST_PARTITIONS)]
    table = _table(("TOPIC", False), ("PARTITION", True), ("LEADER", True), ("REPLICAS", False), ("BEHIND", False))
    for part in shown:
        table.add_row(
            part.partition.topic,
            str(part.partition.partition),
            Text("none", style="bold red") if part.leader is None else str(part.leader),
            _replicas(state, part),
            _behind(part),
        )
    parts: list[RenderableType] = [table]
    rest = len(state.partitions) - len(shown)
    if rest:
        in_trouble = sum(_importance(part)[0] < IN_SYNC for part in state.partitions.values())
        hidden = max(in_trouble - len(shown), 0)
        parts.append(
            Text(f"and {plural(rest, 'more partition')}, {hidden:,} of them under-replicated", style="dim")
            if hidden
            else Text(f"and {plural(rest, 'more partition')}, all in sync", style="dim")
        )
    return parts


LEADERLESS, UNDER_REPLICATED, IN_SYNC = range(3)


def _importance(part: PartitionState) -> tuple[int, bool, str, int]:
    trouble = LEADERLESS if part.leader is None else UNDER_REPLICATED if part.is_under_replicated else IN_SYNC
    return trouble, part.partition.topic.startswith("__"), *part.partition


def _replicas(state: ClusterState, part: PartitionState) -> Text:
    """In the order of preference: in sync green, the others struck out; those that share a machine are named."""
    text = _numbers(part.replicas, part.in_sync)
    if shared := state.on_one_machine.get(part.partition):
        text.append(f"  {together(shared)} on one machine", style="yellow")
    return text


def _numbers(brokers: Sequence[int], well: Collection[int]) -> Text:
    text = Text()
    for number, broker in enumerate(brokers):
        text.append(" " if number else "")
        text.append(str(broker), style="green" if broker in well else "red strike")
    return text


def _behind(part: PartitionState) -> Text:
    if not part.behind:
        return Text("-", style="dim")
    text = Text()
    for number, (replica, records) in enumerate(sorted(part.behind.items())):
        if number:
            text.append("  ")
        text.append(f"{replica}: {records:,}", style="yellow" if records else "")
    return text
