"""What the commands of all kinds of groups have in common: lists, names that do not exist, deletion."""

from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import click

from ottla.admin import Admin, ListedGroup, RequestRefused
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.terminal import exits, suggest
from ottla.cli.terminal.choices import one_of
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import Row, columns_of, complain, confirm, json_option, note, plural, print_rows


class Described(Protocol):
    """A group whose members are known."""

    @property
    def members(self) -> Sized:
        """Its running members."""


G = TypeVar("G", bound=Described)


@dataclass(frozen=True, slots=True)
class Kind(Generic[G]):
    """A kind of groups for which the client library has no calls, such as `share`, and the states of such groups."""

    name: str
    states: tuple[str, ...]
    listed: Callable[[Admin], Sequence[ListedGroup]]
    describe: Callable[[Admin, str], G]

    def existing(self, admin: Admin, name: str) -> G:
        """Describe a group. Raises CommandFailed, naming the nearest group, for one that does not exist."""
        names = [each.group for each in self.listed(admin)]
        if name not in names:
            hint = suggest.did_you_mean(name, names) or f"; `ottla {self.name} list` shows those that do"
            raise CommandFailed(f"{self.name} group {name!r} does not exist{hint}")
        return self.describe(admin, name)

    def list_command(self) -> click.Command:
        """The command that lists the groups of this kind."""

        @click.command("list", help=f"List {self.name} groups.")
        @click.option("--state", metavar="STATE", help=f"Only groups in this state: {', '.join(self.states)}.")
        @json_option
        @connection_options
        def list_groups(connection: Connection, state: str | None, as_json: bool) -> None:
            wanted = None if state is None else one_of(state, self.states, "state")
            with connection.broker_admin() as admin:
                found = self.listed(admin)
            rows: list[Row] = [
                {"group": each.group, "state": each.state} for each in found if wanted in (None, each.state)
            ]
            columns = columns_of("group state")
            empty = f"there are no such {self.name} groups" if wanted else f"there are no {self.name} groups"
            print_rows(rows, columns, as_json=as_json, empty=empty)

        return list_groups

    def delete(self, admin: Admin, names: Sequence[str], *, yes: bool) -> list[G]:
        """Delete groups without members, see `delete_groups`."""
        groups = [self.existing(admin, name) for name in names]
        what = f"{self.name} group"
        return delete_groups(admin.delete_groups, names, groups, what, yes=yes)


def delete_groups(
    delete: Callable[[Sequence[str]], Mapping[str, RequestRefused]],
    names: Sequence[str],
    groups: Sequence[G],
    what: str,
    *,
    with_offsets: bool = False,
    yes: bool,
) -> list[G]:
    """Delete groups without members, after a question; returns those that were deleted.

    `delete` returns the refusals by name. Raises CommandFailed, with nothing deleted, if one has members.
    """
    for name, group in zip(names, groups, strict=True):
        refuse_members(f"{what} {name!r}", group, "stop them first. Nothing was deleted")
    if len(names) == 1:
        question = f"Delete {what} {names[0]!r}" + (" and its committed offsets" if with_offsets else "")
    else:
        question = f"Delete {len(names)} {what}s" + (" and their committed offsets" if with_offsets else "")
    confirm(f"{question}?", yes=yes)
    refused = delete(names)
    for name in names:
        if name in refused:
            complain(f"{what} {name!r} cannot be deleted: {refused[name]}")
        else:
            note(f"{what} {name!r} deleted")
    return [group for name, group in zip(names, groups, strict=True) if name not in refused]


def refuse_members(what: str, group: Described, advice: str, *, because: str = "") -> None:
    """Raises CommandFailed for a group that has members. `because`: why those are in the way."""
    if count := len(group.members):
        raise CommandFailed(f"{what} has {plural(count, 'running member')}{because}; {advice}")


def exit_code(asked: Collection[str], done: Collection[object]) -> int:
    """FAILED if some of what was asked for was not done."""
    return exits.OK if len(asked) == len(done) else exits.FAILED
