"""Levels of loggers over REST, in log4j's words."""

import logging
import time
from typing import Any, Final

_LEVELS: Final = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
    "ALL": 1,
}
_ROOT: Final = "root"
_modified: Final[dict[str, int]] = {}


def known_level(level: str) -> bool:
    """Whether log4j has such a level."""
    return level.upper() in _LEVELS


def levels() -> dict[str, Any]:
    """Every logger whose level was set, with it."""
    names = sorted(
        name
        for name, each in logging.root.manager.loggerDict.items()
        if isinstance(each, logging.Logger) and each.level != logging.NOTSET
    )
    return {name: _entry(name) for name in [*names, _ROOT]}


def level(name: str) -> dict[str, Any] | None:
    """The level of one logger, its own or the one it has from above; None: there is none of that name."""
    return _entry(name) if name == _ROOT or name in logging.root.manager.loggerDict else None


def set_level(name: str, text: str) -> list[str]:
    """Set the level of a logger and of all below it. Returns the names of those that had another one."""
    below = f"{name}."
    found = [
        each for each in logging.root.manager.loggerDict if name == _ROOT or each == name or each.startswith(below)
    ]
    if not known_level(text):
        return []
    number = _LEVELS[text.upper()]
    names = sorted(each for each in {name, *found} if _logger(each).level != number)
    now = time.time_ns() // 1_000_000
    for each in names:
        _logger(each).setLevel(number)
        _modified[each] = now
    return names


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == _ROOT else logging.getLogger(name)


def _entry(name: str) -> dict[str, Any]:
    number = _logger(name).getEffectiveLevel()
    text = next((word for word, value in _LEVELS.items() if value <= number), "ALL")
    return {"level": text, "last_modified": _modified.get(name)}
