"""The levels of the broker's loggers, under Kafka's names for levels (KIP-412). Changes last until the broker stops."""

import logging
from typing import Final

from ottla.errors import InvalidConfig, InvalidRequest

ROOT: Final = "root"
LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG,
    "WARN": logging.WARNING,
}
"""Python has no TRACE; it is taken as DEBUG."""

_NAMES: Final = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}


def levels() -> dict[str, str]:
    """The root logger's level and that in force for each of Ottla's loggers, by name."""
    found = {ROOT: _level_name(logging.getLogger())}
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and (name == "ottla" or name.startswith("ottla.")):
            found[name] = _level_name(logger)
    return found


def check_level(name: str, level: str | None) -> None:
    """Raise `InvalidConfig` or `InvalidRequest` when a logger's level cannot be set so; None takes it away."""
    if name not in levels():
        raise InvalidConfig(f"Logger {name} does not exist!")
    if level is None:
        if name == ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
    elif level not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}"
        )


def set_level(name: str, level: str | None) -> None:
    """Set a level that `check_level` has passed."""
    logger = logging.getLogger() if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return _NAMES.get(level) or _NAMES[max(known for known in _NAMES if known <= max(level, logging.DEBUG))]
