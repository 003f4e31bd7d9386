"""Classes of operators, which their packages declare as entry points."""

from collections.abc import Sequence
from typing import Any

from ottla.errors import InvalidConfig


def made(setting: str, name: str, group: str, what: str, methods: Sequence[str]) -> Any:
    """An object of the class behind an entry point, which has these methods. Raises `InvalidConfig`."""
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    installed = {point.name: point for point in entry_points(group=group)}
    if name not in installed:
        known = f"installed are {', '.join(sorted(installed))}" if installed else "none is installed"
        raise InvalidConfig(
            f"{setting}: there is no {what} {name} among the entry points {group}; {known}. It is a Python class "
            "that a package declares there; its name may be that of the Java class it replaces"
        )
    try:
        found: object = installed[name].load()()
    except Exception as error:
        raise InvalidConfig(
            f"{setting}: the {what} {name} ({installed[name].value}) cannot be made: {error!r}"
        ) from error
    missing = [method for method in methods if not callable(getattr(found, method, None))]
    if missing:
        raise InvalidConfig(
            f"{setting}: the {what} {name} ({installed[name].value}) has no method {' and no '.join(missing)}"
        )
    return found
