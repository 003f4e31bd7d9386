"""The functions that groups need from outside their machine. PURE: the coordinator passes them in."""

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.config.group_settings import GroupSettings
from ottla.groups.topics import FixedTopics, TopicsView
from ottla.ids import GroupId

_NO_TOPICS: Final = FixedTopics()
_DEFAULTS: Final = GroupSettings()


def _no_topics() -> TopicsView:
    return _NO_TOPICS


def _default_settings(group_id: GroupId) -> GroupSettings:
    return _DEFAULTS


def _no_problem(regex: str) -> str | None:
    return None


class GroupEnvironment(NamedTuple):
    """Questions that must be answered at once. The defaults know no topics, no settings and no bad expressions."""

    topics: Callable[[], TopicsView] = _no_topics
    """The topics now. After a change the machine is sent a `TopicsChanged`."""
    settings: Callable[[GroupId], GroupSettings] = _default_settings
    regex_problem: Callable[[str], str | None] = _no_problem
    """The error in a regular expression (RE2); None if it is valid."""
