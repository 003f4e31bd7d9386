"""Roles of the console's users: a second limit beside the brokers' own rules. PURE."""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Final

ANYBODY: Final = "*"
"""The name that stands for users without a role of their own."""
GROUP: Final = "group:"
"""Before the name of a group of an identity provider."""


class RoleProblem(ValueError):
    """A text assigns no role; the message has the reason."""


class Role(IntEnum):
    """Each has the rights of the ones below."""

    NONE = 0
    """May not log in."""
    VIEWER = 1
    """Reads."""
    EDITOR = 2
    """Creates and changes, and loses nothing that is stored."""
    ADMIN = 3
    """Deletes, and sees masked fields."""

    @property
    def word(self) -> str:
        """As options and pages have it."""
        return self.name.lower()


class Roles:
    """The role of each user; `*` is everybody else, a viewer unless it is given another role.

    `group:NAME` is the role of a group, and never that of a user with this name.
    """

    def __init__(self, roles: Mapping[str, Role] | None = None) -> None:
        given = {ANYBODY: Role.VIEWER, **(roles or {})}
        self._roles = {name: role for name, role in given.items() if not name.startswith(GROUP)}
        self._groups = {name.removeprefix(GROUP): role for name, role in given.items() if name.startswith(GROUP)}

    @property
    def has_groups(self) -> bool:
        """Whether groups have roles."""
        return bool(self._groups)

    def of(self, user: str, groups: Collection[str] = ()) -> Role:
        """The role of a user, by the exact name: the user's own, or the highest of the user's groups.

        A group that is kept out keeps out its members. A user called `*` has no role.
        """
        if user == ANYBODY:
            return Role.NONE
        if user in self._roles:
            return self._roles[user]
        found = {self._groups[group] for group in groups if group in self._groups}
        if found:
            return Role.NONE if Role.NONE in found else max(found)
        return self._roles[ANYBODY]


def parse_roles(lines: Iterable[str]) -> Roles:
    """Roles from lines of `NAME=ROLE`, where empty lines and those with `#` first are none. Raises RoleProblem."""
    found: dict[str, Role] = {}
    words = {role.word: role for role in Role}
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        name, equals, word = (part.strip() for part in line.rpartition("="))
        if not equals or not name or word.lower() not in words:
            raise RoleProblem(f"{line!r} is not NAME=ROLE, with a role of {', '.join(words)}")
        role = words[word.lower()]
        if found.setdefault(name, role) is not role:
            raise RoleProblem(f"{name} has two roles, {found[name].word} and {role.word}")
    return Roles(found)
