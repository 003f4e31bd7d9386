"""Why groups have rebalanced, and what moved: `ottla group describe --history`. Only Ottla's brokers remember it."""

from collections.abc import Sequence
from typing import Any, Final

from ottla.admin import Admin, Move, NotFound, Rebalance
from ottla.cli.brokers.client import Connection
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import Column, columns_of, plural, print_described, print_json
from ottla.cli.terminal.suggest import did_you_mean
from ottla.cli.terminal.times import format_instant

NOBODY: Final = "nobody"
COLUMNS: Final[tuple[Column, ...]] = columns_of("time epoch# type assignor members# moved# why~ moves=PARTITIONS~")


def show_history(connection: Connection, names: Sequence[str], *, as_json: bool) -> None:
    """Print the rebalances of each group, the oldest first. Raises CommandFailed."""
    with connection.broker_admin() as admin:
        histories = {name: _history(admin, name) for name in names}
    if as_json:
        print_json(
            [
                {"group": name, "rebalances": [_facts(rebalance) for rebalance in history]}
                for name, history in histories.items()
            ]
        )
        return
    for name, history in histories.items():
        facts = [("group", name), ("rebalances", len(history))]
        rows = [in_words(rebalance) for rebalance in history]
        empty = "the group has not rebalanced since its broker coordinates it"
        print_described("group", {"group": name}, facts, rows, COLUMNS, empty=empty)


def _history(admin: Admin, name: str) -> list[Rebalance]:
    try:
        return admin.describe_group_history(name)
    except NotFound as absent:
        hint = did_you_mean(name, [each.group for each in admin.list_groups()])
        where = "; `ottla group list` shows those that do, `ottla share list` share groups"
        raise CommandFailed(f"{absent}{hint or where}") from None


def _facts(rebalance: Rebalance) -> dict[str, Any]:
    return {
        "time": format_instant(rebalance.timestamp_ms),
        "epoch": rebalance.epoch,
        "type": rebalance.protocol,
        "assignor": rebalance.assignor,
        "members": rebalance.member_count,
        "moved": rebalance.moved_partitions,
        "why": list(rebalance.reasons),
        "moves": [
            {
                "topic": move.topic,
                "partitions": list(move.partitions),
                "from": move.source_member_id,
                "to": move.target_member_id,
            }
            for move in rebalance.moves
        ],
    }


def in_words(rebalance: Rebalance) -> dict[str, Any]:
    """A rebalance as a row of the table: reasons and moves as text."""
    named = sum(len(move.partitions) for move in rebalance.moves)
    left = rebalance.moved_partitions - named
    moves = [_move(move) for move in rebalance.moves]
    if left:
        moves.append(f"and {plural(left, 'partition')} more")
    return {**_facts(rebalance), "why": "; ".join(rebalance.reasons), "moves": "; ".join(moves)}


def _move(move: Move) -> str:
    """`orders 0-2,5: a -> b`."""
    source, target = move.source_member_id or NOBODY, move.target_member_id or NOBODY
    return f"{move.topic} {spans(move.partitions)}: {source} -> {target}"


def spans(numbers: Sequence[int]) -> str:
    """Sorted numbers with runs drawn together: `0-2,5`."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
