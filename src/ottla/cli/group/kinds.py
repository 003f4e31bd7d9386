"""What the commands of share groups and of streams groups have in common: lists, names that do not exist, deletion."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from ottla.admin import Admin, ListedGroup, ShareGroup, StreamsGroup
from ottla.cli.terminal import exits, suggest
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import Column, Row, complain, confirm, note, plural, print_rows

G = TypeVar("G", ShareGroup, StreamsGroup)


def print_groups(listed: Sequence[ListedGroup], kind: str, state: str | None, *, as_json: bool) -> None:
    """Print the groups that are in a state, None: all. `kind` is such as `share`."""
    rows: list[Row] = [{"group": each.group, "state": each.state} for each in listed if state in (None, each.state)]
    columns = (Column("group", "GROUP"), Column("state", "STATE"))
    empty = f"there are no such {kind} groups" if state else f"there are no {kind} groups"
    print_rows(rows, columns, as_json=as_json, empty=empty)


def check_exists(name: str, listed: Sequence[ListedGroup], kind: str) -> None:
    """Raises CommandFailed, with the nearest name, for a group that is not listed."""
    names = [each.group for each in listed]
    if name not in names:
        hint = suggest.did_you_mean(name, names) or f"; `ottla {kind} list` shows those that do"
        raise CommandFailed(f"{kind} group {name!r} does not exist{hint}")


def delete_groups(admin: Admin, names: Sequence[str], kind: str, describe: Callable[[str], G], *, yes: bool) -> list[G]:
    """Delete groups without members, after a question; returns those that were deleted.

    Raises CommandFailed, with nothing deleted, if one has members.
    """
    groups = [describe(name) for name in names]
    for each in groups:
        if each.members:
            raise CommandFailed(
                f"{kind} group {each.group!r} has {plural(len(each.members), 'running member')}; "
                "stop them first. Nothing was deleted"
            )
    what = f"{kind} group {names[0]!r}" if len(names) == 1 else f"{len(names)} {kind} groups"
    confirm(f"Delete {what}?", yes=yes)
    refused = admin.delete_groups(names)
    for name in names:
        if name in refused:
            complain(f"{kind} group {name!r} cannot be deleted: {refused[name]}")
        else:
            note(f"{kind} group {name!r} deleted")
    return [each for each in groups if each.group not in refused]


def exit_code(asked: Collection[str], done: Collection[object]) -> int:
    """FAILED if some of what was asked for was not done."""
    return exits.OK if len(asked) == len(done) else exits.FAILED
